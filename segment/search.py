# cython: boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""The two searches of a look-up, in bytes: among the entries of an index, and from batch to batch. Compiled.

A consumer's every request begins with them, and they take a dozen steps each: the first halves the entries, the second
walks over the 4 KiB that may lie between an index entry and the batch that is wanted.
"""

from kbroker.protocol import memory

_MAGIC, _LAST_OFFSET_DELTA, _LOOKED_AT = 16, 23, 27
_OVERHEAD = 12
"""Base offset and length: the length counts what follows them."""
_HEADER, _SMALLEST_MESSAGE = 61, 26
"""A batch is no smaller than its header; messages of old may be."""
NO_BATCH, BEYOND_INDEX = -1, -2


def count_up_to(entries: memoryview, count: int, limit: int, entry_size: int, start: int, is_long: bool) -> int:
    """How many of the first `count` entries have a field <= limit: int32 (int64: `is_long`) at `start`, ascending."""
    data = memory.readable(entries)
    low, high = 0, min(count, len(entries) // entry_size)
    while low < high:
        middle = (low + high) // 2
        place = middle * entry_size + start
        value = memory.load_int64(data, place) if is_long else memory.load_int32(data, place)
        if value <= limit:
            low = middle + 1
        else:
            high = middle
    return low


def find_batch(chunk: memoryview, last: int, room: int, offset: int, floor: int, indexed: int) -> tuple[int, int, int]:
    """Walk from the front of the chunk to the first batch that ends at or behind the offset: (place, size, floor).

    No batch is looked at that begins behind `last`; none may reach beyond `room` bytes, hold an offset below `floor`
    or begin with one above `indexed` (the first; -1: not known). The size is 0 where the walk left the chunk, at a
    place and with a floor to go on from; NO_BATCH or BEYOND_INDEX where what is there makes no sense.
    """
    data = memory.readable(chunk)
    here, lowest, known = 0, floor, indexed
    end = min(last, len(chunk) - _LOOKED_AT)
    while here <= end:
        base_offset = memory.load_int64(data, here)
        size = memory.load_int32(data, here + 8) + _OVERHEAD
        smallest, delta = _SMALLEST_MESSAGE, 0
        if data[here + _MAGIC] >= 2:
            smallest, delta = _HEADER, memory.load_int32(data, here + _LAST_OFFSET_DELTA)
        if size < smallest or size > room - here or base_offset < lowest or delta < 0:
            return here, NO_BATCH, lowest
        if 0 <= known < base_offset:
            return here, BEYOND_INDEX, lowest
        known = -1
        if base_offset + delta >= offset:
            return here, size, lowest
        lowest = base_offset + delta + 1
        here += size
    return here, 0, lowest
