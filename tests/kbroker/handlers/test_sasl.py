"""Asking for a login where there is none."""

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.kbroker.asking import Ask


async def test_a_plain_listener_takes_no_login(ask: Ask) -> None:
    for version in (0, 1):
        answer = await ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    for version in (0, 1, 2):
        answer = await ask(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version)
        assert answer.error_code is ErrorCode.ILLEGAL_SASL_STATE
