"""A connection to one broker on a plain blocking socket, for readers that have no event loop: Spark's executors.

Requests may be sent ahead of their answers; `receive` returns the answers in the order of the requests. A connection
that failed, or whose answer did not come in time, is closed: a late answer never meets the next question.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

from kbroker.client.errors import NO_ADDRESS, NotConnected, TimedOut, error_for
from kbroker.client.security import PLAINTEXT, Security, tls_failure
from kbroker.client.session import DEFAULT_MAX_FRAME, Response, Session
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.frame import FrameError
from kbroker.protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    import ssl

    from kbroker.protocol.records.buffers import BufferPool
    from kbroker.protocol.schema import Message


class PlainConnection:
    """Connects and logs in when it is made; raises OSError naming the address, or LoginFailed."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout: float,
        connect_timeout: float | None = None,
        max_frame: int = DEFAULT_MAX_FRAME,
        pool: BufferPool | None = None,
        security: Security = PLAINTEXT,
    ) -> None:
        """`timeout` in seconds, of each answer; of connecting and what is asked for that, where `connect_timeout` says
        no other: until the peer has said which versions it serves it may be anybody, or hang.
        """
        self.address = f"{host}:{port}"
        self._timeout = connect_timeout or timeout
        self._session = Session(client_id, max_frame, pool)
        self._arrived: deque[Response] = deque()
        self._security = security
        self._login_ends = inf
        """When to log in again."""
        context = security.tls_context
        try:
            self._socket = socket.create_connection((host, port), self._timeout)
            if context is not None:
                self._socket = _encrypted(self._socket, context, host)
        except (UnicodeError, OverflowError) as error:
            raise NotConnected(f"no connection to {self.address}: {NO_ADDRESS}") from error
        except OSError as error:
            raise self._failure(error, f"no connection to {self.address}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if security.protocol.has_sasl:
                self._negotiate()
                self._log_in()
            self._negotiate()
            self._timeout = timeout
        except BaseException:
            self.close()
            raise

    def _log_in(self) -> None:
        """Log in, for the first time or anew (KIP-368); what is in flight is answered before, and kept."""
        from kbroker.client.authentication import authenticate_plainly  # only who logs in needs the mechanisms

        deadline = time.monotonic() + self._timeout
        while self._session.in_flight:
            self._receive_more(deadline, self._timeout)
        early, self._arrived = self._arrived, deque()
        self._login_ends = inf
        pause_s = authenticate_plainly(self, self._security)
        self._login_ends = time.monotonic() + pause_s if pause_s else inf
        self._arrived = early

    def _log_in_again(self) -> None:
        try:
            self._log_in()
        except BaseException:
            self.close()
            raise

    def _negotiate(self) -> None:
        answer = self.request(ApiVersionsRequest(), 0)
        if answer.error_code is not ErrorCode.NONE:
            raise error_for(answer.error_code, "it did not say which versions it serves", broker=self.address)
        self._session.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def version_for(self, request_type: type[Message], highest: int | None = None) -> int:
        """Return the newest version of a request that both sides have (at most `highest`)."""
        return self._session.version_for(request_type, highest)

    def request(self, message: Message, version: int | None = None, timeout: float | None = None) -> Any:
        """Send a request and wait for its answer; nothing else may be in flight."""
        self.send(message, version=version)
        return self.receive(timeout)

    def send(self, *messages: Message, version: int | None = None) -> None:
        """Send requests without waiting, together; `version` None: the newest both sides have."""
        if time.monotonic() > self._login_ends:
            self._log_in_again()
        parts: list[Any] = []  # requests have no part in a file
        for message in messages:
            parts += self._session.send(message, self.version_for(type(message)) if version is None else version)[1]
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(b"".join(parts))
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise self._failure(error, f"{self.address} ended the connection") from error
            raise

    def receive(self, timeout: float | None = None) -> Any:
        """Return the next answer; raises ConnectionError (TimeoutError when none comes in time).

        `timeout` in seconds, where it is not that of the connection.
        """
        try:
            return self._next_answer(self._timeout if timeout is None else timeout)
        except BaseException:
            self.close()
            raise

    def _next_answer(self, timeout: float) -> Any:
        deadline = time.monotonic() + timeout
        while not self._arrived:
            self._receive_more(deadline, timeout)
        response = self._arrived.popleft()
        if response.error is not None:
            raise NotConnected(f"{self.address} sent what is no answer: {response.error}")
        return response.message

    def _receive_more(self, deadline: float, timeout: float) -> None:
        """Wait for bytes, and keep the answers that they complete."""
        left = deadline - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            count = self._socket.recv_into(self._session.buffer())
        except TimeoutError:
            raise TimedOut(f"{self.address} did not answer within {timeout:g} s") from None
        except OSError as error:
            raise self._failure(error, f"{self.address} ended the connection") from error
        if count == 0:
            raise NotConnected(f"{self.address} closed the connection")
        try:
            self._arrived.extend(self._session.received(count))
        except (FrameError, KafkaError) as error:
            raise NotConnected(f"{self.address} sent what is no answer: {error}") from error

    def _failure(self, error: OSError, what: str) -> Exception:
        """Return what is raised: TlsFailed where TLS itself failed."""
        return tls_failure(error, self.address) or NotConnected(f"{what}: {error}")

    @property
    def is_open(self) -> bool:
        """Whether it can be used: neither closed nor failed."""
        return self._socket.fileno() >= 0

    @property
    def in_flight(self) -> int:
        """Requests whose answers have not arrived."""
        return self._session.in_flight

    def close(self) -> None:
        """End it; may be called again."""
        self._socket.close()


def _encrypted(plain: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    """Shake hands; the socket is closed where that fails."""
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
