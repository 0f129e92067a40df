# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Walks the records of one batch: the only place that reads lengths out of a batch's payload.

A record, every number a zig-zag varint unless said otherwise:

    length  attributes(int8)  timestampDelta(varlong)  offsetDelta
    keyLength(-1 null) key  valueLength(-1 null) value
    headerCount  { keyLength key(UTF-8)  valueLength(-1 null) value }...

Bounds checks of the compiler are off: each length is held against the end of its record before anything behind it
is read, so whoever reads payload[key_start : key_start + key_length] after next_record() stays inside the payload.
"""

from protocol.records.errors import InvalidRecord

BytesLike = bytes | bytearray | memoryview

_SMALLEST_RECORD = 7
"""Bytes of a record without key, value, headers: what a count is held against before it is believed."""

_INT64_MAX = 9223372036854775807


class RecordReader:
    """One pass over the records of a payload; each `next_record` fills the attributes below.

    Lengths of -1 mean null. Positions count from the start of the payload object.
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
    )

    def __init__(
        self, payload: BytesLike, position: int, end: int, count: int, base_timestamp: int, last_offset_delta: int
    ) -> None:
        if position < 0 or position > end or end > len(payload):
            raise ValueError(f"records at {position}..{end} of a payload of {len(payload)} bytes")
        if count < 0 or count > (end - position) // _SMALLEST_RECORD:
            raise InvalidRecord(f"a batch of {end - position} bytes of records cannot hold {count} records")
        self.data = payload
        self.position = position
        self.end = end
        self.limit = end
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

        Raises InvalidRecord when a length, a delta or the number of records lies.
        """
        self.position = self.limit if self.index else self.position
        self.limit = self.end
        if self.index == self.count:
            if self.position != self.end:
                raise InvalidRecord(f"{self.end - self.position} bytes follow the last of {self.count} records")
            return False
        length = self.read_varint(28)
        if length < 0 or length > self.end - self.position:
            raise InvalidRecord(f"record {self.index}: length {length} with {self.end - self.position} bytes left")
        self.limit = self.position + length
        if length == 0:
            raise InvalidRecord(f"record {self.index}: no attributes")
        self.position += 1
        self.timestamp = self._absolute(self.read_varint(63))
        self.offset_delta = self.read_varint(28)
        if self.offset_delta < 0 or self.offset_delta > self.last_offset_delta:
            raise InvalidRecord(
                f"record {self.index}: offset delta {self.offset_delta} outside 0..{self.last_offset_delta}"
            )
        self._read_pair()
        self.header_count = self.read_varint(28)
        self.headers_start = self.position
        if self.header_count != 0:
            self._check_headers()
        if self.position != self.limit:
            raise InvalidRecord(f"record {self.index}: {self.limit - self.position} bytes more than its fields")
        self.index += 1
        return True

    def start_headers(self) -> None:
        """Go back to the first header of the current record; then call next_header `header_count` times."""
        self.position = self.headers_start

    def next_header(self) -> None:
        """Fill key_start, key_length, value_start, value_length with the next header's."""
        self._read_pair()
        if self.key_length < 0:
            raise InvalidRecord(f"record {self.index}: a header without a key")

    def read_varint(self, last_shift: int) -> int:
        """Read one zig-zag number of at most 5 (last_shift 28) or 10 (63) bytes, below `limit`."""
        position = self.position
        limit = self.limit
        value = 0
        shift = 0
        while position < limit:
            byte = self.data[position]
            position += 1
            if byte < 128:
                if shift == last_shift and byte > (15 if last_shift == 28 else 1):
                    break
                self.position = position
                value |= byte << shift
                return (value >> 1) ^ -(value & 1)
            if shift == last_shift:
                break
            value |= (byte & 127) << shift
            shift += 7
        where = "ends inside a number" if position >= limit else "a number that is too long"
        raise InvalidRecord(f"record {self.index}: {where} at byte {position}")

    def _read_pair(self) -> None:
        """A key or header key, then a value: both length-prefixed, both within the record."""
        length = self.read_varint(28)
        if length < -1 or length > self.limit - self.position:
            raise InvalidRecord(
                f"record {self.index}: key length {length} with {self.limit - self.position} bytes left"
            )
        self.key_length = length
        self.key_start = self.position
        if length > 0:
            self.position += length
        length = self.read_varint(28)
        if length < -1 or length > self.limit - self.position:
            raise InvalidRecord(
                f"record {self.index}: value length {length} with {self.limit - self.position} bytes left"
            )
        self.value_length = length
        self.value_start = self.position
        if length > 0:
            self.position += length

    def _check_headers(self) -> None:
        """Walk the headers once so that readers of them need not check; keeps the record's key and value."""
        if self.header_count < 0 or self.header_count > (self.limit - self.position) // 2:
            raise InvalidRecord(
                f"record {self.index}: {self.header_count} headers in {self.limit - self.position} bytes"
            )
        key_start, key_length = self.key_start, self.key_length
        value_start, value_length = self.value_start, self.value_length
        for _ in range(self.header_count):
            self.next_header()
        self.key_start, self.key_length = key_start, key_length
        self.value_start, self.value_length = value_start, value_length

    def _absolute(self, delta: int) -> int:
        """The record's timestamp; InvalidRecord when it does not fit 64 bits."""
        base = self.base_timestamp
        if (delta > 0 and base > _INT64_MAX - delta) or (delta < 0 and base < -_INT64_MAX - delta):
            raise InvalidRecord(f"record {self.index}: timestamp {base} + {delta} overflows")
        return base + delta
