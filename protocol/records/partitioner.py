# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False, cdivision=True
"""Which partition a key belongs to: by MurmurHash2 as Java computes it, by CRC-32 or FNV-1a as librdkafka does."""

from kbroker.protocol.records import raw
from kbroker.protocol.records.raw import Readable
from kbroker.protocol.records.reader import BytesLike

MURMUR2 = 0
CRC32 = 1
FNV1A = 2
"""Hashes of keys."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_CRC32_POLYNOMIAL = 0xEDB88320
_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def murmur2(data: BytesLike) -> int:
    """The hash as Java prints it: a signed 32-bit number."""
    view = memoryview(data)
    value = _hash_range(raw.address(view), 0, len(view))
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for_key(key: BytesLike, partitions: int, hashing: int = 0) -> int:
    """The key's partition out of `partitions` (> 0)."""
    if partitions <= 0:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    view = memoryview(key)
    return _positive_hash(raw.address(view), 0, len(view), hashing) % partitions


class KeyPartitioner:
    """The partition of a key that lies within a buffer, for a topic of so many partitions."""

    __slots__ = ("hashing", "partitions")

    def __init__(self, partitions: int, hashing: int = 0) -> None:
        if partitions <= 0:
            raise ValueError(f"a topic has at least one partition, not {partitions}")
        self.partitions = partitions
        self.hashing = hashing

    def of_range(self, data: Readable, start: int, length: int) -> int:
        """The partition of the key data[start : start + length]; the caller answers for the range."""
        return _positive_hash(data, start, length, self.hashing) % self.partitions


def _positive_hash(data: Readable, start: int, length: int, hashing: int) -> int:
    """What is divided by the number of partitions, each hash made positive in its own way."""
    if hashing == 0:
        return _hash_range(data, start, length) & 0x7FFFFFFF
    if hashing == 1:
        return _crc32(data, start, length)
    value = _fnv1a(data, start, length)
    # librdkafka and Sarama take the absolute value of the hash as a signed number.
    return (_MASK - value + 1) & _MASK if value & 0x80000000 else value


def _crc32(data: Readable, start: int, length: int) -> int:
    """The CRC-32 of zlib."""
    value = _MASK
    for position in range(start, start + length):
        value ^= data[position]
        for _ in range(8):
            value = (value >> 1) ^ _CRC32_POLYNOMIAL if value & 1 else value >> 1
    return value ^ _MASK


def _fnv1a(data: Readable, start: int, length: int) -> int:
    """FNV-1a of 32 bits."""
    value = _FNV_OFFSET
    for position in range(start, start + length):
        value = ((value ^ data[position]) * _FNV_PRIME) & _MASK
    return value


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
