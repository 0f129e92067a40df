# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False, cdivision=True
"""Which partition a key belongs to: MurmurHash2 as Java's default partitioner computes it."""

from kbroker.protocol.records import raw
from kbroker.protocol.records.raw import Readable
from kbroker.protocol.records.reader import BytesLike

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: BytesLike) -> int:
    """The hash as Java prints it: a signed 32-bit number."""
    view = memoryview(data)
    value = _hash_range(raw.address(view), 0, len(view))
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for_key(key: BytesLike, partitions: int) -> int:
    """The key's partition out of `partitions` (> 0)."""
    if partitions <= 0:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    view = memoryview(key)
    return (_hash_range(raw.address(view), 0, len(view)) & 0x7FFFFFFF) % partitions


class KeyPartitioner:
    """The partition of a key that lies within a buffer, for a topic of so many partitions."""

    __slots__ = ("partitions",)

    def __init__(self, partitions: int) -> None:
        if partitions <= 0:
            raise ValueError(f"a topic has at least one partition, not {partitions}")
        self.partitions = partitions

    def of_range(self, data: Readable, start: int, length: int) -> int:
        """The partition of the key data[start : start + length]; the caller answers for the range."""
        return (_hash_range(data, start, length) & 0x7FFFFFFF) % self.partitions


def _hash_range(data: Readable, start: int, length: int) -> int:
    """The hash of data[start : start + length], unsigned; the caller answers for the range."""
    value = (_SEED ^ length) & _MASK
    position = start
    end = start + (length & ~3)
    while position < end:
        word = data[position + 3]
        word = (word << 8) | data[position + 2]
        word = (word << 8) | data[position + 1]
        word = (word << 8) | data[position]
        word = (word * _M) & _MASK
        word ^= word >> 24
        word = (word * _M) & _MASK
        value = ((value * _M) & _MASK) ^ word
        position += 4
    rest = length & 3
    if rest == 3:
        value ^= data[end + 2] << 16
    if rest >= 2:
        value ^= data[end + 1] << 8
    if rest >= 1:
        value ^= data[end]
        value = (value * _M) & _MASK
    value ^= value >> 13
    value = (value * _M) & _MASK
    return value ^ (value >> 15)
