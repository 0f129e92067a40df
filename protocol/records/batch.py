# cython: annotation_typing=False
"""The head of a record batch (magic 2): read, check, rewrite in place. Big-endian.

     0  baseOffset int64           the only fields the CRC does not cover are the first four: a leader sets
     8  batchLength int32          baseOffset and partitionLeaderEpoch in place without a new CRC
    12  partitionLeaderEpoch int32
    16  magic int8 = 2
    17  crc uint32                 CRC-32C of everything from byte 21 to the end
    21  attributes int16           bits 0-2 compression, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
    23  lastOffsetDelta int32
    27  baseTimestamp int64        35  maxTimestamp int64
    43  producerId int64           51  producerEpoch int16       53  baseSequence int32
    57  count int32
    61  records, compressed as one piece (reader.py)

Positions are those of the batch's first byte in the buffer. Lengths are checked before they are used.
"""

from struct import Struct
from zlib import crc32

from kbroker.protocol import memory
from kbroker.protocol.records import raw
from kbroker.protocol.records.checksum import crc32c
from kbroker.protocol.records.compression import MAX_PAYLOAD_SIZE, decompress
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from kbroker.protocol.records.raw import Readable
from kbroker.protocol.records.reader import BytesLike, RecordReader

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""baseOffset and batchLength: what batchLength does not count."""

CRC_START = 21
MAGIC_POSITION = 16
_MAGIC = MAGIC_POSITION  # as a plain C number
ATTRIBUTES_POSITION = 22
"""Of their low byte, which has all bits that mean something."""
MAGIC = 2
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_LAST_BASE_OFFSET = 0x7FFFFFFF_00000000
"""No base offset may be larger, so that adding the largest delta cannot overflow 64 bits."""

RECORDS_PER_TURN = 0xFFFF
"""Whoever walks so many records lets other threads run: a mask of the record's number."""
_TURN = RECORDS_PER_TURN  # as a plain C number
_LARGE = 16384
"""Bytes of a batch: below that its CRC is computed anew as quickly as changed."""
_POLYNOMIAL = 0x82F63B78
"""CRC-32C's, the highest coefficient in the lowest bit, without x^32."""
_CRC_OF_ZEROS = crc32c(bytes(14))

HEADER = Struct(">qiibIhiqqqhii")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT16 = Struct(">h")
_PRODUCER = Struct(">qhi")
_LENGTH_TO_MAGIC = Struct(">iib")


class BatchHeader:
    """The 61 bytes in front of the records, as numbers."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "count",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        base_offset: int,
        batch_length: int,
        partition_leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        count: int,
    ) -> None:
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.partition_leader_epoch = partition_leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.count = count

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record (kept when compaction has removed that record)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """First offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """As in CompressionType; 5-7 are unknown."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime (every record then has max_timestamp)."""
        return (self.attributes & LOG_APPEND_TIME_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction."""
        return (self.attributes & TRANSACTIONAL_BIT) != 0

    @property
    def is_control(self) -> bool:
        """Holds a marker, not data."""
        return (self.attributes & CONTROL_BIT) != 0

    @property
    def has_delete_horizon(self) -> bool:
        """base_timestamp is the time from which compaction may drop the tombstones."""
        return (self.attributes & DELETE_HORIZON_BIT) != 0

    @property
    def has_producer(self) -> bool:
        """Written by an idempotent producer."""
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 without sequences."""
        if self.base_sequence < 0:
            return -1
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    def __repr__(self) -> str:
        return (
            f"BatchHeader(offsets {self.base_offset}..{self.last_offset}, {self.count} records, {self.size} bytes, "
            f"attributes {self.attributes:#x}, producer {self.producer_id}/{self.producer_epoch}/{self.base_sequence})"
        )


class RecordsSummary:
    """What a walk over a batch's records found. Timestamps are CreateTime in ms, -1 for none."""

    __slots__ = ("has_null_key", "max_timestamp", "min_timestamp", "offset_of_max_timestamp")

    def __init__(
        self, max_timestamp: int, offset_of_max_timestamp: int, min_timestamp: int, has_null_key: bool
    ) -> None:
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.min_timestamp = min_timestamp
        self.has_null_key = has_null_key


def increment_sequence(sequence: int, by: int) -> int:
    """The sequence `by` records later: 2^31-1 is followed by 0."""
    return (sequence + by) & 0x7FFFFFFF


def read_header(buffer: BytesLike, position: int = 0) -> BatchHeader:
    """Read the header at `position`; whether the whole batch (`header.size`) is there is not looked at.

    Raises CorruptBatch on fewer than 61 bytes, on a length too short for a batch, an impossible base offset and an
    unknown magic, InvalidRecord on the magics 0 and 1 of old.
    """
    return _read_header(memoryview(buffer), position)


def check_batch(buffer: BytesLike, position: int = 0, size: int = -1) -> tuple[BatchHeader, RecordsSummary | None]:
    """Check one batch as a leader must before appending it, in one call.

    `size` is the number of bytes the batch must fill exactly; with -1 others may follow it. Checked: size, magic,
    CRC (CorruptBatch), count > 0 and equal to lastOffsetDelta + 1, and all records of an uncompressed batch
    (InvalidRecord). The summary is None for a compressed batch, whose records are not looked at.
    """
    view = memoryview(buffer)
    header = _read_header(view, position)
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(view) or (size >= 0 and end - position != size):
        available = len(view) - position if size < 0 else size
        raise CorruptBatch(f"batch at {position} says it has {end - position} bytes, {available} are there")
    if _crc(view, position + CRC_START, end) != header.crc:
        raise CorruptBatch(f"batch at {position} of {end - position} bytes does not match its CRC {header.crc:#010x}")
    count = header.count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise InvalidRecord(
            f"batch at {position}: {count} records with a last offset delta of {header.last_offset_delta}"
        )
    if header.attributes & COMPRESSION_MASK:
        return header, None
    return header, _walk(header, view, position + HEADER_SIZE, end)


def verify_crc(buffer: BytesLike, position: int, size: int) -> bool:
    """Whether the CRC of the batch in buffer[position : position + size] is right (or a message of magic 0 or 1)."""
    view = memoryview(buffer)
    if position < 0 or size <= _MAGIC or size > len(view) - position:
        return False
    if raw.address(view)[position + _MAGIC] < 2:
        expected = memory.load_int32(raw.address(view), position + 12) & 0xFFFFFFFF
        return crc32(view[position + _MAGIC : position + size]) == expected
    if size < HEADER_SIZE:
        return False
    return (
        _crc(view, position + CRC_START, position + size)
        == memory.load_int32(raw.address(view), position + 17) & 0xFFFFFFFF
    )


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the offset of the first record and the leader's epoch; the CRC covers neither."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + 12, leader_epoch)


def set_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Make it a LogAppendTime batch of that time, with a new CRC. The batch must have been checked."""
    attributes = _INT16.unpack_from(buffer, position + 21)[0] | LOG_APPEND_TIME_BIT
    _INT16.pack_into(buffer, position + 21, attributes)
    set_max_timestamp(buffer, position, timestamp_ms)


def set_max_timestamp(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Write maxTimestamp and a new CRC. The batch must have been checked."""
    _INT64.pack_into(buffer, position + 35, timestamp_ms)
    write_crc(buffer, position)


def set_producer(
    buffer: bytearray | memoryview, position: int, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Write who sends the batch as which record of theirs, and a new CRC; of a large batch, whose CRC must be right.

    There the CRC is changed by what these 14 bytes change in it (it is linear), without looking at all the others.
    """
    end = position + LOG_OVERHEAD + _INT32.unpack_from(buffer, position + 8)[0]
    if end - position < _LARGE or end > len(buffer):
        _PRODUCER.pack_into(buffer, position + 43, producer_id, producer_epoch, base_sequence)
        write_crc(buffer, position)
        return
    before = bytes(buffer[position + 43 : position + 57])
    _PRODUCER.pack_into(buffer, position + 43, producer_id, producer_epoch, base_sequence)
    changed = int.from_bytes(before, "big") ^ int.from_bytes(buffer[position + 43 : position + 57], "big")
    change = crc32c(changed.to_bytes(14, "big")) ^ _CRC_OF_ZEROS
    crc = _UINT32.unpack_from(buffer, position + 17)[0] ^ followed_by(change, end - position - 57)
    _UINT32.pack_into(buffer, position + 17, crc)


def followed_by(crc: int, count: int) -> int:
    """What the CRC (without its first and last step) of some bytes becomes when `count` zeros follow them."""
    power = 0
    while count:
        if count & 1:
            crc = _product(_ZEROS[power], crc)
        count >>= 1
        power += 1
    return crc


def _product(a: int, b: int) -> int:
    """The product of two polynomials over GF(2) modulo CRC-32C's, the highest coefficient in the lowest bit."""
    product = 0
    bit = 0x80000000
    while a:
        if a & bit:
            product ^= b
            a ^= bit
        bit >>= 1
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _powers_of_zeros() -> list[int]:
    """What 1, 2, 4, 8, ... zeros multiply a CRC by: x^8, x^16, x^32, x^64, ..."""
    powers = [0x80000000 >> 8]
    while len(powers) < 32:
        powers.append(_product(powers[-1], powers[-1]))
    return powers


_ZEROS = _powers_of_zeros()


def write_crc(buffer: bytearray | memoryview, position: int) -> None:
    """Compute the CRC of the batch at `position` (its batchLength must be right) and write it."""
    end = position + LOG_OVERHEAD + _INT32.unpack_from(buffer, position + 8)[0]
    if end > len(buffer) or end < position + HEADER_SIZE:
        raise CorruptBatch(f"batch at {position} ends at {end}, the buffer at {len(buffer)}")
    _UINT32.pack_into(buffer, position + 17, _crc(memoryview(buffer), position + CRC_START, end))


def validate_records(
    buffer: BytesLike,
    position: int,
    size: int,
    max_payload_size: int = MAX_PAYLOAD_SIZE,
    output: bytearray | None = None,
) -> RecordsSummary:
    """Walk all records of the batch in buffer[position : position + size]; the CRC is not looked at.

    A compressed batch is decompressed for it, to at most `max_payload_size` bytes (else UnpacksToMore), into `output`
    where given. Raises CorruptBatch or InvalidRecord when a length, the count or an offset delta lies (deltas must be
    0, 1, 2, ...).
    """
    view = memoryview(buffer)
    header = _read_header(view, position)
    if header.size != size or size > len(view) - position:
        raise CorruptBatch(f"batch at {position} says it has {header.size} bytes, {size} are there")
    if header.compression == 0:
        return _walk(header, view, position + HEADER_SIZE, position + size)
    compressed = view[position + HEADER_SIZE : position + size]
    payload = memoryview(decompress(header.compression, compressed, max_payload_size, output))
    return _walk(header, payload, 0, len(payload))


def split_batches(buffer: BytesLike) -> list[tuple[int, int]]:
    """Position and size of each whole batch in `buffer`; a last one that is cut off is left out.

    Raises CorruptBatch (or InvalidRecord: magic 0 and 1) at a header that cannot be one.
    """
    found = []
    position = 0
    length = len(buffer)
    while length - position >= HEADER_SIZE:
        batch_length, _, magic = _LENGTH_TO_MAGIC.unpack_from(buffer, position + 8)
        _check_magic_and_length(magic, batch_length, position)
        size = batch_length + LOG_OVERHEAD
        if size > length - position:
            break
        found.append((position, size))
        position += size
    return found


def holds_messages(buffer: BytesLike) -> bool:
    """Whether there are messages of magic 0 or 1 (message_set.py) among the batches."""
    view = memoryview(buffer)
    data = raw.address(view)
    length = len(view)
    position = 0
    while length - position > _MAGIC:
        if data[position + _MAGIC] < 2:
            return True
        batch_length = memory.load_int32(data, position + 8)
        if batch_length < HEADER_SIZE - LOG_OVERHEAD:
            return False
        position += batch_length + LOG_OVERHEAD
    return False


def _check_magic_and_length(magic: int, batch_length: int, position: int) -> None:
    if magic != 2:
        if magic == 0 or magic == 1:
            raise InvalidRecord(f"batch at {position} has the old magic {magic}; only magic 2 is supported")
        raise CorruptBatch(f"batch at {position} has the unknown magic {magic}")
    if batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptBatch(f"batch at {position} has a length of {batch_length}")


def _read_header(view: memoryview, position: int) -> BatchHeader:
    if position < 0 or len(view) - position < HEADER_SIZE:
        raise CorruptBatch(f"{len(view) - position} bytes at {position} are too few for a batch header")
    data = raw.address(view)
    header = BatchHeader.__new__(BatchHeader)
    header.base_offset = memory.load_int64(data, position)
    header.batch_length = memory.load_int32(data, position + 8)
    header.partition_leader_epoch = memory.load_int32(data, position + 12)
    header.magic = _int8(data, position + 16)
    header.crc = memory.load_int32(data, position + 17) & 0xFFFFFFFF
    header.attributes = memory.load_int16(data, position + 21)
    header.last_offset_delta = memory.load_int32(data, position + 23)
    header.base_timestamp = memory.load_int64(data, position + 27)
    header.max_timestamp = memory.load_int64(data, position + 35)
    header.producer_id = memory.load_int64(data, position + 43)
    header.producer_epoch = memory.load_int16(data, position + 51)
    header.base_sequence = memory.load_int32(data, position + 53)
    header.count = memory.load_int32(data, position + 57)
    _check_magic_and_length(header.magic, header.batch_length, position)
    if header.base_offset < 0 or header.base_offset > _LAST_BASE_OFFSET:
        raise CorruptBatch(f"batch at {position} has the base offset {header.base_offset}")
    return header


def _int8(data: Readable, position: int) -> int:
    value = data[position]
    return value - 256 if value > 127 else value


def _crc(view: memoryview, start: int, end: int) -> int:
    """CRC-32C of view[start:end], within bounds."""
    value = raw.short_crc(raw.address(view), start, end)
    return crc32c(view[start:end]) if value < 0 else value


def _walk(header: BatchHeader, payload: memoryview, start: int, end: int) -> RecordsSummary:
    """Read every record of a payload whose offset deltas must be 0, 1, 2, ...; see validate_records."""
    reader = RecordReader.__new__(RecordReader)
    reader.open(payload, start, end, header.count, header.base_timestamp, header.last_offset_delta)
    max_timestamp = min_timestamp = -1
    max_index = 0
    null_keys = 0
    index = 0
    while reader.next_record():
        if reader.offset_delta != index:
            raise InvalidRecord(f"record {index} has the offset delta {reader.offset_delta}")
        timestamp = reader.timestamp
        if index == 0 or timestamp > max_timestamp:
            max_timestamp = timestamp
            max_index = index
        if index == 0 or timestamp < min_timestamp:
            min_timestamp = timestamp
        if reader.key_length < 0:
            null_keys += 1
        index += 1
        if index & _TURN == 0:
            raw.take_gil(raw.release_gil())
    summary = RecordsSummary.__new__(RecordsSummary)
    summary.max_timestamp = max_timestamp
    summary.offset_of_max_timestamp = header.base_offset + max_index
    summary.min_timestamp = min_timestamp
    summary.has_null_key = null_keys > 0
    return summary
