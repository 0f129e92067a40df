"""A connection to one broker on asyncio: pipelined requests, each answered by a future.

    connection = await Connection.open("127.0.0.1", 9092, client_id="me")
    await connection.negotiate()
    answer = await connection.request(MetadataRequest(topics=None), timeout=5)

Whoever closes it, or whatever ends it (the peer, a frame that is none, a request that timed out), all requests in
flight fail with ConnectionError; a closed connection is never used again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbroker.client.errors import NO_ADDRESS, LoginFailed, NotConnected, TimedOut, error_for
from kbroker.client.security import PLAINTEXT, Security, tls_arguments, tls_failure
from kbroker.client.session import DEFAULT_MAX_FRAME, Session
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.frame import FrameError
from kbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kbroker.protocol.records.buffers import BufferPool
    from kbroker.protocol.schema import Message

log = logging.getLogger(__name__)

NEWEST_API_VERSIONS = 3
DEFAULT_TIMEOUT_S = 30.0
DELIVER_S = 5.0
"""How long closing waits for the peer to take what wants no answer: TLS has bytes of its own on the way."""
MOST_PARTS = 1024
"""So many buffers a system call takes."""
WAKE_BYTES = 256 << 10
"""Of a large answer so much is received at once, where the system can be told: each time costs about as much as to
receive as many bytes."""


class Connection(asyncio.BufferedProtocol):
    """Made by `open`; `request` may be called any number of times without waiting for the answers."""

    def __init__(self, address: str, client_id: str | None, max_frame: int, pool: BufferPool | None = None) -> None:
        self.address = address
        self.session = Session(client_id, max_frame, pool)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        """Where bytes may be written past the transport; -1 where it encrypts them."""
        self._socket: Any = None
        self._woken_at = 0
        """So many bytes must be there before the system wakes us; 0: it decides by itself."""
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._unwritten: dict[int, asyncio.Future[None]] = {}
        """Requests without an answer of which the system does not have all bytes yet."""
        self._is_one_way = False
        """Whether there ever was one."""
        self._closed = self._loop.create_future()
        self._failure: Exception | None = None
        self._held: list[Sequence[Any]] | None = None
        """What waits while the client logs in again: nothing else may be sent then."""
        self._held_after: int | None = None
        """The last request before those; None while none has to wait."""
        self._next_login: asyncio.TimerHandle | None = None
        self.features: dict[str, int] = {}
        """The levels that count in the cluster, as the broker knew them when it was asked."""
        self.features_epoch = -1

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = "kbroker",
        timeout: float = DEFAULT_TIMEOUT_S,
        max_frame: int = DEFAULT_MAX_FRAME,
        pool: BufferPool | None = None,
        security: Security = PLAINTEXT,
    ) -> Connection:
        """Connect and log in within `timeout` seconds.

        Raises OSError (TimeoutError is one) naming the address, or LoginFailed, after which another try is no use.
        """
        address = f"{host}:{port}"
        make = functools.partial(cls, address, client_id, max_frame, pool)
        try:
            async with asyncio.timeout(timeout):
                connection = await _connected(make, host, port, tls_arguments(security, host))
                if security.protocol.has_sasl:
                    await connection._log_in(security)
        except TimeoutError:
            raise TimedOut(f"no connection to {address} within {timeout:g} s") from None
        except OSError as error:
            lost = NotConnected(f"no connection to {address}: {_reason(error, security)}")
            raise tls_failure(error, address) or lost from error
        return connection

    async def _log_in(self, security: Security) -> None:
        from kbroker.client.authentication import authenticate  # only who logs in needs the mechanisms

        try:
            again_s = await authenticate(self, security)
        except BaseException:
            self.abort()
            raise
        self._log_in_later(security, again_s)

    def _log_in_later(self, security: Security, pause_s: float) -> None:
        if pause_s and self._failure is None:
            self._next_login = self._loop.call_later(pause_s, self._begin_login, security)

    def _begin_login(self, security: Security) -> None:
        self._login = self._loop.create_task(self._log_in_again(security))

    async def _log_in_again(self, security: Security) -> None:
        """Log in before the login is over (KIP-368); requests wait meanwhile. Failing, the connection ends."""
        from kbroker.client.authentication import authenticate_again

        self._held, self._held_after = [], self.session.last_correlation_id
        try:
            async with asyncio.timeout(DEFAULT_TIMEOUT_S):
                again_s = await authenticate_again(self, security)
        except (OSError, KafkaError) as error:
            self._end(error if isinstance(error, LoginFailed) else NotConnected(f"{self.address}: no login: {error}"))
            return
        held, self._held, self._held_after = self._held, None, None
        for parts in held:
            self._write(parts)
        self.resume_writing()
        self._log_in_later(security, again_s)

    async def ask_first(self, message: Message, version: int) -> Any:
        """Send a request of a login, past those that wait for its end, and return the answer."""
        held, self._held = self._held, None
        try:
            answer = self.send(message, version)
        finally:
            self._held = held
        return await answer

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._failure is not None

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """API key -> (lowest, highest version the broker serves); empty before `negotiate`."""
        return self.session.versions

    @property
    def in_flight(self) -> int:
        """Requests sent and not answered."""
        return len(self._waiting)

    async def negotiate(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Ask for the versions that the broker serves."""
        request = ApiVersionsRequest(client_software_name="kbroker", client_software_version="1")
        answer: ApiVersionsResponse | None = None
        for version in (NEWEST_API_VERSIONS, 0):
            answer = await self._ask_versions(request, version, timeout)
            if answer is not None:
                break
        if answer is None or answer.error_code is not ErrorCode.NONE:
            code = ErrorCode.UNSUPPORTED_VERSION if answer is None else answer.error_code
            raise error_for(code, "it did not say which versions it serves", broker=self.address)
        self.session.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self.features = {each.name: each.max_version_level for each in answer.finalized_features}
        self.features_epoch = answer.finalized_features_epoch

    async def _ask_versions(self, request: Message, version: int, timeout: float) -> ApiVersionsResponse | None:
        """Return None when the broker does not know this version: its answer then comes in version 0."""
        try:
            answer: ApiVersionsResponse = await self.request(request, version, timeout=timeout)
        except MalformedAnswer:
            return None
        return None if answer.error_code is ErrorCode.UNSUPPORTED_VERSION else answer

    async def request(self, message: Message, version: int | None = None, *, timeout: float = DEFAULT_TIMEOUT_S) -> Any:
        """Send a request and return its answer. `version` None: the newest both sides have.

        Raises ConnectionError when the connection ends first, TimeoutError (and closes it) when no answer comes.
        """
        future = self.send(message, self.version_for(type(message)) if version is None else version)
        # A timer is cheaper than asyncio.timeout, which needs a context per call.
        timer = self._loop.call_later(timeout, self._time_out, future, type(message).__name__, timeout)
        try:
            return await future
        finally:
            timer.cancel()

    def send(self, message: Message, version: int) -> asyncio.Future[Any]:
        """Send a request now; the future gets the answer, or the error that ended the connection. No time limit."""
        if self._failure is not None:
            raise NotConnected(f"the connection to {self.address} is closed: {self._failure}")
        correlation_id, parts = self.session.send(message, version)
        self._waiting[correlation_id] = future = self._loop.create_future()
        self._write(parts)
        return future

    def send_without_answer(self, message: Message, version: int) -> asyncio.Future[None]:
        """Send a request to which the broker gives no answer, Produce with acks=0; done once the system has all of it.

        Until then it takes up memory here. It fails where the connection ends and the broker cannot have all of it.
        """
        if self._failure is not None:
            raise NotConnected(f"the connection to {self.address} is closed: {self._failure}")
        correlation_id, parts = self.session.send(message, version, expect_answer=False)
        self._unwritten[correlation_id] = future = self._loop.create_future()
        self._is_one_way = True
        self._write(parts)
        self.resume_writing()
        return future

    def version_for(self, request_type: type[Message], highest: int | None = None) -> int:
        """Return the newest version of a request that both sides have (at most `highest`)."""
        return self.session.version_for(request_type, highest)

    def _write(self, parts: Sequence[Any]) -> None:
        if self._held is not None:
            self._held.append(parts)
            return
        transport = self._transport
        assert transport is not None
        if len(parts) > 1 and self._descriptor >= 0 and _is_free(transport):
            parts = self._write_now(parts)
        if parts:
            transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def _write_now(self, parts: Sequence[Any]) -> Sequence[Any]:
        """Hand the parts to the socket as they lie: putting together what is large costs more; returns what is left."""
        try:
            sent = os.writev(self._descriptor, parts[:MOST_PARTS])
        except OSError:
            return parts  # full, or broken: the transport meets the same and knows what to do
        for number, part in enumerate(parts):
            if sent < len(part):
                return [memoryview(part)[sent:], *parts[number + 1 :]]
            sent -= len(part)
        return ()

    def _time_out(self, future: asyncio.Future[Any], name: str, timeout: float) -> None:
        if not future.done():
            error = TimedOut(f"{self.address} did not answer {name} within {timeout:g} s")
            future.set_exception(error)
            self._end(error)

    async def close(self) -> None:
        """End it and wait until the socket is closed; what wanted no answer and is written is delivered before."""
        try:
            if self._transport is not None and self._is_one_way and self._failure is None and not self._unwritten:
                self._transport.close()
                await asyncio.wait([self._closed], timeout=DELIVER_S)
        finally:
            self.abort()
        if self._transport is not None:
            await asyncio.shield(self._closed)

    def abort(self) -> None:
        """End it without waiting."""
        self._end(NotConnected(f"the connection to {self.address} was closed here"))

    def _end(self, error: Exception) -> None:
        """Fail what waits; the first reason stays."""
        if self._failure is None:
            self._failure = error
        if self._next_login is not None:
            self._next_login.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error if isinstance(error, LoginFailed) else NotConnected(str(error)))
                # Whoever waited may be gone (cancelled): that its error is never looked at is no mistake.
                future.exception()
        unwritten, self._unwritten = self._unwritten, {}
        for correlation_id, written in unwritten.items():
            if written.done():
                continue
            is_held = self._held_after is not None and correlation_id > self._held_after
            if is_held or correlation_id == self.session.last_correlation_id:
                written.set_exception(NotConnected(str(error)))
                written.exception()
            else:  # what is left to write may all be behind it
                written.set_result(None)

    def set_receive_buffer(self, size: int) -> None:
        """Set SO_RCVBUF; -1 leaves it to the operating system."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if size > 0 and sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
            if self._woken_at > 1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            self._woken_at = 0  # there may be no room for so many bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; answers must not wait for Nagle's algorithm."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=0)  # resume_writing comes once all is written
        self._transport = transport
        self._socket = sock = transport.get_extra_info("socket")
        if sock is not None:
            if transport.get_extra_info("ssl_object") is None:
                self._descriptor = sock.fileno()
                self._woken_at = 1 if sys.platform == "linux" else 0
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits."""
        closed = NotConnected(f"{self.address} closed the connection" + (f": {exc}" if exc else ""))
        self._end(tls_failure(exc, self.address) or closed)
        if not self._closed.done():
            self._closed.set_result(None)

    def resume_writing(self) -> None:
        """Tell of requests without an answer that they are written, if all is."""
        if self._unwritten and self._held_after is None and self._transport is not None and _is_free(self._transport):
            unwritten, self._unwritten = self._unwritten, {}
            for written in unwritten.values():
                if not written.done():
                    written.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes go."""
        return self.session.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Answer the futures whose responses are complete now."""
        try:
            responses = self.session.received(nbytes)
        except (FrameError, KafkaError) as error:
            self._end(NotConnected(f"{self.address} sent what is no answer: {error}"))
            return
        if self._woken_at:
            self._wake_late()
        for response in responses:
            future = self._waiting.pop(response.correlation_id, None)
            if future is None or future.done():
                continue
            if response.error is None:
                future.set_result(response.message)
            else:
                future.set_exception(MalformedAnswer(f"{self.address}: {response.error}"))

    def _wake_late(self) -> None:
        """Wait for much of a large answer at once: nothing can be done with a part of it."""
        wanted = max(1, min(self.session.missing, WAKE_BYTES))
        if wanted != self._woken_at:
            self._woken_at = wanted
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            except OSError:  # what only looks like Linux: woken for each piece, as elsewhere
                self._woken_at = 0


class MalformedAnswer(NotConnected):
    """A response whose bytes do not follow the protocol."""


def _reason(error: OSError, security: Security) -> str:
    if str(error) or not security.protocol.has_tls:
        return error.strerror or str(error) or type(error).__name__
    return "it ended the TLS handshake: does that port speak TLS?"  # of which asyncio says nothing


def _is_free(transport: asyncio.Transport) -> bool:
    """Whether nothing waits to be written before what comes now."""
    return not transport.get_write_buffer_size() and not transport.is_closing()


async def _connected(make: Callable[[], Connection], host: str, port: int, tls: Mapping[str, Any]) -> Connection:
    """Connect, over TLS where there are arguments for it."""
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(make, host, port, **tls)
    except OSError:  # among them certificates that are not trusted, which are ValueErrors too
        raise
    except (ValueError, OverflowError) as error:
        raise NotConnected(NO_ADDRESS) from error
    except RuntimeError as error:
        # There is no thread to resolve the name in when the interpreter ends: this waits for the name here.
        log.info("resolving %s without a thread: %s", host, error)
        number = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
        _, connection = await loop.create_connection(make, str(number), port, **tls)
    return connection
