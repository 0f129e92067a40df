"""An answer's parts on their way out: bytes-like ones, and slices of files, small ones of which are read in place."""

from __future__ import annotations

from typing import Any

MOST_PARTS_AT_ONCE = 256
SMALL_FILE_PART = 1 << 14
"""A slice of a file up to this size is read and sent together with its neighbours: one system call instead of two."""


class Shortened(OSError):
    """A file no longer holds what an answer was to be made of."""

    def __init__(self, part: Any) -> None:
        super().__init__(f"{part!r} is shorter than it was when the answer was made")


def in_memory(parts: list[Any]) -> int:
    """Read the small slices of files in place and return the size of all parts; -1 when one is for sendfile."""
    total = 0
    for index, part in enumerate(parts):
        kind = type(part)
        if kind is bytearray or kind is bytes:
            total += len(part)
        elif kind is memoryview:
            total += part.nbytes
        elif part.size <= SMALL_FILE_PART:
            parts[index] = read_small(part)
            total += part.size
        else:
            return -1
    return total


def part_size(part: Any) -> int:
    """Bytes that a part puts on the wire."""
    return part.size if hasattr(part, "fileno") else memoryview(part).nbytes


def advance(parts: list[Any], index: int, sent: int) -> tuple[int, int]:
    """Return which part goes on, and from which of its bytes, once `sent` bytes from part `index` on are out."""
    while index < len(parts):
        size = part_size(parts[index])
        if sent < size:
            break
        sent -= size
        parts[index] = b""
        index += 1
    return index, sent


def gather(parts: list[Any], index: int, offset: int) -> tuple[list[Any], int, bool]:
    """Return the bytes-like parts from `index` on (small file slices are read in place), their size, and whether more
    follows.
    """
    buffers: list[Any] = []
    wanted = 0
    while index < len(parts) and len(buffers) < MOST_PARTS_AT_ONCE:
        part = parts[index]
        if hasattr(part, "fileno"):
            if part.size > SMALL_FILE_PART:
                break
            part = parts[index] = read_small(part)
        view = memoryview(part)[offset:] if offset else part
        offset = 0
        buffers.append(view)
        wanted += len(view)
        index += 1
    return buffers, wanted, index < len(parts)


def read_small(part: Any) -> bytes:
    """Read a small slice of a file; Shortened when the file no longer holds it."""
    data: bytes = part.read()
    if len(data) != part.size:
        raise Shortened(part)
    return data
