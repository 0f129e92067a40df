# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""A batch being filled: records are written straight into one growing buffer behind room for the header.

Every write is preceded by `_open_record`, which makes room for the whole record: compiled, it is a write to a pointer.
"""

from collections.abc import Sequence

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records import raw
from kbroker.protocol.records.batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    write_crc,
)
from kbroker.protocol.records.compression import compress
from kbroker.protocol.records.raw import Readable

Headers = Sequence[tuple[str, bytes | None]]

_FIRST_CAPACITY = 1024
_LARGEST_BATCH = 0x7FFFFFFF - LOG_OVERHEAD
_NO_HEADERS = b"\x00"


class BatchBuilder:
    """Collects records until `batch_size` bytes (uncompressed, header included) are reached, then `build`s once.

    An empty builder takes a record of any size. `capacity` is the room to begin with, in bytes; it grows.
    """

    __slots__ = (
        "base_timestamp",
        "batch_size",
        "buffer",
        "compression",
        "count",
        "level",
        "max_timestamp",
        "size",
    )

    def __init__(
        self, batch_size: int = 16384, compression: int = 0, level: int | None = None, capacity: int = _FIRST_CAPACITY
    ) -> None:
        self.batch_size = batch_size
        self.compression = compression
        self.level = level
        self.buffer = bytearray()
        raw.resize(self.buffer, min(max(batch_size, HEADER_SIZE), max(capacity, HEADER_SIZE)))
        self.size = HEADER_SIZE
        self.count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1

    def append(self, key: bytes | None, value: bytes | None, headers: Headers = (), timestamp: int = -1) -> bool:
        """Add a record (timestamp in ms); False, and nothing added, when it does not fit any more."""
        key_bytes = key if key is None or type(key) is bytes else _to_bytes(key)
        value_bytes = value if value is None or type(value) is bytes else _to_bytes(value)
        header_bytes = encode_headers(headers) if headers else _NO_HEADERS
        key_length = -1 if key_bytes is None else len(key_bytes)
        value_length = -1 if value_bytes is None else len(value_bytes)
        headers_length = len(header_bytes)
        at = self._open_record(timestamp, key_length, value_length, headers_length)
        if at < 0:
            return False
        target = raw.bytearray_address(self.buffer)
        at = raw.put_varint(target, at, key_length)
        if key_bytes is not None:
            raw.copy(target, at, raw.bytes_address(key_bytes), 0, key_length)
            at += key_length
        at = raw.put_varint(target, at, value_length)
        if value_bytes is not None:
            raw.copy(target, at, raw.bytes_address(value_bytes), 0, value_length)
            at += value_length
        raw.copy(target, at, raw.bytes_address(header_bytes), 0, headers_length)
        self.size = at + headers_length
        return True

    def append_slices(
        self,
        timestamp: int,
        keys: Readable,
        key_start: int,
        key_length: int,
        values: Readable,
        value_start: int,
        value_length: int,
        headers: Readable,
        headers_length: int,
    ) -> bool:
        """The same for columns: keys[key_start : key_start + key_length] and so on, length -1 for null.

        `headers` starts with their count. The caller answers for the ranges.
        """
        at = self._open_record(timestamp, key_length, value_length, headers_length)
        if at < 0:
            return False
        target = raw.bytearray_address(self.buffer)
        at = raw.put_varint(target, at, key_length)
        if key_length > 0:
            raw.copy(target, at, keys, key_start, key_length)
            at += key_length
        at = raw.put_varint(target, at, value_length)
        if value_length > 0:
            raw.copy(target, at, values, value_start, value_length)
            at += value_length
        raw.copy(target, at, headers, 0, headers_length)
        self.size = at + headers_length
        return True

    def build(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        base_offset: int = 0,
        leader_epoch: int = -1,
        log_append_time: bool = False,
    ) -> bytearray:
        """The finished batch; the builder is done with. An empty builder makes an empty batch."""
        buffer = self.buffer
        raw.resize(buffer, self.size)
        compression = self.compression if self.count else 0
        if compression:
            with memoryview(buffer) as whole, whole[HEADER_SIZE:] as payload:
                compressed = compress(compression, payload, self.level)
            del buffer[HEADER_SIZE:]
            buffer += compressed
        attributes = (
            compression
            | (TRANSACTIONAL_BIT if transactional else 0)
            | (CONTROL_BIT if control else 0)
            | (LOG_APPEND_TIME_BIT if log_append_time else 0)
        )
        HEADER.pack_into(
            buffer,
            0,
            base_offset,
            len(buffer) - LOG_OVERHEAD,
            leader_epoch,
            2,
            0,
            attributes,
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        write_crc(buffer, 0)
        return buffer

    def _open_record(self, timestamp: int, key_length: int, value_length: int, headers_length: int) -> int:
        """Write what stands before the key and return the position behind it; -1 when the record does not fit."""
        if timestamp < -1:
            raise ValueError(f"a record's timestamp is milliseconds since 1970, or -1 for none, not {timestamp}")
        delta = timestamp - self.base_timestamp if self.count else 0
        length = (
            1
            + raw.varint_size(delta)
            + raw.varint_size(self.count)
            + raw.varint_size(key_length)
            + (key_length if key_length > 0 else 0)
            + raw.varint_size(value_length)
            + (value_length if value_length > 0 else 0)
            + headers_length
        )
        end = self.size + raw.varint_size(length) + length
        if end > self.batch_size and self.count:
            return -1
        if end > _LARGEST_BATCH:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a record of {length} bytes does not fit a batch")
        if end > len(self.buffer):
            self._grow(end)
        if self.count == 0:
            self.base_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        target = raw.bytearray_address(self.buffer)
        at = raw.put_varint(target, self.size, length)
        target[at] = 0
        at = raw.put_varint(target, at + 1, delta)
        at = raw.put_varint(target, at, self.count)
        self.count += 1
        return at

    def _grow(self, needed: int) -> None:
        """Have at least `needed` bytes: four times as many as now, but no more than a batch where that is enough."""
        capacity = max(needed, min(4 * len(self.buffer), self.batch_size))
        raw.resize(self.buffer, capacity)


def encode_headers(headers: Headers) -> bytes:
    """Headers as they stand in a record, their count in front."""
    parts = [encode_varint(len(headers))]
    for key, value in headers:
        key_bytes = key.encode()
        parts += (encode_varint(len(key_bytes)), key_bytes)
        if value is None:
            parts.append(b"\x01")
        else:
            value_bytes = value if type(value) is bytes else _to_bytes(value)
            parts += (encode_varint(len(value_bytes)), value_bytes)
    return b"".join(parts)


def encode_varint(value: int) -> bytes:
    """A zig-zag number as bytes."""
    buffer = bytearray(10)
    return bytes(buffer[: raw.put_varint(raw.bytearray_address(buffer), 0, value)])


def _to_bytes(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"keys and values are bytes or None, not {type(value).__name__}")
