"""A ZooKeeper client that shows every frame in the order in which it came, for comparing servers.

What differs from server to server or run to run is told by names that do not: zxids count from the first one seen,
session ids are the names of their clients, times are left out.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat

INT, HEADER, MULTI_HEADER = struct.Struct("!i"), struct.Struct("!iqi"), struct.Struct("!i?i")
END_OF_MULTI = MULTI_HEADER.pack(-1, True, -1)
PING = -2
NO_PASSWORD = bytes(16)


class World:
    """What the clients of one server have in common."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self.address = host, int(port)
        self.first_zxid = 0
        self.sessions: dict[int, str] = {0: ""}
        self._sockets = contextlib.ExitStack()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exception: object) -> None:
        self._sockets.close()

    def connect(self) -> socket.socket:
        """A connection, which ends with the world at the latest."""
        return self._sockets.enter_context(socket.create_connection(self.address, timeout=20))

    def zxid(self, zxid: int) -> int:
        return zxid - self.first_zxid if zxid > 0 else zxid

    def stat(self, stat: ZnodeStat) -> tuple[Any, ...]:
        zxids = tuple(map(self.zxid, (stat.czxid, stat.mzxid, stat.pzxid)))
        versions = stat.version, stat.cversion, stat.aversion
        return (*zxids, *versions, self.sessions[stat.ephemeralOwner], stat.dataLength, stat.numChildren)


class Raw:
    """A session, and the connection that it speaks through."""

    def __init__(self, world: World, name: str, timeout_ms: int = 30_000) -> None:
        self.world = world
        self.name = name
        self.timeout_ms = timeout_ms
        self.session_id, self.password = 0, NO_PASSWORD
        self.last_zxid = 0
        self._xid = 0
        self.connect()

    def connect(self) -> int:
        """Open a connection, for the session if there is one; the timeout agreed on, 0 when the session is over."""
        self._socket = self.world.connect()
        first = serialization.Connect(0, self.last_zxid, self.timeout_ms, self.session_id, self.password, False)
        self._send(bytes(first.serialize()))
        answer, _ = serialization.Connect.deserialize(self._frame(), 0)
        if answer.time_out:
            self.session_id, self.password = answer.session_id, answer.passwd
            self.world.sessions[self.session_id] = self.name
        return int(answer.time_out)

    def disconnect(self) -> None:
        """Go without a word."""
        self._socket.close()

    def _send(self, body: bytes) -> None:
        self._socket.sendall(INT.pack(len(body)) + body)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError(f"{self.name}: the server hung up")
            parts += part
        return bytes(parts)

    def _frame(self) -> bytes:
        return self._exactly(INT.unpack(self._exactly(4))[0])

    def ask(self, kind: int, body: bytes, read: Callable[[bytes, int], Any] | None = None, xid: int = 0) -> list[Any]:
        """Send a request; everything that came up to its answer: events, then (zxid, error, what was read)."""
        self._xid += 1
        xid = xid or self._xid
        self._send(INT.pack(xid) + INT.pack(kind) + bytes(body))
        told: list[Any] = []
        while True:
            frame = self._frame()
            answered, zxid, error = HEADER.unpack_from(frame)
            self.last_zxid = max(self.last_zxid, zxid)
            if answered == -1:
                event, _ = serialization.Watch.deserialize(frame, HEADER.size)
                told.append(("event", event.type, event.state, event.path, self.world.zxid(zxid)))
                continue
            assert answered == xid, "answers come in the order of the requests"
            if error or read is None:
                assert len(frame) == HEADER.size, "an error has no fields"
            seen_zxid = self.world.zxid(zxid) if kind != 100 else 0
            told.append((seen_zxid, error, read(frame, HEADER.size) if read is not None and not error else None))
            return told

    def events(self) -> list[Any]:
        """What came without being asked for."""
        return self.ask(11, b"", xid=PING)[:-1]

    # --- requests ---

    def simple(self, request: Any) -> list[Any]:
        """One of kazoo's requests."""
        reads = {
            serialization.Create: serialization.Create.deserialize,
            serialization.Create2: self._read_create2,
            serialization.Exists: self._read_stat,
            serialization.SetData: self._read_stat,
            serialization.SetACL: self._read_stat,
            serialization.GetData: self._read_data,
            serialization.GetACL: self._read_acl,
            serialization.GetChildren: lambda data, at: sorted(serialization.GetChildren.deserialize(data, at)),
            serialization.GetChildren2: self._read_children2,
            serialization.Sync: serialization.Sync.deserialize,
        }
        return self.ask(request.type, request.serialize(), reads.get(type(request)))

    def multi(self, operations: Sequence[Any]) -> list[Any]:
        parts = [MULTI_HEADER.pack(each.type, False, -1) + bytes(each.serialize()) for each in operations]
        return self.ask(14, b"".join(parts) + END_OF_MULTI, self._read_multi)

    def multi_read(self, operations: Sequence[Any]) -> list[Any]:
        parts = [MULTI_HEADER.pack(each.type, False, -1) + bytes(each.serialize()) for each in operations]
        return self.ask(22, b"".join(parts) + END_OF_MULTI, self._read_multi)

    def auth(self, scheme: str, credentials: str) -> list[Any]:
        return self.ask(100, serialization.Auth(0, scheme, credentials).serialize(), xid=-4)

    def set_watches(self, *paths: Sequence[str]) -> list[Any]:
        """Three lists of paths (data, exist, children), or five (persistent, recursive)."""
        lists = b"".join(INT.pack(len(each)) + b"".join(map(serialization.write_string, each)) for each in paths)
        kind = 101 if len(paths) == 3 else 105
        return self.ask(kind, struct.pack("!q", self.last_zxid) + lists, xid=-8)

    def about_watches(self, kind: int, path: str, mode: int) -> list[Any]:
        """addWatch (106), removeWatches (18), checkWatches (17)."""
        read = (lambda data, at: INT.unpack_from(data, at)[0]) if kind == 106 else None
        return self.ask(kind, serialization.write_string(path) + INT.pack(mode), read)

    def count(self, path: str) -> list[Any]:
        return self.ask(104, serialization.write_string(path), lambda data, at: INT.unpack_from(data, at)[0])

    def ephemerals(self, prefix: str) -> list[Any]:
        return self.ask(103, serialization.write_string(prefix), lambda data, at: sorted(read_texts(data, at)[0]))

    def close(self) -> list[Any]:
        told = self.ask(-11, b"")
        self._socket.close()
        return told

    # --- answers ---

    def _read_stat(self, data: bytes, at: int) -> Any:
        return self.world.stat(ZnodeStat._make(serialization.stat_struct.unpack_from(data, at)))

    def _read_create2(self, data: bytes, at: int) -> Any:
        path, stat = serialization.Create2.deserialize(data, at)
        return path, self.world.stat(stat)

    def _read_data(self, data: bytes, at: int) -> Any:
        value, stat = serialization.GetData.deserialize(data, at)
        return value, self.world.stat(stat)

    def _read_acl(self, data: bytes, at: int) -> Any:
        acl, stat = serialization.GetACL.deserialize(data, at)
        return acl, self.world.stat(stat)

    def _read_children2(self, data: bytes, at: int) -> Any:
        names, stat = serialization.GetChildren2.deserialize(data, at)
        return sorted(names), self.world.stat(stat)

    def _read_multi(self, data: bytes, at: int) -> Any:
        results: list[Any] = []
        while True:
            kind, is_done, error = MULTI_HEADER.unpack_from(data, at)
            at += MULTI_HEADER.size
            if is_done:
                assert (kind, error, at) == (-1, -1, len(data))
                return results
            value: Any = None
            if kind == -1:
                value, at = INT.unpack_from(data, at)[0], at + 4
            elif kind in (1, 15):
                value, at = serialization.read_string(data, at)
            elif kind == 4:
                value, at = serialization.read_buffer(data, at)
            elif kind == 8:
                names, at = read_texts(data, at)
                value = sorted(names)
            if kind in (15, 5, 4):
                value, at = (value, self._read_stat(data, at)), at + serialization.stat_struct.size
            results.append((kind, error, value))


def read_texts(data: bytes, at: int) -> tuple[list[str], int]:
    count, at = INT.unpack_from(data, at)[0], at + 4
    found = []
    for _ in range(count):
        text, at = serialization.read_string(data, at)
        found.append(text)
    return found, at
