"""Reusable memory for frames: touching fresh memory costs more than copying into warm memory.

A buffer goes back to its pool while somebody may still hold a view of it (a handler that kept a slice of its request,
a task that is not collected yet). It is handed out again only when nothing refers to it any more; otherwise the pool
forgets it and the holder keeps it alive. So keeping a slice of a frame is safe, it only costs the reuse.

Buffers are private maps in small pages: a page costs nothing until bytes arrive in it. A peer that announces a frame
and sends nothing takes no memory, whatever the size.
"""

from __future__ import annotations

import mmap
import sys
from collections import deque

Buffer = bytearray | mmap.mmap

SMALLEST = 1 << 15


def fresh_buffer(size: int) -> mmap.mmap:
    """Return a map nobody has touched. Huge pages are declined: the first byte would make two MiB resident."""
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        buffer.madvise(mmap.MADV_NOHUGEPAGE)
    return buffer


class BufferPool:
    """Buffers by size class (powers of two), keeping at most `keep_bytes` for reuse."""

    def __init__(self, keep_bytes: int = 32 << 20) -> None:
        self.keep_bytes = keep_bytes
        self.kept_bytes = 0
        self._free: dict[int, deque[Buffer]] = {}
        self._unshared = self._references_of_an_unshared_buffer()

    def _references_of_an_unshared_buffer(self) -> int:
        """Ask the interpreter what getrefcount says of a buffer nobody else holds: it differs between releases."""
        free = deque([bytearray(1)])
        buffer = free.pop()
        return sys.getrefcount(buffer)

    def take(self, size: int) -> Buffer:
        """Return a buffer of at least `size` bytes, the one used last if possible: the CPU's cache still holds it.

        Its contents are left from before.
        """
        capacity = max(SMALLEST, 1 << (size - 1).bit_length())
        free = self._free.get(capacity)
        while free:
            buffer = free.pop()
            self.kept_bytes -= capacity
            if sys.getrefcount(buffer) == self._unshared:
                return buffer
        return fresh_buffer(capacity)

    def give_back(self, buffer: Buffer) -> None:
        """Keep the buffer for reuse, or let it go when enough are kept."""
        capacity = len(buffer)
        if self.kept_bytes + capacity > self.keep_bytes:
            return
        self.kept_bytes += capacity
        self._free.setdefault(capacity, deque()).append(buffer)

    def trim(self) -> None:
        """Let go of everything kept; called when the broker has been idle."""
        self._free.clear()
        self.kept_bytes = 0


class Scratch:
    """The buffer that small frames of all connections are read into; replaced while somebody holds a view of it."""

    def __init__(self, size: int = 1 << 14) -> None:
        self.size = size
        self._buffer = bytearray(size)
        self._unshared = sys.getrefcount(self._buffer)

    def take(self) -> bytearray:
        """Return the shared buffer if nobody looks at it, else a fresh one that is shared from now on."""
        if sys.getrefcount(self._buffer) != self._unshared:
            self._buffer = bytearray(self.size)
        return self._buffer
