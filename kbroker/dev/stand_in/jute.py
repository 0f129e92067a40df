"""ZooKeeper's encoding, jute: big-endian numbers, strings and buffers after their length, -1 for null (pure).

What is read comes from anybody: every length is checked before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kbroker.dev.stand_in.operations import Acl, Stat

_INT = struct.Struct("!i")
_LONG = struct.Struct("!q")
_STAT = struct.Struct("!qqqqiiiqiiq")
NULL = b"\xff\xff\xff\xff"


class Malformed(Exception):
    """The bytes are not what they should be."""


class Reader:
    """Reads one message from its beginning to its end."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self.position = position

    @property
    def is_at_end(self) -> bool:
        """Whether everything has been read."""
        return self.position >= len(self._data)

    def take(self, size: int) -> bytes:
        """Read so many bytes. Raises Malformed."""
        end = self.position + size
        if end > len(self._data):
            raise Malformed(f"{size} bytes are wanted, {len(self._data) - self.position} are left")
        part = self._data[self.position : end]
        self.position = end
        return part

    def int32(self) -> int:
        """Read an int32."""
        number: int = _INT.unpack(self.take(4))[0]
        return number

    def int64(self) -> int:
        """Read an int64."""
        number: int = _LONG.unpack(self.take(8))[0]
        return number

    def boolean(self) -> bool:
        """Read a boolean."""
        return self.take(1) != b"\0"

    def buffer(self) -> bytes | None:
        """Read bytes, or null."""
        size = self.int32()
        if size < -1:
            raise Malformed(f"a length of {size}")
        return None if size < 0 else bytes(self.take(size))

    def text(self) -> str:
        """Read a string; null is empty."""
        try:
            return (self.buffer() or b"").decode()
        except UnicodeDecodeError:
            raise Malformed("a string that is not UTF-8") from None

    def texts(self) -> list[str]:
        """Read strings."""
        return [self.text() for _ in range(self.int32())]

    def acl(self) -> tuple[Acl, ...]:
        """Read an ACL."""
        return tuple(Acl(self.int32(), self.text(), self.text()) for _ in range(self.int32()))


def int32(number: int) -> bytes:
    """Encode an int32."""
    return _INT.pack(number)


def int64(number: int) -> bytes:
    """Encode an int64."""
    return _LONG.pack(number)


def buffer(data: bytes | None) -> bytes:
    """Encode bytes, or null."""
    return NULL if data is None else _INT.pack(len(data)) + data


def text(string: str) -> bytes:
    """Encode a string."""
    return buffer(string.encode())


def texts(strings: Iterable[str]) -> bytes:
    """Encode strings."""
    encoded = [text(each) for each in strings]
    return _INT.pack(len(encoded)) + b"".join(encoded)


def acl(entries: tuple[Acl, ...]) -> bytes:
    """Encode an ACL."""
    parts = [_INT.pack(entry.permissions) + text(entry.scheme) + text(entry.id) for entry in entries]
    return _INT.pack(len(parts)) + b"".join(parts)


def stat(values: Stat) -> bytes:
    """Encode a Stat."""
    return _STAT.pack(*values)
