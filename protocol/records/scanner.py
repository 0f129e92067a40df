# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Finds keys, values' absence and numbers in a row of records, for compaction, which copies the rest as it is.

What RecordReader does for whoever wants all of a record and an exception when it is damaged, this does without either,
and so (compiled) without Python's lock. Headers are not looked at.
"""

from kbroker.protocol.records import raw
from kbroker.protocol.records.raw import Readable

_SMALLEST_LENGTH = 6
"""A record's bytes behind its length: none of its six fields is empty."""

_INT64_MAX = 9223372036854775807
_BAD_NUMBER = -_INT64_MAX - 1
"""What raw.varlong answers for a number that is cut off or too long."""


class RecordScanner:
    """The record that `read` was last called for. Lengths of -1 mean null; positions are those in the payload."""

    __slots__ = (
        "body_start",
        "end",
        "key_length",
        "key_start",
        "offset_delta",
        "timestamp_delta",
        "value_length",
    )

    def __init__(self) -> None:
        self.timestamp_delta = self.offset_delta = 0
        self.key_start = self.key_length = self.value_length = 0
        self.body_start = 0
        """Where the offset delta begins: what follows the timestamp delta."""
        self.end = 0
        """Where the next record begins."""

    def read(self, data: Readable, position: int, limit: int) -> bool:
        """Read the record at a position; False when a length or number lies about what is there before `limit`."""
        length = raw.varint(data, position, limit)
        if length < _SMALLEST_LENGTH:
            return False
        position = raw.varint_end(data, position)
        if length > limit - position:
            return False
        limit = position + length
        self.end = limit
        position += 1
        delta = raw.varlong(data, position, limit)
        if delta == _BAD_NUMBER:
            return False
        position = raw.varint_end(data, position)
        self.timestamp_delta = delta
        self.body_start = position
        delta = raw.varint(data, position, limit)
        if delta < 0:
            return False
        self.offset_delta = delta
        position = raw.varint_end(data, position)
        length = _length(data, position, limit)
        if length < -1:
            return False
        position = raw.varint_end(data, position)
        self.key_start = position
        self.key_length = length
        if length > 0:
            position += length
        length = _length(data, position, limit)
        if length < -1:
            return False
        position = raw.varint_end(data, position)
        self.value_length = length
        return True


def _length(data: Readable, position: int, limit: int) -> int:
    """The length of a key or value, -1 for null; less than that when it lies about what is there before `limit`."""
    length = raw.varint(data, position, limit)
    if length > 0 and length > limit - raw.varint_end(data, position):
        return _BAD_NUMBER
    return length
