"""Buffers in Arrow's layout, in memory that is used again once nobody looks into it.

offsets    int32, rows + 1 of them: row i's bytes are data[offsets[i] : offsets[i + 1]]
data       the bytes of all rows, one behind the other
validity   one bit a row, least significant first, 1 = not null; None when no row is null
"""

import contextlib
import mmap
from dataclasses import dataclass

Buffer = bytes | bytearray | memoryview
Lent = bytearray | mmap.mmap

_MAX_BUFFERS = 128
"""Of a pool: looking for a free one stays cheap when everything is lent."""

_FINE_SIZES = 1 << 20
"""From this size on there are eight sizes between a power of two and the next: rounding up takes memory too."""

_HUGE_PAGE = 2 << 20 if hasattr(mmap, "MADV_HUGEPAGE") else 1 << 62
"""From this size on memory is asked for in huge pages: the first touch of it costs a sixth then."""


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """A column of binaries (or strings) that may be null."""

    offsets: Buffer
    data: Buffer
    validity: Buffer | None = None
    null_count: int = 0


@dataclass(frozen=True, slots=True)
class HeadersColumn:
    """list<struct<key: string, value: binary>>: row i's headers are number offsets[i] to offsets[i + 1]."""

    offsets: Buffer
    keys: BinaryColumn
    values: BinaryColumn
    count: int = 0
    """Headers of all rows together: the rows of `keys` and `values`."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of decoded records. Every buffer ends where its rows end."""

    rows: int
    key: BinaryColumn
    value: BinaryColumn
    offset: memoryview
    """int64"""
    timestamp: memoryview
    """int64, microseconds since 1970"""
    timestamp_type: memoryview
    """int32"""
    partition: memoryview
    """int32"""
    headers: HeadersColumn | None


class BufferPool:
    """Lends memory and sees by itself what is free again: what nobody has a view of.

    So whoever borrows one must hold a memoryview (or a pyarrow buffer) of it for as long as it is used. Fresh memory
    costs more than filling it does; a pool per consumer makes decoding run in memory that is already there.
    """

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        self.max_bytes = max_bytes
        self._buffers: list[Lent] = []
        """All, the oldest first."""
        self._by_size: dict[int, list[Lent]] = {}
        self._total_bytes = 0

    def borrow(self, size: int) -> Lent:
        """Return at least `size` bytes (about twice as many at most, but for the smallest), whatever is in them."""
        step = 1 << max(size - 1, 63).bit_length()
        smallest, largest = step, step + 1
        if step > _FINE_SIZES:
            step //= 16
            smallest = (size + step - 1) // step * step
            largest = 2 * smallest + 1
        for size in range(smallest, largest, step):
            for buffer in self._by_size.get(size, ()):  # the first are in the processor's cache
                if _is_free(buffer):
                    return buffer
        size = smallest
        buffer = _fresh(size)
        self._make_room(size)
        self._buffers.append(buffer)
        self._by_size.setdefault(size, []).append(buffer)
        self._total_bytes += size
        return buffer

    def clear(self) -> None:
        """Let go of all buffers: those that are lent live on as long as they are used."""
        self._buffers.clear()
        self._by_size.clear()
        self._total_bytes = 0

    def _make_room(self, size: int) -> None:
        """Forget buffers until the new one fits the bounds: the oldest first, lent or not."""
        while self._buffers and (self._total_bytes + size > self.max_bytes or len(self._buffers) >= _MAX_BUFFERS):
            oldest = self._buffers.pop(0)
            self._by_size[len(oldest)].pop(0)  # within a size they stand in the same order
            self._total_bytes -= len(oldest)


def _fresh(size: int) -> Lent:
    if size < _HUGE_PAGE:
        return bytearray(size)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages has others
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _is_free(buffer: Lent) -> bool:
    try:
        # Refused while anybody looks into it; moves nothing.
        if isinstance(buffer, bytearray):
            buffer.append(buffer.pop())
        else:
            buffer.resize(len(buffer))
    except BufferError:
        return False
    return True
