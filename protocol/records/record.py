# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Records as Python objects, out of a batch of any compression."""

from kbroker.protocol import memory
from kbroker.protocol.records import raw
from kbroker.protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    RECORDS_PER_TURN,
    BatchHeader,
    read_header,
    verify_crc,
)
from kbroker.protocol.records.compression import MAX_PAYLOAD_SIZE, decompress
from kbroker.protocol.records.errors import CorruptBatch
from kbroker.protocol.records.reader import BytesLike, RecordReader

_NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()
_TURN = RECORDS_PER_TURN  # as a plain C number


class Record:
    """One record. `timestamp` is in ms (-1 none), of the sender or, with timestamp_type 1, of the broker.

    Key and value are bytes, or what a consumer's deserializers have made of them.
    """

    __slots__ = ("headers", "key", "offset", "partition", "timestamp", "timestamp_type", "topic", "value")

    def __init__(
        self,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        topic: str = "",
        partition: int = -1,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.topic = topic
        self.partition = partition

    def _fields(self) -> tuple[object, ...]:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return Record, (
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.topic,
            self.partition,
        )


def decode_batch(
    buffer: BytesLike,
    position: int = 0,
    size: int = -1,
    check_crc: bool = True,
    from_offset: int = 0,
    topic: str = "",
    partition: int = -1,
    max_payload_size: int = MAX_PAYLOAD_SIZE,
) -> list[Record]:
    """All records of the batch at `position` with offsets from `from_offset` on, markers included (control.py).

    `size`, where given, is what the batch must fill exactly. Raises CorruptBatch or InvalidRecord.
    """
    view = memoryview(buffer)
    header = _checked_header(view, position, size, check_crc)
    start = position + HEADER_SIZE
    end = position + header.batch_length + LOG_OVERHEAD
    if header.attributes & COMPRESSION_MASK:
        view = memoryview(decompress(header.compression, view[start:end], max_payload_size))
        start = 0
        end = len(view)
    reader = RecordReader.__new__(RecordReader)
    reader.open(view, start, end, header.count, header.base_timestamp, header.last_offset_delta)
    data = raw.address(view)
    timestamp_type = header.timestamp_type
    base_offset = header.base_offset
    records: list[Record] = []
    while reader.next_record():
        if base_offset + reader.offset_delta < from_offset:
            continue
        record = Record.__new__(Record)
        record.offset = base_offset + reader.offset_delta
        record.timestamp = header.max_timestamp if timestamp_type else reader.timestamp
        record.timestamp_type = timestamp_type
        record.topic = topic
        record.partition = partition
        start = reader.key_start
        record.key = None if reader.key_length < 0 else memory.load_bytes(data, start, start + reader.key_length)
        start = reader.value_start
        record.value = None if reader.value_length < 0 else memory.load_bytes(data, start, start + reader.value_length)
        record.headers = _read_headers(reader) if reader.header_count else _NO_HEADERS
        records.append(record)
    return records


def find_time(
    buffer: BytesLike, timestamp: int, from_offset: int, output: bytearray, max_payload_size: int = MAX_PAYLOAD_SIZE
) -> tuple[int, int] | None:
    """(timestamp, offset) of the batch's first record from `from_offset` on that is at or after a time, else None.

    `output` is memory to unpack to. No objects are made of the records. Raises CorruptBatch or InvalidRecord.
    """
    header, payload = open_batch(buffer, 0, -1, True, max_payload_size, output)
    view = memoryview(payload)
    start = 0 if header.attributes & COMPRESSION_MASK else HEADER_SIZE
    end = len(view) if header.attributes & COMPRESSION_MASK else header.size
    reader = RecordReader.__new__(RecordReader)
    reader.open(view, start, end, header.count, header.base_timestamp, header.last_offset_delta)
    base_offset = header.base_offset
    while reader.next_record():
        found = header.max_timestamp if header.timestamp_type else reader.timestamp
        if found >= timestamp and base_offset + reader.offset_delta >= from_offset:
            return found, base_offset + reader.offset_delta
        if reader.index & _TURN == 0:
            raw.take_gil(raw.release_gil())
    return None


def open_batch(
    buffer: BytesLike, position: int, size: int, check_crc: bool, max_payload_size: int, output: bytearray | None = None
) -> tuple[BatchHeader, BytesLike]:
    """Header and uncompressed payload; an uncompressed batch's payload is `buffer` itself. `size` -1: not known."""
    view = memoryview(buffer)
    header = _checked_header(view, position, size, check_crc)
    compression = header.compression
    if compression == 0:
        return header, buffer
    compressed = view[position + HEADER_SIZE : position + header.size]
    return header, decompress(compression, compressed, max_payload_size, output)


def _checked_header(view: memoryview, position: int, size: int, check_crc: bool) -> BatchHeader:
    header = read_header(view, position)
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(view) or (size >= 0 and size != end - position):
        available = len(view) - position if size < 0 else size
        raise CorruptBatch(f"batch at {position} says it has {end - position} bytes, {available} are there")
    if check_crc and not verify_crc(view, position, end - position):
        raise CorruptBatch(f"batch of offset {header.base_offset} at {position} does not match its CRC")
    return header


def _read_headers(reader: RecordReader) -> tuple[tuple[str, bytes | None], ...]:
    data = reader.data
    headers = []
    reader.start_headers()
    for _ in range(reader.header_count):
        reader.next_header()
        start = reader.key_start
        try:
            key = memory.load_text(data, start, start + reader.key_length)
        except UnicodeDecodeError:
            # Kafka's broker takes them, Java's consumer reads them so: one sender's mistake stops no reader.
            key = memory.load_bytes(data, start, start + reader.key_length).decode("utf-8", "replace")
        start = reader.value_start
        headers.append(
            (key, None if reader.value_length < 0 else memory.load_bytes(data, start, start + reader.value_length))
        )
    return tuple(headers)
