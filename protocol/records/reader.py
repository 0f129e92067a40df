# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Walks the records of one batch: the only place that reads lengths out of a batch's payload.

A record, every number a zig-zag varint unless said otherwise:

    length  attributes(int8)  timestampDelta(varlong)  offsetDelta
    keyLength(-1 null) key  valueLength(-1 null) value
    headerCount  { keyLength key(UTF-8)  valueLength(-1 null) value }...

Compiled, the payload is a bare pointer: each length is held against the end of its record before anything behind it
is read, so whoever reads payload[key_start : key_start + key_length] after next_record() stays inside the payload.
"""

from kbroker.protocol.records import raw
from kbroker.protocol.records.errors import InvalidRecord

BytesLike = bytes | bytearray | memoryview

_SMALLEST_RECORD = 7
"""Bytes of a record without key, value, headers: what a count is held against before it is believed."""

_INT64_MAX = 9223372036854775807
_BAD_NUMBER = -_INT64_MAX - 1
"""What raw.varint answers for a number that is cut off or too long: less than any length, count or delta may be."""


class RecordReader:
    """One pass over the records of a payload; each `next_record` fills the attributes below.

    Lengths of -1 mean null. Positions count from the start of the payload object. `limit` is the end of the current
    record and the start of the next, `position` where next_header goes on. (In a hurry: `__new__`, then `open`.)
    """

    __slots__ = (
        "base_timestamp",
        "count",
        "data",
        "end",
        "header_count",
        "headers_start",
        "index",
        "key_length",
        "key_start",
        "last_offset_delta",
        "limit",
        "offset_delta",
        "position",
        "timestamp",
        "value_length",
        "value_start",
        "view",
    )

    def __init__(
        self, view: memoryview, position: int, end: int, count: int, base_timestamp: int, last_offset_delta: int
    ) -> None:
        self.open(view, position, end, count, base_timestamp, last_offset_delta)

    def open(
        self, view: memoryview, position: int, end: int, count: int, base_timestamp: int, last_offset_delta: int
    ) -> None:
        """Start on the records in view[position:end]; InvalidRecord when there cannot be `count` of them."""
        if position < 0 or position > end or end > len(view):
            raise ValueError(f"records at {position}..{end} of a payload of {len(view)} bytes")
        if count < 0 or count > (end - position) // _SMALLEST_RECORD:
            raise InvalidRecord(f"a batch of {end - position} bytes of records cannot hold {count} records")
        self.view = view
        self.data = raw.address(view)
        self.position = self.limit = position
        self.end = end
        self.count = count
        self.index = 0
        self.base_timestamp = base_timestamp
        self.last_offset_delta = last_offset_delta
        self.timestamp = -1
        self.offset_delta = -1
        self.key_start = self.value_start = self.headers_start = position
        self.key_length = self.value_length = -1
        self.header_count = 0

    def next_record(self) -> bool:
        """Read the next record's head and check all of it; False after the last record.

        Raises InvalidRecord when a length, a delta or the number of records lies; offset deltas must grow.
        """
        data = self.data
        position = self.limit
        limit = self.end
        if self.index == self.count:
            if position != limit:
                raise InvalidRecord(f"{limit - position} bytes follow the last of {self.count} records")
            return False
        length = raw.varint(data, position, limit)
        if length < 1:
            raise self._bad_length("record", length, limit - position)
        position = raw.varint_end(data, position)
        if length > limit - position:
            raise self._bad_length("record", length, limit - position)
        limit = position + length
        position += 1
        delta = raw.varlong(data, position, limit)
        self.timestamp = self._absolute(delta)
        position = raw.varint_end(data, position)
        delta = raw.varint(data, position, limit)
        if delta <= self.offset_delta or delta > self.last_offset_delta:
            raise self._bad_delta(delta)
        self.offset_delta = delta
        position = raw.varint_end(data, position)
        length = raw.varint(data, position, limit)
        if length < -1:
            raise self._bad_length("key", length, limit - position)
        position = raw.varint_end(data, position)
        if length > limit - position:
            raise self._bad_length("key", length, limit - position)
        self.key_length = length
        self.key_start = position
        if length > 0:
            position += length
        length = raw.varint(data, position, limit)
        if length < -1:
            raise self._bad_length("value", length, limit - position)
        position = raw.varint_end(data, position)
        if length > limit - position:
            raise self._bad_length("value", length, limit - position)
        self.value_length = length
        self.value_start = position
        if length > 0:
            position += length
        length = raw.varint(data, position, limit)
        if length < 0:
            raise self._bad_length("headers'", length, limit - position)
        position = raw.varint_end(data, position)
        self.header_count = length
        self.headers_start = position
        self.limit = limit
        if length != 0:
            position = self._check_headers()
        if position != limit:
            raise InvalidRecord(f"record {self.index}: {limit - position} bytes more than its fields")
        self.index += 1
        return True

    def start_headers(self) -> None:
        """Go back to the first header of the current record; then call next_header `header_count` times."""
        self.position = self.headers_start

    def next_header(self) -> None:
        """Fill key_start, key_length, value_start, value_length with the next header's."""
        data = self.data
        limit = self.limit
        position = self.position
        length = raw.varint(data, position, limit)
        if length < 0:
            raise self._bad_length("header key", length, limit - position)
        position = raw.varint_end(data, position)
        if length > limit - position:
            raise self._bad_length("header key", length, limit - position)
        self.key_length = length
        self.key_start = position
        position += length
        length = raw.varint(data, position, limit)
        if length < -1:
            raise self._bad_length("header value", length, limit - position)
        position = raw.varint_end(data, position)
        if length > limit - position:
            raise self._bad_length("header value", length, limit - position)
        self.value_length = length
        self.value_start = position
        self.position = position + length if length > 0 else position

    def _check_headers(self) -> int:
        """Walk the headers once so that readers of them need not check; keeps the record's key and value.

        Returns where they end.
        """
        room = self.limit - self.headers_start
        if self.header_count > room // 2:
            raise self._bad_length("headers'", self.header_count, room)
        key_start, key_length = self.key_start, self.key_length
        value_start, value_length = self.value_start, self.value_length
        self.start_headers()
        for _ in range(self.header_count):
            self.next_header()
        self.key_start, self.key_length = key_start, key_length
        self.value_start, self.value_length = value_start, value_length
        return self.position

    def _absolute(self, delta: int) -> int:
        """The record's timestamp; InvalidRecord when it does not fit 64 bits."""
        base = self.base_timestamp
        if delta == _BAD_NUMBER:
            raise InvalidRecord(f"record {self.index}: a timestamp that is cut off or too long")
        if (delta > 0 and base > _INT64_MAX - delta) or (delta < 0 and base < -_INT64_MAX - delta):
            raise InvalidRecord(f"record {self.index}: timestamp {base} + {delta} overflows")
        return base + delta

    def _bad_length(self, what: str, length: int, room: int) -> InvalidRecord:
        said = "is cut off or too long a number" if length == _BAD_NUMBER else f"is {length}"
        return InvalidRecord(f"record {self.index}: {what} length {said}, with {room} bytes left")

    def _bad_delta(self, delta: int) -> InvalidRecord:
        if delta == _BAD_NUMBER:
            return InvalidRecord(f"record {self.index}: an offset delta that is cut off or too long")
        return InvalidRecord(
            f"record {self.index}: offset delta {delta} after {self.offset_delta}, the last is {self.last_offset_delta}"
        )
