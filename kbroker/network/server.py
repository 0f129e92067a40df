"""Listeners: bytes -> frames -> dispatch -> bytes, answers in request order, on bare non-blocking sockets.

The sockets hang on the event loop's selector directly (no asyncio transport): a request that can be answered at once
costs one recv, one dispatch and one send. What one connection does is in connection.py; here are the listeners, the
limits over all connections, and the end of idle ones.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import logging
import resource
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from time import monotonic
from typing import Any

from kbroker.network.admission import Admission
from kbroker.network.authentication import Authentication, LoginCounts, SaslListener
from kbroker.network.buffers import BufferPool, Scratch
from kbroker.network.channel import Channel, PlainChannel
from kbroker.network.connection import Connection
from kbroker.network.departures import Departures
from kbroker.network.handshakes import Handshakes
from kbroker.network.limits import LARGE_FRAME, ServerLimits
from kbroker.network.strangers import MOST_WAITING, Strangers
from kbroker.network.tls_listeners import TlsListener
from kbroker.network.unread import Unread
from kbroker.protocol.config_def import ConfigError
from kbroker.security.limited_lines import LimitedLines
from kbroker.security.security_protocol import SecurityProtocol

log = logging.getLogger(__name__)

Dispatch = Callable[[Connection, memoryview], Any]
"""(connection, frame without its size) -> the answer's parts (size first), None for no answer, or dispatch.PENDING, and
then connection.answer(parts) later; raises dispatch.CloseConnection. The frame is writable; whoever keeps a slice of
it keeps its memory."""

ACCEPTS_AT_ONCE = 64
ACCEPTS_S = 0.001
"""For how long, and how many at most, new connections are accepted in one turn of the event loop."""
TURN_S = 0.004
"""For how long small frames are cut from buffers before the event loop looks who else has come."""
ACCEPT_PAUSE_S = 0.5
LONGEST_LOGIN_S = 30.0
"""Whoever has not logged in by then has held a place for long enough."""
FULL_LINE_PAUSE_S = 10.0
MOST_HELD = 1000
CLOSED_EACH, CLOSED_OF_ALL = 100, 500
"""Lines about connections that are closed, for one address and for all, in ten seconds."""
CLOSED_PER_TURN = 100
LAST_LOOKS, LOOK_PAUSE_S = 100, 0.02
"""How often, and when, it is looked whether a connection of a listener that has gone has its last answer."""
LARGEST_RESERVE = 4096
SMALLEST_RESERVE = 64
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class Listener:
    """One socket to listen on; host "" means every address."""

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


class Server:
    """All listeners of a broker.

    server = Server(dispatch, limits)
    server.bind([Listener("PLAINTEXT", "127.0.0.1", 0)])    # connections queue in the kernel from here on
    server.start()                                          # and are accepted from here on
    await server.stop()
    """

    def __init__(
        self, dispatch: Dispatch, limits: ServerLimits | None = None, ip_rates: Mapping[str, float] | None = None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.dispatch = dispatch
        self.limits = limits or ServerLimits()
        self.buffers = BufferPool()
        self.unread = Unread(self.loop.call_later)
        self.departures = Departures(self.loop.call_later)
        self.scratch = Scratch()
        self.connections: dict[Connection, None] = {}
        """In the order in which they came."""
        self.tls: dict[str, TlsListener] = {}
        """What the listeners with TLS shake hands with, by their names; others may take their places at any time."""
        self._handshakes: dict[bool, Handshakes] = {}
        """Under True those on the brokers' own listener, whom others do not keep waiting."""
        self.ports: dict[str, int] = {}
        """Listener name -> the port really bound (port 0 picks one)."""
        self.bytes_in_flight = 0
        self.sasl: dict[str, SaslListener] = {}
        """Listeners whose clients log in first, and how; set before `start`."""
        self._listeners: dict[str, Listener] = {}
        self.accepted: Counter[str] = Counter()
        """Listener name -> connections that came in."""
        self.closed: Counter[str] = Counter()
        """Those of them that have gone."""
        self.logins: defaultdict[str, LoginCounts] = defaultdict(LoginCounts)
        """By listener."""
        self._sockets: dict[str, socket.socket] = {}
        self.strangers = Strangers(self.loop)
        self._brokers_strangers = Strangers(self.loop)
        """Those on the brokers' own listener, whom others do not keep waiting."""
        self._logging_in: dict[Connection, tuple[float, Authentication]] = {}
        """Since when; in that order."""
        self._admission = Admission(self.limits, ip_rates)
        self._held: set[socket.socket] = set()
        """Of addresses that connect too often: unserved, and soon closed."""
        self._descriptors = most_descriptors()
        self._next_full_line = 0.0
        self._refused = LimitedLines(log, "refused connections")
        self._closed = LimitedLines(log, "closed connections", each=CLOSED_EACH, most=CLOSED_OF_ALL)
        self._waiting_for_memory: dict[Connection, None] = {}
        self._paused_listeners: set[str] = set()
        self._turn_ends = 0.0
        """When this turn's time is up; 0 while nobody has asked in it."""
        self._accept_failed = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._accepting = False
        self.is_stopped = False
        """Whether it listens nowhere any more, and will not."""

    # -- listeners ----------------------------------------------------------------------------------------------------

    def bind(self, listeners: Sequence[Listener]) -> None:
        """Bind and listen; raises OSError whose text names the listener and its address."""
        for listener in listeners:
            try:
                sock = bound(listener, self.limits)
            except OSError:
                self._close_sockets()
                raise
            self.add(listener, sock)

    @property
    def listeners(self) -> list[Listener]:
        """Those there are."""
        return list(self._listeners.values())

    def add(self, listener: Listener, sock: socket.socket) -> None:
        """Take a socket that is bound; from `start` on its clients are served.

        Raises ConfigError then where there is not what they are to be let in with.
        """
        if self._accepting:
            try:
                self._check_protected(listener)
            except ConfigError:
                sock.close()
                raise
        name = listener.name
        self._listeners[name] = listener
        self._sockets[name] = sock
        self.ports[name] = sock.getsockname()[1]
        if self._accepting:
            self._resume_accepting(name)

    def _check_protected(self, listener: Listener) -> None:
        name, protocol = listener.name, listener.security_protocol
        if protocol.has_tls and name not in self.tls:
            raise ConfigError(f"listener {name} is not served: it has no TLS")
        if protocol.has_sasl and name not in self.sasl:
            raise ConfigError(f"listener {name} is not served: it has no logins")

    def remove(self, name: str) -> None:
        """Close a listener, and its connections as soon as the answers are out on which their clients wait."""
        sock = self._sockets.pop(name)
        del self._listeners[name], self.ports[name]
        self._paused_listeners.discard(name)
        self._accept_failed = False  # those that still cannot accept find out by themselves
        self.loop.remove_reader(sock.fileno())
        sock.close()
        self._close_gone([each for each in self.connections if each.listener == name])

    def _close_gone(self, connections: list[Connection], looks: int = LAST_LOOKS) -> None:
        """Close some in each turn; who waits for an answer may do so for a while."""
        waiting = [each for each in connections[:CLOSED_PER_TURN] if looks and not each.is_idle]
        for connection in connections[:CLOSED_PER_TURN]:
            if connection not in waiting:
                connection.close("its listener is no more")
        if rest := connections[CLOSED_PER_TURN:]:
            self.loop.call_soon(self._close_gone, rest, looks)
        if waiting:
            self.loop.call_later(LOOK_PAUSE_S, self._close_gone, waiting, looks - 1)

    def start(self) -> None:
        """Begin to accept; raises ConfigError where a listener has not what its clients are to be let in with."""
        for listener in self.listeners:
            self._check_protected(listener)
        self._accepting = True
        for name in self._sockets:
            self._resume_accepting(name)
        self._schedule_idle_check()

    def _accept(self, name: str) -> None:
        sock = self._sockets[name]
        ends_at = monotonic() + ACCEPTS_S
        for _ in range(ACCEPTS_AT_ONCE):
            now = monotonic()
            pause_s = self._admission.pause_s(name, now)
            if pause_s:
                self._wait(name, pause_s)
                return
            if now >= ends_at or (name in self.sasl and self.strangers_of(name).waiting > MOST_WAITING):
                return
            try:
                client, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    raise
                self._wait_for_resources(name, f"{error.strerror}")
                return
            if client.fileno() >= self._descriptors and not self._admission.is_privileged(name):
                client.close()
                self._wait_for_resources(
                    name, f"{self._descriptors} files and connections are open, the rest is for the logs: see ulimit -n"
                )
                return
            self._accept_failed = False
            held_s = self._admission.accepted(name, plain_address(address[0]), now)
            if held_s:
                self._hold(client, held_s)
            else:
                self._admit(client, name, address)

    def _hold(self, client: socket.socket, held_s: float) -> None:
        """An address connects too often: closed at once, it would only be there again sooner."""
        if len(self._held) >= MOST_HELD:
            client.close()
            return
        self._held.add(client)
        self.loop.call_later(held_s, self._close_held, client)

    def _close_held(self, client: socket.socket) -> None:
        self._held.discard(client)
        client.close()

    def change_limits(self, limits: ServerLimits) -> None:
        """These are the limits from now on: whoever waits may have room now, or others have to go."""
        self.limits = self._admission.limits = limits
        surplus = self._admission.total - limits.max_connections
        if surplus > 0:
            self._close_some(self._idlest(surplus))
        for name in list(self._paused_listeners):
            self._resume_accepting(name)

    def _wait(self, name: str, pause_s: float) -> None:
        """Leave further connections in the listener's queue, for so long or until one has gone."""
        self._pause_accepting(name)
        if pause_s < inf:
            self.loop.call_later(pause_s, self._resume_accepting, name)
        elif monotonic() >= self._next_full_line:
            self._next_full_line = monotonic() + FULL_LINE_PAUSE_S
            log.warning("%d connections, as many as allowed: further ones wait on %s", self._admission.total, name)

    def _wait_for_resources(self, name: str, reason: str) -> None:
        if not self._accept_failed:
            self._accept_failed = True
            log.error("cannot accept on %s: %s; trying again every %s s", name, reason, ACCEPT_PAUSE_S)
        self._pause_accepting(name)
        self.loop.call_later(ACCEPT_PAUSE_S, self._resume_accepting, name)

    def _admit(self, client: socket.socket, name: str, address: Any) -> None:
        """Make a Connection of an accepted socket, or close it when its address has too many."""
        host = plain_address(address[0])
        refusal = self._admission.refusal(host)
        if refusal:
            level = self._refused.level(host, logging.INFO)
            log.log(level, "refusing a connection from %s on %s: %s", host, name, refusal)
            client.close()
            return
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self.limits.send_buffer_bytes > 0:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer_bytes)
        except OSError as error:
            log.debug("a connection from %s was gone at once: %s", host, error)
            client.close()
            return
        self.accepted[name] += 1
        there_is_room = self._admission.enter(name, host)
        listener, port = self._listeners[name], address[1]
        if listener.security_protocol.has_tls:
            self._shake_hands(client, listener, host, port)
        else:
            self._connect(PlainChannel(client, self.loop), listener, host, port)
        if not there_is_room:
            self._make_room("its place is needed for another broker")

    def _connect(self, channel: Channel, listener: Listener, host: str, port: int) -> Connection:
        """Serve whoever it is, after a login where the listener wants one."""
        connection = Connection(self, channel, listener, host, port)
        self.connections[connection] = None
        sasl = self.sasl.get(listener.name)
        if sasl is not None:
            name = listener.name
            login = Authentication(sasl, self.dispatch, self.strangers_of(name), self.logins[name])
            self._logging_in[connection] = monotonic(), login
            connection.log_in_first(login, sasl.limits(self.limits))
        elif listener.security_protocol.has_sasl:
            connection.close("its listener has no logins")
        return connection

    def strangers_of(self, listener: str) -> Strangers:
        """Return with whom those wait who have not logged in on a listener yet."""
        return self._brokers_strangers if self._is_of_brokers(listener) else self.strangers

    def _is_of_brokers(self, listener: str) -> bool:
        return self._admission.is_privileged(listener) or listener in (self.limits.broker_listeners or ())

    def handshakes_on(self, listener: str) -> Handshakes:
        """Return those among which a listener's are."""
        of_brokers = self._is_of_brokers(listener)
        if of_brokers not in self._handshakes:
            self._handshakes[of_brokers] = Handshakes(self.loop)
        return self._handshakes[of_brokers]

    def _shake_hands(self, client: socket.socket, listener: Listener, host: str, port: int) -> None:
        """Make a Connection once there is TLS between client and broker."""

        def connect(channel: Channel, principal: str) -> None:
            connection = self._connect(channel, listener, host, port)
            connection.principal = principal
            if not listener.security_protocol.has_sasl:
                self.logins[listener.name].succeeded += 1
            if self._listeners.get(listener.name) is not listener:
                connection.close("its listener is no more")

        def failed(is_refusal: bool) -> None:
            self.logins[listener.name].failed += is_refusal
            self._leave(listener.name, host)

        who = f"{host}:{port} on {listener.name}"
        self.handshakes_on(listener.name).begin(client, self.tls[listener.name], who, connect, failed)

    def level_of_closing(self, host: str, level: int) -> int:
        """Return the level of the line that says why a connection is closed: strangers fill no log with them."""
        return self._closed.level(host, level) if logging.INFO <= level <= logging.WARNING else level

    def _make_room(self, why: str) -> None:
        """There are more than max.connections: the client that has been silent for longest goes, as in Kafka."""
        for connection in self._idlest(1):
            connection.close(why)

    def _idlest(self, count: int) -> list[Connection]:
        clients = [each for each in self.connections if not self._admission.is_privileged(each.listener)]
        return heapq.nsmallest(count, clients, key=attrgetter("last_active"))

    def _close_some(self, connections: list[Connection]) -> None:
        """Close them, some in each turn of the loop."""
        for connection in connections[:CLOSED_PER_TURN]:
            connection.close("its place was taken away: max.connections is lower now")
        if len(connections) > CLOSED_PER_TURN:
            self.loop.call_soon(self._close_some, connections[CLOSED_PER_TURN:])

    def _pause_accepting(self, name: str) -> None:
        self._paused_listeners.add(name)
        self.loop.remove_reader(self._sockets[name].fileno())

    def _resume_accepting(self, name: str) -> None:
        self._paused_listeners.discard(name)
        sock = self._sockets.get(name)
        if self._accepting and sock is not None:
            self.loop.add_reader(sock.fileno(), self._accept, name)

    def forget(self, connection: Connection) -> None:
        """Called by a connection that has closed itself."""
        self.unread.is_out(connection)
        self.connections.pop(connection, None)
        self._logging_in.pop(connection, None)
        self._leave(connection.listener, connection.host)

    def _leave(self, listener: str, host: str) -> None:
        """There is room for one more."""
        self.closed[listener] += 1
        self._admission.leave(listener, host)
        if self._paused_listeners and not self._accept_failed:
            for name in list(self._paused_listeners):
                self._resume_accepting(name)

    # -- turns of the event loop --------------------------------------------------------------------------------------

    def turn_is_over(self, now: float) -> bool:
        """Whether connections with further frames in their buffers have had their time in this turn of the loop."""
        if self._turn_ends:
            return now >= self._turn_ends
        self._turn_ends = now + TURN_S
        self.loop.call_soon(self._begin_turn)
        return False

    def most_to_receive(self) -> int:
        """How many bytes of its large frame a connection may take from its socket now: when this turn has had its time
        little, but something, so that nobody is overtaken for ever.

        A socket may hold megabytes, and memory that is touched for the first time takes a millisecond each.
        """
        return LARGE_FRAME if self.turn_is_over(monotonic()) else self.limits.request_max_bytes

    def _begin_turn(self) -> None:
        self._turn_ends = 0.0

    @property
    def waiting(self) -> int:
        """Requests that wait for memory, and steps of logins that wait for their turn."""
        return len(self._waiting_for_memory) + self.strangers.waiting + self._brokers_strangers.waiting

    # -- memory of requests in work -----------------------------------------------------------------------------------

    def reserve(self, connection: Connection, size: int) -> bool:
        """Count a frame of `size` bytes as in flight; False when the limit is reached (the connection is resumed
        later).
        """
        if self.bytes_in_flight >= self.limits.queued_max_bytes > 0:
            self._waiting_for_memory[connection] = None
            return False
        self.bytes_in_flight += size
        return True

    def release(self, size: int) -> None:
        """A request is done with; whoever waited for memory may read on."""
        self.bytes_in_flight -= size
        if self._waiting_for_memory:
            self.loop.call_soon(self._resume_waiting)

    def _resume_waiting(self) -> None:
        while self._waiting_for_memory and self.bytes_in_flight < self.limits.queued_max_bytes:
            connection = next(iter(self._waiting_for_memory))
            del self._waiting_for_memory[connection]
            connection.resume()

    # -- idle connections ---------------------------------------------------------------------------------------------

    def _schedule_idle_check(self) -> None:
        idle_ms = self.limits.max_idle_ms
        longest = LONGEST_LOGIN_S / 3
        period = min(max(idle_ms / 4000, 0.02), longest) if idle_ms >= 0 else longest
        self._idle_timer = self.loop.call_later(period, self._close_idle)

    def _close_idle(self) -> None:
        """Close connections on which nothing moved for too long; one that waits for its answer is not idle."""
        self._end_long_logins(monotonic() - LONGEST_LOGIN_S)
        if self.limits.max_idle_ms >= 0:
            oldest = monotonic() - self.limits.max_idle_ms / 1000
            for connection in [c for c in self.connections if c.last_active < oldest and not c.is_waiting]:
                connection.close(f"idle for more than connections.max.idle.ms={self.limits.max_idle_ms}", logging.DEBUG)
        if not self.connections:
            self.buffers.trim()
        self._schedule_idle_check()

    def _end_long_logins(self, begun_before: float) -> None:
        while self._logging_in:
            connection, (since, login) = next(iter(self._logging_in.items()))
            if since > begun_before:
                return
            del self._logging_in[connection]
            if not login.is_known:
                connection.close(f"it has not logged in within {LONGEST_LOGIN_S:g} s")

    # -- the end ------------------------------------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """Close the listening sockets."""
        self._accepting, self.is_stopped = False, True
        self._close_sockets()
        for client in list(self._held):
            self._close_held(client)
        for each in self._handshakes.values():
            each.close()
        self._handshakes.clear()

    async def stop(self, drain_timeout: float = 5.0) -> None:
        """Stop accepting, let requests in work finish and their answers go out, close every connection."""
        self.stop_accepting()
        deadline = monotonic() + drain_timeout
        for connection in [c for c in self.connections if c.is_idle]:
            connection.close("the broker stops", logging.DEBUG)
        while self.connections and monotonic() < deadline:
            await asyncio.sleep(0.01)
            for connection in [c for c in self.connections if c.is_idle]:
                connection.close("the broker stops", logging.DEBUG)
        for connection in list(self.connections):
            connection.close("the broker stops before its answer was out")
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _close_sockets(self) -> None:
        for sock in self._sockets.values():
            if self._accepting is False:
                self.loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()


def bound(listener: Listener, limits: ServerLimits) -> socket.socket:
    """Return a socket that listens; raises OSError whose text names the listener and its address."""
    try:
        return open_socket(listener, limits)
    except UnicodeError as error:
        text = f"cannot listen on {listener.name}://{listener.host}:{listener.port}: no host has such a name"
        raise OSError(errno.EINVAL, text) from error
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason = "the port is in use: end what listens there, or choose another in listeners"
        text = f"cannot listen on {listener.name}://{listener.host}:{listener.port}: {reason}"
        raise OSError(error.errno, text) from error


def open_socket(listener: Listener, limits: ServerLimits) -> socket.socket:
    """Return a listening, non-blocking socket; with no host, or `::`, it listens on every address, IPv6 and IPv4."""
    both = socket.has_dualstack_ipv6()
    host = listener.host or ("::" if both else "0.0.0.0")
    found = socket.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, address = found[0][0], found[0][4]
    takes_both = both and address[0] == "::"
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if takes_both else 1)
        if limits.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(limits.backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def most_descriptors() -> int:
    """Return the number of descriptors beyond which no client is accepted.

    The system gives the lowest free number, so a new connection's number tells how many are in use. What lies above
    is left to the logs: without a descriptor no segment can be rolled and no checkpoint written, which would cost the
    log directory.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return (1 << 31) - 1
    return limit - max(SMALLEST_RESERVE, min(limit // 8, LARGEST_RESERVE))


def plain_address(host: str) -> str:
    """Return an IPv4 address as such when it came through an IPv6 socket."""
    return host.removeprefix("::ffff:") if host.startswith("::ffff:") and "." in host else host
