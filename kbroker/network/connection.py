"""One client's socket as a small state machine: frames in, one request in work at a time, answers out in order.

    READING --frame complete--> WORKING --answer--> SENDING --all out--> READING      (any) --> CLOSED

While a request is in work or its answer is not out, nothing more is read: a client that pipelines waits in its
socket, and a slow reader holds one answer at most. Two kinds of waiting do not stop their like (`LateAnswer`): further
Produce frames share the flush of one that is in its logs (once its transaction is verified: `let_overtake`), further
EndTxn frames the append of the first, at most MOST_LATE_ANSWERS of them. Answers go out in the requests' order.

What all connections may take of one turn of the event loop is limited (`Server.turn_is_over`): the rest of a buffer
of small frames waits for the next turn, and so do large frames, each of which takes a while to decode, or to receive.

Small frames are cut from a shared buffer (many with one recv). A frame that is not complete after that gets a pooled
buffer of its own, and its bytes are received straight into it; so are the next ones of that connection.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from kbroker.handlers.registry import CloseConnection
from kbroker.network.dispatch import PENDING, LateAnswer
from kbroker.network.limits import LARGE_FRAME, LARGEST_EXPECTED, MOST_LATE_ANSWERS, refusal_of_size
from kbroker.network.muting import Muting
from kbroker.network.outgoing import Outgoing
from kbroker.network.parts import Shortened
from kbroker.security.acls import ANONYMOUS
from kbroker.security.authorizer import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.handlers.context import RequestContext
    from kbroker.network.authentication import Authentication
    from kbroker.network.buffers import Buffer
    from kbroker.network.channel import Channel
    from kbroker.network.letting_go import Cancellable
    from kbroker.network.limits import ServerLimits
    from kbroker.network.request_times import Timing
    from kbroker.network.server import Dispatch, Listener, Server
    from kbroker.security.authorizer import Everything
    from kbroker.security.exchange import Identity

log = logging.getLogger(__name__)
READING, WORKING, SENDING, CLOSED = "reading", "working", "sending", "closed"
PRODUCE_KEY = b"\0\0"
_read_size = Struct(">i").unpack_from


class Connection:
    """One client's socket. Handlers see it as `ctx.connection`."""

    __slots__ = (
        "_cancelled_when_closed",
        "_channel",
        "_dispatch",
        "_expected",
        "_frame",
        "_frame_end",
        "_frame_filled",
        "_frame_start",
        "_held",
        "_in_work",
        "_is_resuming",
        "_late",
        "_late_key",
        "_late_scheduled",
        "_muting",
        "_out",
        "_partial",
        "_pending",
        "_recv_into",
        "_reserved",
        "_rest",
        "_server",
        "authority",
        "client_software_name",
        "client_software_version",
        "host",
        "is_by_token",
        "is_paused",
        "last_active",
        "listener",
        "login_limits",
        "port",
        "principal",
        "received",
        "security_protocol",
        "state",
        "timing",
    )

    def __init__(self, server: Server, channel: Channel, listener: Listener, host: str, port: int) -> None:
        self._server, self._channel = server, channel
        self._recv_into = channel.recv_into
        self.listener = listener.name
        self.security_protocol = listener.security_protocol
        self.host, self.port = host, port
        self.principal = ANONYMOUS
        """Whoever logged in, or whose certificate it is: `User:` and the name."""
        self.authority: Everything = EVERYTHING
        """What the principal may do; dispatch keeps it up to date."""
        self.client_software_name = self.client_software_version = "unknown"
        self.is_by_token = False
        """Whether a delegation token was the password: then no tokens are given out."""
        self.state = READING
        self.last_active = monotonic()
        self._dispatch: Dispatch = server.dispatch
        self.login_limits: ServerLimits | None = None
        """What holds before the login, in place of the server's limits; None: there is no login to come."""
        self.received = 0.0
        """When the frame in hand was complete, if it had to wait; 0: just now."""
        self.timing: Timing | None = None
        """Of the answer that goes out."""
        self.is_paused = False
        """Whether it is not read from, though there is something to read: a request is in work."""
        self._partial: bytearray | None = None
        """The first bytes of a frame: too few to know its size, or whether its API may be as large."""
        self._is_resuming = False
        """Whether what is left over waits for its turn of the loop."""
        self._rest: bytearray | None = None
        """Bytes received behind the request in work; at most one scratch buffer's."""
        self._frame: Buffer | None = None
        """Being filled: the frame lies in [`_frame_start`, `_frame_end`), what is below `_frame_filled` has come."""
        self._frame_start = self._frame_end = self._frame_filled = 0
        self._expected = 0
        """Size of the buffer for the next frame and its size, when the last one did not fit into the shared buffer."""
        self._in_work: Buffer | None = None
        """Own buffer of the request in work."""
        self._reserved = 0
        self._pending = False
        """Whether a request is in work that nothing may overtake."""
        self._cancelled_when_closed: Cancellable | None = None
        """The answer of that request, when nobody but this client wants it."""
        self._late: deque[LateAnswer] = deque()
        """Answers that are to come, or wait for one before them, in the order of the requests, all of one API."""
        self._late_key, self._late_scheduled = PRODUCE_KEY, False
        self._muting: Muting | None = None
        self._held: memoryview | None = None
        """A whole frame that may not overtake the late answers."""
        self._out = Outgoing(channel)
        channel.start_reading(self._on_readable)

    def log_in_first(self, login: Authentication, limits: ServerLimits) -> None:
        """Nothing is served before the login, and nothing large is read."""
        self._dispatch, self.login_limits = login, limits

    def logged_in(self, identity: Identity, login: Authentication | None) -> None:
        """Serve whoever it is; `login`: what watches over a login that ends some day."""
        self.principal = f"User:{identity.name}"
        self.is_by_token = identity.is_token
        self.login_limits = None
        self._dispatch = self._server.dispatch if login is None else login

    def __repr__(self) -> str:
        return f"{self.host}:{self.port} on {self.listener}"

    @property
    def takes_brokers(self) -> bool:
        """Whether its listener takes what only brokers send."""
        listeners = self._server.limits.broker_listeners
        return listeners is None or self.listener in listeners

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether no request is in work and no answer is to be sent; it may be that it is not read for a while."""
        return self.state is not SENDING and not self.is_waiting and self._held is None

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for an answer that is not ready."""
        return self._pending or bool(self._late)

    def _on_readable(self) -> None:
        if self.state is not READING or self._rest is not None:
            if not self.close_if_left():
                self.is_paused = True
                self._channel.stop_reading()
                self._server.departures.watch(self)
            return
        if self.login_limits is not None and not self._server.strangers_of(self.listener).have_time():
            self._channel.stop_reading()
            self._server.strangers_of(self.listener).wait(self._read_in_turn)
            return
        self._read()

    def _read_in_turn(self) -> None:
        """It has not logged in, and had to wait until others like it had their time."""
        if self.state is not CLOSED:
            self._channel.start_reading(self._on_readable)
            self._read()

    def _read(self) -> None:
        try:
            if self._frame is not None:
                self._fill_frame(self._frame)
                return
            if self._expected and self._partial is None:
                self._receive_large()
                return
            scratch = self._server.scratch.take()
            kept = 0
            if self._partial is None:
                count = self._recv_into(scratch)
            else:
                kept = len(self._partial)
                scratch[:kept] = self._partial
                count = self._recv_into(memoryview(scratch)[kept:])
                self._partial = None  # now: there may have been nothing yet, of a record of TLS in pieces
            if count == 0:
                self.close("the client closed it", logging.DEBUG)
                return
            frame = self._consume(scratch, kept + count)
            if frame is not None and kept + count == len(scratch):
                self._fill_frame(frame)  # more of it is there
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"reading failed: {error}", logging.DEBUG)

    def _receive_large(self) -> None:
        """Receive a frame with its size into a buffer as large as the last one's."""
        buffer = self._server.buffers.take(self._expected)
        try:
            count = self._recv_into(memoryview(buffer)[: min(self._expected, self._server.most_to_receive())])
        except BaseException:
            self._server.buffers.give_back(buffer)
            raise
        if count == 0:
            self._server.buffers.give_back(buffer)
            self.close("the client closed it", logging.DEBUG)
            return
        limits = self.login_limits or self._server.limits
        if count > 4 and limits.queued_max_bytes <= 0:
            end = 4 + _read_size(buffer)[0]
            if count < end <= len(buffer) and end - 4 <= limits.small_request_max_bytes:
                self.last_active = monotonic()
                self._frame, self._frame_start, self._frame_filled, self._frame_end = buffer, 4, count, end
                return
            if count == end and end - 4 <= limits.small_request_max_bytes and self._waits_for_turn(buffer, 4, end):
                return
            self._expected = end if self._server.scratch.size < end <= LARGEST_EXPECTED else 0
        self._consume(buffer, count)
        self._server.buffers.give_back(buffer)

    def _fill_frame(self, frame: Buffer) -> None:
        """Receive straight into the frame's own buffer; serve it when it is complete."""
        end = min(self._frame_end, self._frame_filled + self._server.most_to_receive())
        count = self._recv_into(memoryview(frame)[self._frame_filled : end])
        if count == 0:
            there, wanted = (place - self._frame_start for place in (self._frame_filled, self._frame_end))
            self.close(f"the client closed it after {there} of {wanted} bytes of a frame")
            return
        self.last_active = monotonic()
        self._frame_filled += count
        if self._frame_filled == self._frame_end:
            self._frame, self._in_work = None, frame
            if self._waits_for_turn(frame, self._frame_start, self._frame_end):
                return
            if self._serve(memoryview(frame)[self._frame_start : self._frame_end]):
                self._release()

    def _consume(self, buffer: Buffer, end: int) -> Buffer | None:
        """Serve the frames that lie complete in buffer[:end]; keep what is left over.

        Returns the buffer of a frame that is to be filled.
        """
        start = 0
        limited = self._server.limits.queued_max_bytes > 0
        while end - start >= 4:
            limits = self.login_limits or self._server.limits  # others once the frame before has logged in
            (size,) = _read_size(buffer, start)
            if not 0 <= size <= limits.small_request_max_bytes:
                if 0 <= size <= limits.request_max_bytes and end - start < 6:
                    break
                if self._refuses_size(buffer, start, size):
                    return None
            is_whole = end - start >= 4 + size
            if is_whole and (start or size > LARGE_FRAME) and self._has_to_wait(is_first=start == 0):
                self._rest = bytearray(buffer[start:end])
                self._resume_later()
                return None
            if limited and not self._reserve(size):
                self._rest = bytearray(buffer[start:end])
                return None
            frame_end = start + 4 + size
            if frame_end > end:
                return self._begin_frame(buffer, start + 4, end, size)
            position = start + 4
            start = frame_end
            if not self._serve(memoryview(buffer)[position:frame_end]):
                if start < end and self.state is not CLOSED:
                    self._rest = bytearray(buffer[start:end])
                return None
            if limited:
                self._release()
        if start < end:
            self._partial = bytearray(buffer[start:end])
        return None

    def _refuses_size(self, buffer: Buffer, start: int, size: int) -> bool:
        """Whether the connection ends for a frame that is not small, unless its API may be as large."""
        limits = self.login_limits or self._server.limits
        key = "socket.request.max.bytes" if self.login_limits is None else "sasl.server.max.receive.size"
        reason = refusal_of_size(bytes(buffer[start : start + 8]), size, limits, self.takes_brokers, key)
        if reason and self.login_limits is None:
            self.close(reason, logging.WARNING)
        elif reason:
            cast("Authentication", self._dispatch).refuse_size(self, reason)
        return bool(reason)

    def _begin_frame(self, buffer: Buffer, start: int, end: int, size: int) -> Buffer | None:
        try:
            frame = self._server.buffers.take(size)
        except (MemoryError, OSError) as error:
            self.close(f"no memory for a frame of {size} bytes: {error}", logging.WARNING)
            return None
        self.last_active = monotonic()
        frame[: end - start] = buffer[start:end]
        self._frame, self._frame_start, self._frame_filled, self._frame_end = frame, 0, end - start, size
        self._expected = min(size + 4, LARGEST_EXPECTED) if size > self._server.scratch.size else 0
        return frame

    def _reserve(self, size: int) -> bool:
        """Count the frame as in flight; False when the broker holds as much as it may (it calls `resume` later).

        One of a login is not counted: others would wait for what strangers announce and do not send.
        """
        if self._reserved or self.login_limits is not None:
            return True
        if not self._server.reserve(self, size):
            return False
        self._reserved = size
        return True

    def _release(self) -> None:
        """The request is done with: its memory may serve others."""
        if self._in_work is not None:
            self._server.buffers.give_back(self._in_work)
            self._in_work = None
        if self._reserved:
            size, self._reserved = self._reserved, 0
            self._server.release(size)

    # -- one request --------------------------------------------------------------------------------------------------

    def _serve(self, frame: memoryview) -> bool:
        """Have the frame handled. True when the connection is ready for the next one."""
        if self._late and not self._may_overtake(frame):
            self._held, self.state = frame, WORKING
            return False
        self.last_active = monotonic()
        try:
            answer = self._dispatch(self, frame)
        except CloseConnection as error:
            self.close(str(error), logging.WARNING)
            return False
        if answer is PENDING:
            self.state, self._pending = WORKING, True
            return False
        if answer is None:
            return self.state is READING and not self._is_mute()
        if type(answer) is LateAnswer:
            self._late_key = bytes(frame[:2])
        elif not self._late:
            return self._send(answer) and not self._is_mute()
        else:
            answer, self.timing = LateAnswer(answer, self.timing), None
        self._late.append(answer)
        return not self._is_mute()

    def mute(self, seconds: float) -> None:
        """Read nothing for a while."""
        if self.state is not CLOSED:
            self._muting = self._muting or Muting(self._server.loop, self._go_on)
            self._muting.extend(seconds)

    def _is_mute(self) -> bool:
        """Whether it is not read for a while; then what was in work holds no memory meanwhile."""
        if self._muting is None or not self._muting.is_on():
            return False
        self.state = WORKING
        if self._held is None and self._frame is None:
            self._release()
        return True

    def _waits_for_turn(self, buffer: Buffer, start: int, end: int) -> bool:
        """Keep a frame, if it is large, alone in its buffer and may not be served in this turn of the loop."""
        if end - start <= LARGE_FRAME or not self._has_to_wait():
            return False
        self.last_active = monotonic()
        self._in_work, self._held, self.state = buffer, memoryview(buffer)[start:end], WORKING
        self._server.loop.call_soon(self._serve_in_turn)
        return True

    def _has_to_wait(self, is_first: bool = True) -> bool:
        """Whether a frame has to; for the first of a read who has not logged in has waited already."""
        if self.login_limits is None:
            return self._server.turn_is_over(monotonic())
        return not is_first and not self._server.strangers_of(self.listener).have_time()

    def _serve_in_turn(self) -> None:
        """Serve the large frame that waits for its turn, or let it wait on."""
        if self.state is CLOSED or self._held is None:
            return
        if self._server.turn_is_over(monotonic()):
            self._server.loop.call_soon(self._serve_in_turn)
        else:
            self._go_on()

    def _may_overtake(self, frame: memoryview) -> bool:
        """Only their like is served while late answers are to come, and only so many."""
        return len(self._late) < MOST_LATE_ANSWERS and frame[:2] == self._late_key

    def answer(self, parts: list[Any] | None, timing: Timing | None = None) -> None:
        """Send the answer of the request that dispatch left PENDING (None: it has none), and go on reading."""
        if self.state is CLOSED:
            return
        self._pending = False
        self._cancelled_when_closed = None
        if self._late or not self._out.is_empty:
            if parts is not None:
                self._late.append(LateAnswer(parts, timing))
            self._go_on()
            return
        self.state, self.timing = READING, timing
        if (parts is None or self._send(parts)) and not self._is_mute():
            self.resume()

    def let_overtake(self, ctx: RequestContext) -> None:
        """The Produce in work, which dispatch left PENDING, does nothing but wait from now on: its answer is late."""
        if self.state is not CLOSED and self._pending:
            self._pending = False
            self._late_key = PRODUCE_KEY
            ctx.late = LateAnswer()
            self._late.append(ctx.late)
            self._go_on()

    def cancel_when_closed(self, answer: Cancellable | None) -> None:
        """The request in work does nothing but wait: it ends with the connection. None: no longer."""
        self._cancelled_when_closed = answer
        if self.state is CLOSED and answer is not None:
            answer.cancel()

    def answer_late(self, late: LateAnswer, parts: list[Any] | None) -> None:
        """Give a late answer (None: it has none); it goes out when all before it are out."""
        if self.state is CLOSED:
            return
        late.parts, late.is_ready = parts, True
        if len(self._late) == 1:
            self._go_on()
        elif self._late[0].is_ready and not self._late_scheduled:
            # Its neighbours are most likely ready in this turn of the loop too: they leave together.
            self._late_scheduled = True
            self._server.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Send the late answers whose turn it is, then serve what waited for that."""
        self._late_scheduled = False
        if self.state is CLOSED or not self._out.is_empty:
            return
        parts: list[Any] = []
        while self._late and self._late[0].is_ready:
            late = self._late.popleft()
            parts += late.parts or ()
            if late.timing is not None:
                self._finish_timing()
                self.timing = late.timing
        if parts and not self._send(parts):
            return
        held = self._held
        has_to_wait = held is not None and self._late and not self._may_overtake(held)
        if self._pending or has_to_wait or self._is_mute():
            self.state = WORKING
            return
        self._held = None
        self.state = READING
        if held is not None:
            self.received = self.last_active
        is_served = held is None or self._serve(held)
        self.received = 0.0
        if is_served:
            del held
            self.resume()

    def _resume_later(self) -> None:
        """Go on with what is left over in the next turn of the loop, or in one of strangers."""
        if not self._is_resuming:
            self._is_resuming = True
            later = self._server.strangers_of(self.listener).wait if self.login_limits else self._server.loop.call_soon
            later(self._resume_in_turn)

    def _resume_in_turn(self) -> None:
        self._is_resuming = False
        self.resume()

    def resume(self) -> None:
        """The last request is done with: serve what came in meanwhile, and listen again."""
        if self.state is not READING:
            return
        if self._frame is None:  # else it is the next frame's memory that is counted
            self._release()
        if self._rest is not None:
            if len(self._rest) > LARGE_FRAME and self._has_to_wait():  # before it is copied
                self._resume_later()
                return
            rest, self._rest = self._rest, None
            self.received = self.last_active
            self._consume(rest, len(rest))
            self.received = 0.0
        if self.is_paused and self.state is READING and self._rest is None:
            self.is_paused = False
            self._channel.start_reading(self._on_readable)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send(self, parts: list[Any]) -> bool:
        """Send the parts now, as far as the socket takes them. True when all are out."""
        if self.timing is not None:
            self.timing.sending()
        if self._went_out(self._out.send, parts):
            return True
        if self.state is not CLOSED:
            self.state = SENDING
            self._server.unread.waits(self, parts)
            self._server.loop.add_writer(self._channel.fileno(), self._on_writable)
        return False

    def _went_out(self, send: Callable[..., bool], *parts: list[Any]) -> bool:
        """Whether nothing waits for the socket any more; False, too, when the connection had to be closed."""
        try:
            if not send(*parts):
                return False
        except OSError as error:
            self.close(f"sending failed: {error}", logging.ERROR if isinstance(error, Shortened) else logging.DEBUG)
            return False
        if self.timing is not None:
            self._finish_timing()
        return True

    def _finish_timing(self) -> None:
        """What is out was the answer of a request that is timed, or its neighbour's."""
        timing, self.timing = self.timing, None
        if timing is not None:
            timing.sent()

    def _on_writable(self) -> None:
        self.last_active = monotonic()
        if self._went_out(self._out.flush):
            self._server.unread.is_out(self)
            self._server.loop.remove_writer(self._channel.fileno())
            self._go_on()

    # -- the end ------------------------------------------------------------------------------------------------------

    def close_later(self, delay_s: float, parts: list[Any] | None, reason: str, level: int) -> None:
        """Read nothing more; after the delay send the parts (None: nothing) and close."""
        if self.state is not CLOSED:
            self.state, self._pending = WORKING, True
            close = partial(self._close_now, parts, reason, level)
            self._server.loop.call_later(delay_s, self._server.strangers_of(self.listener).serve, close)

    def _close_now(self, parts: list[Any] | None, reason: str, level: int) -> None:
        if parts is not None and self.state is not CLOSED:
            self._send(parts)  # a few bytes on a line where nothing waits: if they do not go out now, they never do
        self.close(reason, level)

    def close_if_left(self) -> bool:
        """Close it if its client has gone and nobody else wants what is in work; whether it is closed."""
        if self._cancelled_when_closed is not None and self._channel.has_left():
            self.close("the client closed it", logging.DEBUG)
        return self.state is CLOSED

    def close(self, reason: str, level: int = logging.INFO) -> None:
        """Close the socket now; what was not sent is lost."""
        if self.state is CLOSED:
            return
        log.log(self._server.level_of_closing(self.host, level), "closing the connection from %r: %s", self, reason)
        self.state = CLOSED
        self._channel.stop_reading()
        self._server.loop.remove_writer(self._channel.fileno())
        self._channel.close()
        self._out.discard()
        self._rest = self._partial = self._held = None
        self._late.clear()
        for each in filter(None, (self._cancelled_when_closed, self._muting)):
            each.cancel()
        self._cancelled_when_closed = self._muting = None
        if self._frame is not None:
            self._server.buffers.give_back(self._frame)
            self._frame = None
        self._release()
        self._server.forget(self)
