"""The stand-in's sockets: one thread, one loop; what was committed is on file before anybody hears of it."""

from __future__ import annotations

import selectors
import socket
import time

from kbroker.dev.stand_in.connection import Connection
from kbroker.dev.stand_in.journal import Journal
from kbroker.dev.stand_in.service import Moment, Service

READ_BYTES = 256 << 10
MAX_UNSENT_BYTES = 1 << 20
"""A client that leaves more unread is not read from meanwhile."""
LONGEST_WAIT_S = 1.0
PAUSE_S = 0.05
"""When no connection can be taken, for want of descriptors."""


def present() -> Moment:
    """What the clocks say."""
    return Moment(int(time.time() * 1000), time.monotonic_ns() // 1_000_000)


class Line:
    """A connection with its socket, and the bytes that the socket did not take yet."""

    __slots__ = ("connection", "mask", "socket", "unsent")

    def __init__(self, connection: Connection, client: socket.socket) -> None:
        self.connection = connection
        self.socket = client
        self.unsent = b""
        self.mask = selectors.EVENT_READ


class Server:
    """Serves until `stop`, which may be called by a signal's handler."""

    def __init__(self, service: Service, journal: Journal, listener: socket.socket) -> None:
        self._service = service
        self._journal = journal
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._lines: dict[Connection, Line] = {}
        self._is_stopping = False
        self._woken, self._wake = socket.socketpair()

    def stop(self) -> None:
        """Make `run` return soon."""
        self._is_stopping = True
        try:
            self._wake.send(b"\0")
        except OSError:
            return  # it has ended already

    def run(self) -> None:
        """Serve; the connections are closed at the end."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        try:
            while not self._is_stopping:
                self._turn()
        finally:
            for line in list(self._lines.values()):
                self._close(line)
            self._selector.close()
            for each in (self._listener, self._woken, self._wake):
                each.close()

    def _turn(self) -> None:
        wait_s = (self._service.next_tick_ms() - present().steady_ms) / 1000
        ready = self._selector.select(max(0.0, min(wait_s, LONGEST_WAIT_S)))
        now = present()
        for key, mask in ready:
            line: Line | None = key.data
            if line is not None:
                if mask & selectors.EVENT_READ:
                    self._read(line, now)
                if mask & selectors.EVENT_WRITE and line.connection in self._lines:
                    self._send(line)
            elif key.fileobj is self._listener:
                self._accept()
        self._service.tick(now)
        self._journal.flush()
        for connection in self._service.take_ready():
            if (found := self._lines.get(connection)) is not None:
                self._send(found)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            time.sleep(PAUSE_S)
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = Line(self._service.connect(), client)
        self._lines[line.connection] = line
        self._selector.register(client, line.mask, line)

    def _read(self, line: Line, now: Moment) -> None:
        try:
            data = line.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._service.receive(line.connection, data, now)
        else:
            self._close(line)

    def _send(self, line: Line) -> None:
        data = line.unsent + line.connection.take_queued()
        try:
            sent = line.socket.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(line)
            return
        line.unsent = data[sent:]
        if line.connection.is_closing and not line.unsent:
            self._close(line)
            return
        may_read = len(line.unsent) <= MAX_UNSENT_BYTES and not line.connection.is_closing
        mask = (selectors.EVENT_READ if may_read else 0) | (selectors.EVENT_WRITE if line.unsent else 0)
        if mask != line.mask:
            line.mask = mask
            self._selector.modify(line.socket, mask, line)

    def _close(self, line: Line) -> None:
        del self._lines[line.connection]
        self._service.disconnected(line.connection)
        self._selector.unregister(line.socket)
        line.socket.close()
