"""A connection of a SASL listener until it has logged in: takes dispatch's place, as a state machine.

    INITIAL --ApiVersions--> VERSIONS --SaslHandshake--> TOKENS --last token--> COMPLETE
       `--SaslHandshake------------------------------------^     (handshake v0: the tokens are bare frames)

    COMPLETE --SaslHandshake, where the log-in ends some day--> TOKENS (KIP-368), else requests go to dispatch

Whatever is wrong ends the connection after connection.failed.authentication.delay.ms, and nothing is read meanwhile:
guessing passwords takes its time. A log-in that never ends puts dispatch itself in place: it costs nothing after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from struct import Struct
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any

from kbroker.handlers.registry import CloseConnection
from kbroker.network.dispatch import PENDING
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.codec import decode
from kbroker.protocol.errors import ErrorCode, KafkaError, MalformedMessage, TooManyElements
from kbroker.protocol.headers import RequestHeader, encode_response, read_request_header
from kbroker.protocol.messages.security import (
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from kbroker.security.exchange import AuthenticationFailure, ServerExchange
from kbroker.security.limited_lines import LimitedLines

if TYPE_CHECKING:
    from kbroker.network.connection import Connection
    from kbroker.network.dispatch import Dispatcher
    from kbroker.network.limits import ServerLimits
    from kbroker.network.strangers import Strangers

log = logging.getLogger(__name__)

INITIAL, VERSIONS, TOKENS, RAW_TOKENS, COMPLETE, OTHER_MECHANISM, FAILED = (
    "initial",
    "versions",
    "tokens",
    "raw tokens",
    "complete",
    "other mechanism",
    "failed",
)
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
MOST_ELEMENTS = 100
"""Of a request that comes before the login, or in its middle: a login has none, and refusals repeat them."""
LEAST_BETWEEN_LOGINS_S = 1.0
WRONG_STATE = "a login is under way, or over: this request has no place in it"

_read_key = Struct(">h").unpack_from
_write_size = Struct(">i").pack


@dataclass(slots=True)
class Mechanism:
    """A mechanism that a listener offers."""

    begin: Callable[[], ServerExchange]
    max_reauth_ms: int = 0
    """connections.max.reauth.ms; 0: a login holds for as long as the credential."""


@dataclass(slots=True)
class SaslListener:
    """What all connections of one listener share."""

    mechanisms: Mapping[str, Mechanism]
    failure_delay_s: float = 0.1
    """connection.failed.authentication.delay.ms"""
    max_receive_bytes: int = 524_288
    """sasl.server.max.receive.size: the largest frame before the login"""
    lines: LimitedLines = field(default_factory=lambda: LimitedLines(log, "refused logins"))

    _limits: tuple[ServerLimits, ServerLimits] | None = None

    def limits(self, server: ServerLimits) -> ServerLimits:
        """Return what holds before the login; made once of the server's."""
        if self._limits is None or self._limits[0] is not server:
            most = self.max_receive_bytes
            self._limits = server, replace(server, request_max_bytes=most, small_request_max_bytes=most)
        return self._limits[1]


@dataclass(slots=True)
class LoginCounts:
    """How many logins of one listener there were, and how many of clients that had logged in before (KIP-368).

    A TLS handshake is one where nothing else tells who the client is, and is one that failed wherever it fails.
    """

    succeeded: int = 0
    failed: int = 0
    renewed: int = 0
    not_renewed: int = 0


class Refused(Exception):
    """The connection ends after the delay; `parts` is the answer that goes out just before, None for none."""

    def __init__(self, reason: str, parts: list[Any] | None = None) -> None:
        super().__init__(reason)
        self.parts = parts


class Authentication:
    """Called with each frame of one connection, as dispatch is."""

    __slots__ = (
        "_counts",
        "_dispatch",
        "_ends_at",
        "_exchange",
        "_last_login",
        "_listener",
        "_mechanism",
        "_principal",
        "_strangers",
        "state",
    )

    def __init__(self, listener: SaslListener, dispatch: Any, strangers: Strangers, counts: LoginCounts) -> None:
        """`dispatch`: the Dispatcher that serves once the client has logged in."""
        self._counts = counts
        self._strangers = strangers
        self.state = INITIAL
        self._listener = listener
        self._dispatch: Dispatcher = dispatch
        self._exchange: ServerExchange | None = None
        self._mechanism = ""
        self._principal: str | None = None
        """Who has logged in before."""
        self._ends_at: float | None = None
        """When the login is over; None: never."""
        self._last_login = -LEAST_BETWEEN_LOGINS_S

    @property
    def is_known(self) -> bool:
        """Whether the client has logged in."""
        return self._principal is not None

    def __call__(self, connection: Connection, frame: memoryview) -> Any:
        """Return the parts of the answer, or PENDING; raise CloseConnection."""
        if self.state is COMPLETE:
            return self._serve(connection, frame)
        try:
            return self._step(connection, frame)
        except Refused as refused:
            return self._fail(connection, refused)

    def refuse_size(self, connection: Connection, reason: str) -> None:
        """A frame that is larger than any of a login is not read."""
        self._fail(connection, Refused(reason))

    # -- logged in ----------------------------------------------------------------------------------------------------

    def _serve(self, connection: Connection, frame: memoryview) -> Any:
        """Hand the request on, unless the login is over, or is to be made anew."""
        is_handshake = len(frame) >= 2 and _read_key(frame)[0] == SASL_HANDSHAKE
        now = monotonic()
        if is_handshake and now - self._last_login >= LEAST_BETWEEN_LOGINS_S:
            self._last_login = now
            try:
                return self._step(connection, frame)
            except Refused as refused:
                return self._fail(connection, refused)
        if not is_handshake and self._ends_at is not None and now > self._ends_at:
            raise CloseConnection("its login has ended, and the client has not logged in again")
        return self._dispatch(connection, frame)

    # -- one frame of a login -----------------------------------------------------------------------------------------

    def _step(self, connection: Connection, frame: memoryview) -> Any:
        if self.state is RAW_TOKENS:
            return self._token(connection, taken(frame, frame), None)
        if self.state is OTHER_MECHANISM:
            raise Refused(f"it logs in again with another mechanism than {self._mechanism}")
        if self.state is FAILED:
            return PENDING
        header, position = self._header(frame)
        if header.api_key == API_VERSIONS and self.state in (INITIAL, VERSIONS):
            return self._versions(connection, frame)
        message = self._decoded(header, position, frame)
        if header.api_key == SASL_HANDSHAKE and self.state in (INITIAL, VERSIONS, COMPLETE):
            return self._handshake(header, message)
        if self.state is TOKENS:
            if header.api_key == SASL_AUTHENTICATE:
                return self._token(connection, taken(message.auth_bytes, frame), header)
            name = API_BY_KEY[header.api_key].name
            parts = self._dispatch.refuse(header, message, ErrorCode.ILLEGAL_SASL_STATE, WRONG_STATE)
            raise Refused(f"{name} in the middle of a login", parts)
        raise Refused(f"{API_BY_KEY[header.api_key].name} before it has logged in")

    def _header(self, frame: memoryview) -> tuple[RequestHeader, int]:
        try:
            return read_request_header(frame)
        except (MalformedMessage, KafkaError) as error:
            reason = f"it sent what is no request of a client that logs in: {error}"
            if self.state is INITIAL:
                raise Refused(reason) from None
            raise CloseConnection(reason) from None

    @staticmethod
    def _decoded(header: RequestHeader, position: int, frame: memoryview) -> Any:
        api = API_BY_KEY[header.api_key]
        if not api.min_version <= header.api_version <= api.max_version:
            raise CloseConnection(f"{api.name} version {header.api_version} is not supported, before it has logged in")
        try:
            return decode(api.request, frame, header.api_version, position, MOST_ELEMENTS)
        except TooManyElements:
            raise Refused(f"a {api.name} request of more than {MOST_ELEMENTS} elements, which no login has") from None
        except (MalformedMessage, KafkaError) as error:
            raise CloseConnection(f"a {api.name} request cannot be parsed: {error}") from None

    def _versions(self, connection: Connection, frame: memoryview) -> Any:
        """Whoever wants to log in may ask what is served; once, if the answer was one."""
        if self.state is VERSIONS:
            raise CloseConnection("it asked for versions a second time before it has logged in")
        parts = self._dispatch(connection, frame)
        if type(parts) is not list:
            raise CloseConnection("it asked for versions in a request that is too large")
        head = b"".join(bytes(part[:10]) for part in parts[:2])
        if head[8:10] == b"\0\0":
            self.state = VERSIONS
        return parts

    def _handshake(self, header: RequestHeader, message: Any) -> list[Any]:
        wanted = message.mechanism
        offered = self._listener.mechanisms
        code = ErrorCode.NONE if wanted in offered else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        answer = SaslHandshakeResponse(error_code=code, mechanisms=list(offered))
        parts = encode_response(answer, header.api_version, header.correlation_id)
        if code is not ErrorCode.NONE:
            raise Refused(f"mechanism {wanted[:40]!r} is not offered here, only {', '.join(offered)}", parts)
        if self.state is COMPLETE and wanted != self._mechanism:
            self.state = OTHER_MECHANISM
            return parts
        self._mechanism = wanted
        self._exchange = offered[wanted].begin()
        self.state = TOKENS if header.api_version >= 1 else RAW_TOKENS
        return parts

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _token(self, connection: Connection, token: bytes, header: RequestHeader | None) -> Any:
        """Give the mechanism its token; `header` None: the token came in a bare frame."""
        assert self._exchange is not None
        try:
            answer = self._exchange.step(token)
            if isinstance(answer, bytes):
                return self._answered(connection, answer, header)
        except AuthenticationFailure as failure:
            raise self._refusal(failure, header) from None
        except Exception as error:
            log.error("a login from %r could not be checked", connection, exc_info=error)
            raise self._refusal(AuthenticationFailure("it could not be checked"), header) from None
        later = asyncio.ensure_future(answer)
        serve = self._strangers.serve if self._principal is None else _at_once
        later.add_done_callback(lambda done: serve(lambda: self._answer_later(connection, done, header)))
        return PENDING

    def _answer_later(self, connection: Connection, done: asyncio.Future[bytes], header: RequestHeader | None) -> None:
        try:
            try:
                parts = self._answered(connection, done.result(), header)
            except AuthenticationFailure as failure:
                raise self._refusal(failure, header) from None
            except Exception as error:
                log.error("a login from %r could not be checked", connection, exc_info=error)
                raise self._refusal(AuthenticationFailure("it could not be checked"), header) from None
        except Refused as refused:
            self._fail(connection, refused)
        else:
            connection.answer(parts)

    def _answered(self, connection: Connection, answer: bytes, header: RequestHeader | None) -> list[Any]:
        assert self._exchange is not None
        lifetime_ms = 0
        if self._exchange.identity is not None:
            lifetime_ms = self._complete(connection)
        if header is None:
            return [_write_size(len(answer)), answer]
        message = SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, auth_bytes=answer, session_lifetime_ms=lifetime_ms
        )
        return encode_response(message, header.api_version, header.correlation_id)

    def _complete(self, connection: Connection) -> int:
        """The client is who it says; returns for how long, in milliseconds, 0 for ever."""
        assert self._exchange is not None
        identity, self._exchange = self._exchange.identity, None
        assert identity is not None
        if self._principal not in (None, identity.name):
            told = (
                f"Cannot change principals during re-authentication from User.{self._principal}: User.{identity.name}"
            )
            raise AuthenticationFailure(f"it logs in again as {identity.name[:80]!r}", told)
        lives = []
        if identity.expires_at_ms is not None:
            lives.append(identity.expires_at_ms - time_ns() // 1_000_000)
        max_reauth_ms = self._listener.mechanisms[self._mechanism].max_reauth_ms
        if max_reauth_ms > 0:
            lives.append(max_reauth_ms)
        lifetime_ms = max(0, min(lives)) if lives else 0
        self._ends_at = monotonic() + lifetime_ms / 1000 if lives else None
        if self._principal is None:
            self._counts.succeeded += 1
        else:
            self._counts.renewed += 1
        self._principal = identity.name
        self.state = COMPLETE
        connection.logged_in(identity, None if self._ends_at is None else self)
        log.debug("%r has logged in as %s with %s", connection, identity.name, self._mechanism)
        return lifetime_ms

    # -- refusals -----------------------------------------------------------------------------------------------------

    def _refusal(self, failure: AuthenticationFailure, header: RequestHeader | None) -> Refused:
        """Return what ends the connection: the client learns what Kafka's would."""
        reason = f"{self._mechanism}: {failure}"
        if header is None:
            return Refused(reason)
        phase = "authentication" if self._principal is None else "re-authentication"
        told = failure.told or (
            f"Authentication failed during {phase} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        message = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told, auth_bytes=b""
        )
        return Refused(reason, encode_response(message, header.api_version, header.correlation_id))

    def _fail(self, connection: Connection, refused: Refused) -> Any:
        self.state = FAILED
        self._exchange = None
        if self._principal is None:
            self._counts.failed += 1
        else:
            self._counts.not_renewed += 1
        level = self._listener.lines.level(connection.host, logging.WARNING)
        connection.close_later(self._listener.failure_delay_s, refused.parts, f"login refused: {refused}", level)
        return PENDING


def _at_once(work: Callable[[], None]) -> None:
    work()


def taken(token: Any, frame: memoryview) -> bytes:
    """Copy a token that may be a password, and leave no trace of it in the connection's memory."""
    copied = bytes(token)
    if not frame.readonly:
        frame[:] = bytes(len(frame))
    return copied
