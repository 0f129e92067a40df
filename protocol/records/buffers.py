"""Buffers in Arrow's layout, made of bytearrays that are used again once nobody looks into them.

offsets    int32, rows + 1 of them: row i's bytes are data[offsets[i] : offsets[i + 1]]
data       the bytes of all rows, one behind the other
validity   one bit a row, least significant first, 1 = not null; None when no row is null
"""

from dataclasses import dataclass

Buffer = bytes | bytearray | memoryview

_MAX_BUFFERS = 128
"""Of a pool: looking for a free one stays cheap when everything is lent."""

_FINE_SIZES = 1 << 20
"""From this size on there are eight sizes between a power of two and the next: rounding up takes memory too."""


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
    """Lends bytearrays and sees by itself which are free again: those that nobody has a view of.

    So whoever borrows one must hold a memoryview (or a pyarrow buffer) of it for as long as it is used. Fresh memory
    costs more than filling it does; a pool per consumer makes decoding run in memory that is already there.
    """

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        self.max_bytes = max_bytes
        self._buffers: list[bytearray] = []
        """All, the oldest first."""
        self._by_size: dict[int, list[bytearray]] = {}
        self._total_bytes = 0

    def borrow(self, size: int) -> bytearray:
        """A bytearray of at least `size` bytes (less than twice as many, but for the smallest), whatever is in it."""
        step = 1 << max(size - 1, 63).bit_length()
        smallest, largest = step, step + 1
        if step > _FINE_SIZES:
            step //= 16
            smallest = (size + step - 1) // step * step
            largest = 2 * smallest
        for size in range(smallest, largest, step):
            for buffer in self._by_size.get(size, ()):
                if _is_free(buffer):
                    return buffer
        size = smallest
        buffer = bytearray(size)
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


def _is_free(buffer: bytearray) -> bool:
    try:
        buffer.append(buffer.pop())  # refused while anybody looks into it; moves nothing
    except BufferError:
        return False
    return True
