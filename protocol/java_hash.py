# cython: boundscheck=False, wraparound=False, annotation_typing=False
"""Java's String.hashCode, which places groups, transactional ids, and whatever a Java HashMap iterates over.

hash over the UTF-16 code units: h = 31 * h + unit, in 32 bits
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")

_BITS = 0xFFFFFFFF
_SIGN = 1 << 31
SMALLEST_TABLE = 16


def java_hash(text: str) -> int:
    """Return Java's hash of a text, as a signed number of 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        unit = units[position] << 8 | units[position + 1]
        value = (31 * value + unit) & _BITS
    return value - 2 * _SIGN if value & _SIGN else value


def partition_for(key: str, partitions: int) -> int:
    """Return the partition of an internal topic that a group or transactional id belongs to.

    The one hash whose absolute value Java cannot express counts as 0.
    """
    value = java_hash(key)
    return 0 if value == -_SIGN else abs(value) % partitions


def java_map_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """Return the order in which a java.util.HashMap yields keys that were put in the given order.

    By bucket of a table that doubles at three quarters; within a bucket as they came. Java's assignors iterate over
    such maps, so their results depend on it.
    """
    known = list(dict.fromkeys(keys))
    size = SMALLEST_TABLE
    while 4 * len(known) > 3 * size:
        size *= 2

    def bucket(key: K) -> int:
        value = hash_of(key) & _BITS
        return (value ^ value >> 16) & (size - 1)

    return sorted(known, key=bucket)
