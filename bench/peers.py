"""Bare sockets that send what a client may send, and what it should not: many at once, from one thread."""

from __future__ import annotations

import selectors
import socket
import time
from typing import Any

from kbroker.protocol.headers import encode_request
from kbroker.protocol.schema import Message

RECONNECT_S = 0.02


def framed(request: Message, version: int, correlation_id: int = 1) -> bytes:
    """Return a request as it stands on the wire."""
    return b"".join(bytes(part) for part in encode_request(request, version, correlation_id, "load"))  # type: ignore[arg-type]


def connect(port: int, timeout: float = 30) -> socket.socket:
    """Open one connection."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(port: int, request: Message, version: int) -> bytes:
    """Send one request on a connection of its own; return the answer's body, correlation id included."""
    with connect(port, 120) as connection:
        connection.sendall(framed(request, version))
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        answer = bytearray()
        while len(answer) < size:
            answer += connection.recv(min(size - len(answer), 1 << 20))
        return bytes(answer)


class Pump:
    """Sends a payload again and again on each of some connections, and reads whatever comes back.

    in_flight bounds how many payloads wait for an answer on one connection (by the number of answered frames); 0 sends
    as fast as the socket takes it. A connection that the broker closes is opened anew after a short pause.
    """

    def __init__(self, port: int, payloads: list[bytes], in_flight: int = 0, times: int = 0) -> None:
        self.port = port
        self.in_flight = in_flight
        self.times = times
        self.answered = 0
        self.closed = 0
        self._selector = selectors.DefaultSelector()
        self._reopen: list[tuple[float, bytes]] = []
        for payload in payloads:
            self._open(payload)

    def _open(self, payload: bytes) -> None:
        connection = connect(self.port)
        connection.setblocking(False)
        state: dict[str, Any] = {"payload": payload, "view": memoryview(payload), "sent": 0, "seen": 0, "head": b""}
        state["skip"] = 0
        self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, state)

    def run(self, until: float) -> None:
        """Pump until a moment of the monotonic clock, or until every payload was answered as often as wanted."""
        while time.monotonic() < until and not (self.times and self.answered >= self.times):
            for key, events in self._selector.select(0.05):
                try:
                    if events & selectors.EVENT_READ:
                        self._read(key)
                    if events & selectors.EVENT_WRITE:
                        self._write(key)
                except BlockingIOError:
                    continue
                except OSError:
                    self.closed += 1
                    self._selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                    self._reopen.append((time.monotonic() + RECONNECT_S, key.data["payload"]))
            while self._reopen and self._reopen[0][0] < time.monotonic():
                self._open(self._reopen.pop(0)[1])
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _read(self, key: selectors.SelectorKey) -> None:
        state, connection = key.data, key.fileobj
        assert isinstance(connection, socket.socket)
        data = connection.recv(1 << 18)
        if not data:
            raise ConnectionResetError
        if not self.in_flight and not self.times:
            return
        while data:
            if state["skip"]:
                taken = min(state["skip"], len(data))
                state["skip"] -= taken
                data = data[taken:]
                if state["skip"] == 0:
                    state["seen"] += 1
                    self.answered += 1
                continue
            head = state["head"] + data[: 4 - len(state["head"])]
            data = data[4 - len(state["head"]) :]
            state["head"] = b"" if len(head) == 4 else head
            if len(head) == 4:
                state["skip"] = int.from_bytes(head, "big")
        self._selector.modify(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, state)

    def _write(self, key: selectors.SelectorKey) -> None:
        state, connection = key.data, key.fileobj
        assert isinstance(connection, socket.socket)
        size = len(state["payload"])
        if self.in_flight and state["sent"] >= (state["seen"] + self.in_flight) * size:
            self._selector.modify(connection, selectors.EVENT_READ, state)
            return
        place = state["sent"] % size
        state["sent"] += connection.send(state["view"][place : place + (1 << 17)])
