"""Which partition of an internal topic a group or transactional id belongs to (pure): abs(Java's hash) mod N."""

from __future__ import annotations

from kbroker.protocol.java_hash import java_hash

_SMALLEST = -(1 << 31)


def partition_for(key: str, partitions: int) -> int:
    """Return the partition; the one hash whose absolute value Java cannot express counts as 0."""
    value = java_hash(key)
    return 0 if value == _SMALLEST else abs(value) % partitions
