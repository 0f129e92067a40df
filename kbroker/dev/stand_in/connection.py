"""A client's line to the stand-in: what has come of a frame, who speaks, what is to be sent (no socket).

frame      length int32, then that many bytes
answer     xid int32, zxid int64, error int32, the answer's fields; none after an error
event      xid -1, zxid int64, 0, type int32, state int32 = 3, path string
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kbroker.dev.stand_in import access, jute
from kbroker.dev.stand_in.operations import READ, Acl, Code, Event, Identity, Refused
from kbroker.dev.stand_in.tree import Client, Session

EVENT_XID = -1
STATE_CONNECTED = 3
LENGTH_BYTES = 4
MAX_QUEUED_BYTES = 64 << 20
"""What a client may leave unread before its connection is closed."""


class Connection:
    """One connection; `on_ready` is told of it when it has something to send, or is to be closed."""

    def __init__(self, on_ready: Callable[[Connection], None]) -> None:
        self._on_ready = on_ready
        self._received = bytearray()
        self._queued: list[bytes] = []
        self._queued_bytes = 0
        self.session: Session | None = None
        self.timeout_ms = 0
        """Of the session, as agreed on for this connection."""
        self.identities: tuple[Identity, ...] = ()
        """What the client has proved to be."""
        self.is_closing = False
        """To be closed once what is queued has been sent; nothing more is read."""

    @property
    def client(self) -> Client:
        """Who asks."""
        return Client(self.session.session_id if self.session is not None else 0, self.identities)

    # --- what comes in ---

    def frames(self, data: bytes, max_bytes: int) -> Iterator[bytes]:
        """Yield the frames that are whole now; one that is announced as larger closes the connection."""
        self._received += data
        start = 0
        while not self.is_closing and len(self._received) - start >= LENGTH_BYTES:
            size = int.from_bytes(self._received[start : start + LENGTH_BYTES], signed=True)
            if not 0 <= size <= max_bytes:
                self.close()
                break
            end = start + LENGTH_BYTES + size
            if len(self._received) < end:
                break
            yield bytes(self._received[start + LENGTH_BYTES : end])
            start = end
        del self._received[:start]

    def peek(self, data: bytes, size: int) -> bytes:
        """Return the first bytes of all that has come and was not a frame yet, `data` the last of it."""
        return bytes((self._received[:size] + data[:size])[:size])

    # --- what goes out ---

    def send(self, data: bytes) -> None:
        """Queue bytes."""
        self._queued.append(data)
        self._queued_bytes += len(data)
        if self._queued_bytes > MAX_QUEUED_BYTES:
            self.take_queued()
            self.is_closing = True
        self._on_ready(self)

    def send_frame(self, *parts: bytes) -> None:
        """Queue a frame."""
        self.send(jute.int32(sum(map(len, parts))) + b"".join(parts))

    def reply(self, xid: int, zxid: int, code: Code, body: bytes = b"") -> None:
        """Answer a request."""
        self.send_frame(jute.int32(xid), jute.int64(zxid), jute.int32(code), body)

    def notify(self, event: Event, acl: tuple[Acl, ...]) -> None:
        """Tell of an event to a node that the client may read."""
        try:
            access.check(acl, READ, self.identities)
        except Refused:
            return
        header = jute.int32(EVENT_XID) + jute.int64(event.zxid) + jute.int32(Code.OK)
        self.send_frame(header, jute.int32(event.type), jute.int32(STATE_CONNECTED), jute.text(event.path))

    def take_queued(self) -> bytes:
        """Return what is to be sent now."""
        data = b"".join(self._queued)
        self._queued.clear()
        self._queued_bytes = 0
        return data

    def close(self) -> None:
        """End it once what is queued has been sent."""
        self.is_closing = True
        self._on_ready(self)
