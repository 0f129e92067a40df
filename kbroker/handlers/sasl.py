"""SaslHandshake and SaslAuthenticate where nobody is to log in: the login itself is network/authentication.py's."""

from __future__ import annotations

from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import nothing
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

NOT_NOW = "SASL authentication is neither expected nor allowed on this connection now"


@handles(SaslHandshakeRequest, nothing("it is refused anyway"))
def sasl_handshake(services: Services, ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse: the listener has no SASL, or the client has logged in."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


@handles(SaslAuthenticateRequest, nothing("it is refused anyway"))
def sasl_authenticate(
    services: Services, ctx: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Refuse as well."""
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=NOT_NOW, auth_bytes=b"")
