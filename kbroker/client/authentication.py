"""What happens on a new connection before its first request: the client logs in, where its settings say so (SASL).

    ApiVersions -> SaslHandshake (mechanism) -> SaslAuthenticate (token), as often as the mechanism wants

The conversation is a generator without input or output; one driver awaits, the other blocks. The broker may say how
long the login lasts: the client logs in again on the same connection before that is over (KIP-368).
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker.client.errors import NotConnected, error_for
from kbroker.client.login import FINAL
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from kbroker.security.exchange import OAUTHBEARER, PLAIN, AuthenticationFailure, ClientExchange
from kbroker.security.oauthbearer import OAuthBearerClient
from kbroker.security.plain import PlainClient
from kbroker.security.scram import TOKEN_AUTHENTICATION, ScramClient

if TYPE_CHECKING:
    from kbroker.client.connection import Connection
    from kbroker.client.plain_connection import PlainConnection
    from kbroker.client.security import Security
    from kbroker.protocol.schema import Message

Work = Callable[[], Any]
"""What may take long, and is not for an event loop."""
Conversation = Generator[Any, Any, int]
"""Yields requests and Work, is sent answers and results; returns how many milliseconds the login lasts, 0: for ever."""


async def authenticate(connection: Connection, security: Security) -> float:
    """Log in; raises LoginFailed (no use in trying again) or OSError. Whoever waits limits the time.

    Returns after how many seconds to log in again; 0 for never.
    """
    await connection.negotiate()
    return await authenticate_again(connection, security)


async def authenticate_again(connection: Connection, security: Security) -> float:
    """Log in anew on a connection that is in use."""
    conversation, given = conversation_of(security, connection.address), None
    try:
        while True:
            asked = conversation.send(given)
            if callable(asked):
                given = await _in_a_thread(asked)
            else:
                given = await connection.ask_first(asked, connection.version_for(type(asked), _highest(asked)))
    except StopIteration as end:
        return pause_s(end.value)


async def _in_a_thread(work: Work) -> Any:
    try:
        waiting = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:  # the interpreter ends, and makes no threads any more
        return work()
    return await waiting


def authenticate_plainly(connection: PlainConnection, security: Security) -> float:
    """Log in over a blocking connection, within its time-out; raises and returns what `authenticate` does."""
    conversation, given = conversation_of(security, connection.address), None
    try:
        while True:
            asked = conversation.send(given)
            if callable(asked):
                given = asked()
            else:
                given = connection.request(asked, connection.version_for(type(asked), _highest(asked)))
    except StopIteration as end:
        return pause_s(end.value)


def pause_s(lifetime_ms: int) -> float:
    """Return after how many seconds to log in again: at a random point near the end of the login's life."""
    return lifetime_ms / 1000 * random.uniform(0.85, 0.95)


def _highest(request: Message) -> int | None:
    return 1 if isinstance(request, SaslHandshakeRequest) else None


def conversation_of(security: Security, address: str) -> Conversation:
    """Hold the conversation of a login; raises LoginFailed that names user and mechanism, never the password."""
    exchange: ClientExchange = yield partial(begin, security, address)
    mechanism = exchange.mechanism
    answer = yield SaslHandshakeRequest(mechanism=mechanism)
    if answer.error_code is not ErrorCode.NONE:
        raise error_for(answer.error_code, _not_offered(mechanism, answer), broker=address)
    token: bytes | None = exchange.first()
    while token is not None:
        answer = yield SaslAuthenticateRequest(auth_bytes=token)
        if answer.error_code is not ErrorCode.NONE:
            raise _refused(answer.error_code, exchange, answer.error_message, address)
        token = yield partial(_next_token, exchange, bytes(answer.auth_bytes), address)
        if token is None and not exchange.is_complete:
            raise _refused(ErrorCode.SASL_AUTHENTICATION_FAILED, exchange, "the login broke off", address)
    return int(answer.session_lifetime_ms)


def _next_token(exchange: ClientExchange, challenge: bytes, address: str) -> bytes | None:
    try:
        return exchange.step(challenge)
    except AuthenticationFailure as failure:
        raise _refused(ErrorCode.SASL_AUTHENTICATION_FAILED, exchange, str(failure), address) from None


def _not_offered(mechanism: str, answer: Any) -> str:
    if answer.error_code is ErrorCode.ILLEGAL_SASL_STATE:
        return "this listener wants no login: is security_protocol right, and the port?"
    return f"{mechanism} is not offered, only {', '.join(answer.mechanisms) or 'nothing'}: sasl_mechanism says which"


def _refused(code: ErrorCode, exchange: ClientExchange, reason: str | None, address: str) -> KafkaError:
    who = f"user {exchange.user!r} with " if exchange.user else ""
    return error_for(
        code, f"login of {who}{exchange.mechanism} refused: {reason or 'the broker does not say why'}", broker=address
    )


def begin(security: Security, address: str) -> ClientExchange:
    """Return the client's side of the mechanism that the settings choose; may wait for a token.

    A provider of tokens that is away (an OSError: no answer, no connection) is like a broker that is: NotConnected, and
    whoever tries again asks it again. Whatever else it raises is final, as are a refusal (PermissionError) and a file
    that is not there.
    """
    login = security.login
    if login.mechanism == PLAIN:
        return PlainClient(login.user, login.password)
    if login.mechanism == OAUTHBEARER:
        try:
            return OAuthBearerClient(login.token_provider(), login.extensions)
        except (Exception, SystemExit) as error:  # sys.exit() would end the thread that waits here, and no program
            if isinstance(error, OSError) and not isinstance(error, FINAL):
                raise NotConnected(f"no token to log in to {address} by OAUTHBEARER: {_told(error)}") from error
            reason = f"OAUTHBEARER: there is no token: {_told(error)}"
            raise error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, reason, broker=address) from error
    extensions = {TOKEN_AUTHENTICATION: "true"} if login.is_token else None
    return ScramClient(login.mechanism, login.user, login.password, secrets.token_hex(16), extensions)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
