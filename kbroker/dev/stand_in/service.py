"""The stand-in's service: connections' bytes and the time in, answers and events out (no socket, no clock).

    first request    protocol version int32, last zxid seen int64, timeout ms int32, session int64, password, read-only
    its answer       protocol version int32, timeout ms int32, session int64, password, read-only; zeros: it has expired
    every other      xid int32, type int32, the request's fields

The requests of a connection are answered in their order, and a change's events go before the answer to whatever came
after it. `take_ready` names the connections that have something to send: it may go out once what the tree has told its
`on_commit` is safe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kbroker.dev.stand_in import access, jute
from kbroker.dev.stand_in.answers import Unknown, answer
from kbroker.dev.stand_in.connection import LENGTH_BYTES, Connection
from kbroker.dev.stand_in.four_letter_words import WORDS, reply_to
from kbroker.dev.stand_in.jute import Malformed, Reader
from kbroker.dev.stand_in.operations import Code, Refused
from kbroker.dev.stand_in.requests import Kind
from kbroker.dev.stand_in.session_clock import SessionClock
from kbroker.dev.stand_in.tree import Session, Tree

PASSWORD_BYTES = 16
CONTAINER_PAUSE_MS = 60_000


class Moment(NamedTuple):
    """What clocks say, in ms: the wall's for the nodes' stamps, one that never goes back for the sessions."""

    wall_ms: int
    steady_ms: int


class Limits(NamedTuple):
    """What clients may have."""

    min_session_timeout_ms: int = 500
    max_session_timeout_ms: int = 120_000
    max_packet_bytes: int = 4 << 20
    """As jute.maxbuffer: a larger request ends its connection."""


class Service:
    """Sessions, and the connections they speak through at this moment."""

    def __init__(
        self,
        tree: Tree,
        now: Moment,
        new_password: Callable[[], bytes],
        first_session_id: int,
        limits: Limits = Limits(),  # noqa: B008
    ) -> None:
        """Serve the tree; the time of its sessions begins now. Ids of new ones count on from one never used before."""
        self.tree = tree
        self.limits = limits
        self._new_password = new_password
        self._next_session_id = first_session_id
        self._clock = SessionClock()
        self._speaking: dict[int, Connection] = {}
        """Session id -> its connection."""
        self._ready: dict[Connection, None] = {}
        self._containers_at_ms = now.steady_ms + CONTAINER_PAUSE_MS
        self.connections = 0
        for session in tree.sessions.values():
            self._clock.heard_of(session.session_id, session.timeout_ms, now.steady_ms)

    # --- connections ---

    def connect(self) -> Connection:
        """Take a new connection."""
        self.connections += 1
        return Connection(self._is_ready)

    def disconnected(self, connection: Connection) -> None:
        """Forget a connection that is no more; its session lives on for its timeout."""
        self.connections -= 1
        self._ready.pop(connection, None)
        self._let_go(connection)

    def take_ready(self) -> list[Connection]:
        """Return the connections that have something to send, or are to be closed."""
        ready = list(self._ready)
        self._ready.clear()
        return ready

    def _is_ready(self, connection: Connection) -> None:
        self._ready[connection] = None

    def _let_go(self, connection: Connection) -> None:
        self.tree.watches.forget(connection)
        session = connection.session
        if session is not None and self._speaking.get(session.session_id) is connection:
            del self._speaking[session.session_id]

    # --- requests ---

    def receive(self, connection: Connection, data: bytes, now: Moment) -> None:
        """Take what a connection has sent: it may end anywhere."""
        if connection.session is None and self._is_a_word(connection, data):
            return
        for frame in connection.frames(data, self.limits.max_packet_bytes):
            try:
                if connection.session is None:
                    self._first(connection, Reader(frame), now)
                else:
                    self._request(connection, connection.session, Reader(frame), now)
            except Malformed:
                connection.close()  # not even a header

    def _is_a_word(self, connection: Connection, data: bytes) -> bool:
        word = connection.peek(data, LENGTH_BYTES)
        if word not in WORDS:
            return False
        connection.send(reply_to(word, self.tree, self.connections).encode())
        connection.close()
        return True

    def _first(self, connection: Connection, reader: Reader, now: Moment) -> None:
        reader.int32()
        last_zxid, wanted_ms, session_id, password = reader.int64(), reader.int32(), reader.int64(), reader.buffer()
        tells_read_only = not reader.is_at_end
        if last_zxid > self.tree.zxid:
            connection.close()  # it has seen the future of this folder, which was lost: another server may know it
            return
        timeout_ms = min(max(wanted_ms, self.limits.min_session_timeout_ms), self.limits.max_session_timeout_ms)
        if session_id == 0:
            session = self.tree.open_session(self._next_session_id, timeout_ms, self._new_password(), now.wall_ms)
            self._next_session_id += 1
        else:
            found = self.tree.sessions.get(session_id)
            if found is None or found.password != password:
                self._answer_first(connection, 0, 0, bytes(PASSWORD_BYTES), tells_read_only)
                connection.close()
                return
            session = found
            before = self._speaking.get(session_id)
            if before is not None:
                self._let_go(before)
                before.close()
        connection.session, connection.timeout_ms = session, timeout_ms
        self._speaking[session.session_id] = connection
        self._clock.heard_of(session.session_id, timeout_ms, now.steady_ms)
        self._answer_first(connection, timeout_ms, session.session_id, session.password, tells_read_only)

    def _answer_first(
        self, connection: Connection, timeout_ms: int, session_id: int, password: bytes, tells_read_only: bool
    ) -> None:
        answer = jute.int32(0) + jute.int32(timeout_ms) + jute.int64(session_id) + jute.buffer(password)
        connection.send_frame(answer, b"\0" if tells_read_only else b"")

    def _request(self, connection: Connection, session: Session, reader: Reader, now: Moment) -> None:
        xid, kind = reader.int32(), reader.int32()
        if session.session_id not in self.tree.sessions:
            connection.close()
            return
        self._clock.heard_of(session.session_id, connection.timeout_ms, now.steady_ms)
        code, body = Code.OK, b""
        try:
            if kind == Kind.AUTH:
                self._authenticate(connection, reader)
            elif kind == Kind.CLOSE_SESSION:
                self._end(session.session_id, now)
            else:
                body = answer(self.tree, connection, kind, reader, now.wall_ms)
        except Refused as refused:
            code = refused.code
        except Malformed:
            code = Code.MARSHALLING_ERROR
        except Unknown:
            code = Code.UNIMPLEMENTED
            connection.close()
        connection.reply(xid, self.tree.zxid, code, body)
        if kind == Kind.CLOSE_SESSION or code is Code.AUTH_FAILED:
            connection.close()

    def _authenticate(self, connection: Connection, reader: Reader) -> None:
        reader.int32()
        scheme, credentials = reader.text(), reader.buffer()
        identity = access.authenticated(scheme, credentials or b"")
        if identity not in connection.identities:
            connection.identities += (identity,)

    # --- time ---

    def tick(self, now: Moment) -> None:
        """End the sessions that nobody hears of, remove empty containers. To be called when `next_tick_ms` has come."""
        for session_id in self._clock.expired(now.steady_ms):
            connection = self._speaking.get(session_id)
            self._end(session_id, now)
            if connection is not None:
                connection.close()
        if now.steady_ms >= self._containers_at_ms:
            self._containers_at_ms = now.steady_ms + CONTAINER_PAUSE_MS
            self.tree.remove_empty_containers(now.wall_ms)

    def next_tick_ms(self) -> int:
        """Return when, by the steady clock, `tick` may have something to do."""
        expiry = self._clock.next_look_ms()
        return self._containers_at_ms if expiry is None else min(expiry, self._containers_at_ms)

    def _end(self, session_id: int, now: Moment) -> None:
        self._clock.forget(session_id)
        self.tree.close_session(session_id, now.wall_ms)
        self._speaking.pop(session_id, None)
