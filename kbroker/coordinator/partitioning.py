"""Which partition of an internal topic a group or transactional id belongs to (pure).

abs(hash) mod N,   hash over the UTF-16 code units: h = 31 * h + unit, in 32 bits   (Java's String.hashCode)
"""

from __future__ import annotations

_BITS = 0xFFFFFFFF
_SIGN = 1 << 31


def java_hash(text: str) -> int:
    """Return Java's hash of a text, as a signed number of 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _BITS
    return value - (1 << 32) if value & _SIGN else value


def partition_for(key: str, partitions: int) -> int:
    """Return the partition; the one hash whose absolute value Java cannot express counts as 0."""
    value = java_hash(key)
    return 0 if value == -_SIGN else abs(value) % partitions
