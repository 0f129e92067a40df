"""Messages as they were before there were record batches (magic 0 and 1): read, checked, shown as batches.

     0  offset int64
     8  size int32               of what follows
    12  crc uint32               CRC-32 (not C) of everything from byte 16 to the end
    16  magic int8               0, or 1 (Kafka 0.10: timestamps, KIP-32)
    17  attributes int8          bits 0-2 compression (none, gzip, snappy, lz4), 3 LogAppendTime (magic 1)
    18  timestamp int64          magic 1 only
        keyLength int32 (-1 null) key  valueLength int32 (-1 null) value

The value of a compressed message is a row of messages of the same magic, compressed as one piece; its offset is that of
the last of them. Inside, offsets are absolute (magic 0) or count from any number on (magic 1). With LogAppendTime the
outer timestamp holds for all.

Segments from such times are kept and served as they are, as Kafka 4 does: brokers only look at the heads. For them a
message, compressed or not, is a batch whose only offset is its last. Clients make batches of what they fetched.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from kbroker.protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    holds_messages,
    read_header,
    write_crc,
)
from kbroker.protocol.records.compression import MAX_PAYLOAD_SIZE, CompressionType, decompress
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from kbroker.protocol.records.reader import BytesLike

SMALLEST_MESSAGE = 26
"""Bytes of one of magic 0 without key and value."""
NO_TIMESTAMP = -1

_HEAD = Struct(">qiIbb")
_TIMED_HEAD = Struct(">qiIbbq")
_INT32 = Struct(">i")
_LENGTHS = (14, 22)
"""The smallest size field, by magic."""
_ROWS_OF_A_BATCH = 1000
_FAR = 1 << 30
"""Offsets farther apart are not put into one batch."""


class Message(NamedTuple):
    """One message, taken out of its wrapper if there was one."""

    offset: int
    timestamp: int
    """-1: magic 0."""
    timestamp_type: int
    key: bytes | None
    value: bytes | None


def has_header(buffer: BytesLike, position: int) -> bool:
    """Whether enough bytes are there for `read_any_header`."""
    rest = len(buffer) - position
    return rest >= HEADER_SIZE or (rest >= SMALLEST_MESSAGE and buffer[position + MAGIC_POSITION] < 2)


def read_any_header(buffer: BytesLike, position: int = 0) -> BatchHeader:
    """The header of the batch or message at `position`, as batch.read_header; CorruptBatch where there is none.

    A message's has its offset as base and last offset and one record; what a compressed one holds is not looked at.
    """
    if len(buffer) - position > MAGIC_POSITION and buffer[position + MAGIC_POSITION] < 2:
        return _read_message_header(memoryview(buffer), position)
    return read_header(buffer, position)


def _read_message_header(view: memoryview, position: int) -> BatchHeader:
    if len(view) - position < SMALLEST_MESSAGE:
        raise CorruptBatch(f"{len(view) - position} bytes at {position} are too few for a message")
    offset, length, crc, magic, attributes, timestamp = (*_HEAD.unpack_from(view, position), NO_TIMESTAMP)
    if length < _LENGTHS[magic]:
        raise CorruptBatch(f"message at {position} has a length of {length}")
    if offset < 0:
        raise CorruptBatch(f"message at {position} has the offset {offset}")
    if magic:
        timestamp = _TIMED_HEAD.unpack_from(view, position)[5]
        attributes &= COMPRESSION_MASK | LOG_APPEND_TIME_BIT
    else:
        attributes &= COMPRESSION_MASK
    return BatchHeader(offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1)


def messages(buffer: BytesLike, position: int, size: int, max_payload_size: int = MAX_PAYLOAD_SIZE) -> list[Message]:
    """The message in buffer[position : position + size], or those inside of it. Raises CorruptBatch, InvalidRecord."""
    view = memoryview(buffer)[position : position + size]
    header = _read_message_header(view, 0)
    outer = _message(view, header)
    if header.compression == CompressionType.NONE:
        return [outer]
    if header.compression > CompressionType.LZ4 or outer.value is None:
        raise InvalidRecord(f"message at offset {outer.offset} is compressed in no way that there is")
    data = outer.value if header.magic or header.compression != CompressionType.LZ4 else _mend_lz4(outer.value)
    found = _inner(memoryview(decompress(header.compression, data, max_payload_size)), header)
    shift = outer.offset - found[-1].offset
    if header.magic == 0 and shift:
        raise InvalidRecord(f"message at offset {outer.offset} holds others up to {found[-1].offset}")
    if header.timestamp_type:
        found = [each._replace(timestamp=outer.timestamp, timestamp_type=1) for each in found]
    return [each._replace(offset=each.offset + shift) for each in found] if shift else found


def _inner(view: memoryview, outer: BatchHeader) -> list[Message]:
    found: list[Message] = []
    position = 0
    while position < len(view):
        header = _read_message_header(view, position)
        if header.magic != outer.magic or header.compression:
            raise InvalidRecord(f"message at offset {outer.base_offset} holds one of another kind")
        found.append(_message(view[position : position + header.size], header))
        position += header.size
    if not found:
        raise InvalidRecord(f"message at offset {outer.base_offset} is compressed and empty")
    if any(later.offset <= earlier.offset for earlier, later in pairwise(found)):
        raise InvalidRecord(f"offsets inside of the message at {outer.base_offset} do not ascend")
    return found


def _message(view: memoryview, header: BatchHeader) -> Message:
    if header.size != len(view):
        raise CorruptBatch(f"message at offset {header.base_offset} says it has {header.size} bytes of {len(view)}")
    if crc32(view[MAGIC_POSITION:]) != header.crc:
        raise CorruptBatch(f"message at offset {header.base_offset} does not match its CRC")
    key, position = _bytes_at(view, 26 if header.magic else 18)
    value, position = _bytes_at(view, position)
    if position != len(view):
        raise InvalidRecord(f"message at offset {header.base_offset}: {len(view) - position} bytes too many")
    return Message(header.base_offset, header.max_timestamp, header.timestamp_type, key, value)


def _bytes_at(view: memoryview, position: int) -> tuple[bytes | None, int]:
    length = _INT32.unpack_from(view, position)[0] if len(view) - position >= 4 else -2
    position += 4
    if length < -1 or length > len(view) - position:
        raise InvalidRecord(f"a message's key or value of {length} bytes with {len(view) - position} left")
    return (None, position) if length < 0 else (bytes(view[position : position + length]), position + length)


def _mend_lz4(frame: bytes) -> bytes:
    """With the header checksum that the frame should have: Kafka's, in magic 0, covers the frame's magic, too."""
    end = 6 + (8 if len(frame) > 4 and frame[4] & 0x08 else 0)
    if len(frame) <= end:
        raise InvalidRecord("an LZ4 frame that is cut short")
    return frame[:end] + bytes([_short_xxh32(frame[4:end]) >> 8 & 0xFF]) + frame[end + 1 :]


def _short_xxh32(data: bytes) -> int:
    """xxHash32 of less than 16 bytes, seed 0."""
    value = 374761393 + len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        value = _rotate(value + int.from_bytes(data[at : at + 4], "little") * 3266489917, 17) * 668265263
    for byte in data[whole:]:
        value = _rotate(value + byte * 374761393, 11) * 2654435761
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * 2246822519 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 3266489917 & 0xFFFFFFFF
    return value ^ value >> 16


def _rotate(value: int, by: int) -> int:
    value &= 0xFFFFFFFF
    return (value << by | value >> 32 - by) & 0xFFFFFFFF


# ---------------------------------------------------------------------- as batches


def as_batches(records: BytesLike) -> BytesLike:
    """What was fetched, if it holds nothing but batches (of today); else the same `to_batches`."""
    return to_batches(records) if holds_messages(records) else records


def to_batches(records: BytesLike) -> bytes:
    """The same records in batches of magic 2: messages made anew, with their offsets, and batches as they are.

    What is cut off at the end is left out. A message that cannot be read becomes a batch that does not match its CRC,
    so that who reads on names its offset.
    """
    view = memoryview(records)
    made = bytearray()
    waiting: list[Message] = []
    position = 0
    while has_header(view, position):
        try:
            header = read_any_header(view, position)
        except CorruptBatch:
            return bytes(made + _batch_of(waiting) + view[position:])  # the decoder says what is wrong
        if header.size > len(view) - position:
            break
        found: list[Message] = []
        whole: BytesLike = b""
        if header.magic == 2:
            whole = view[position : position + header.size]
        else:
            try:
                found = messages(view, position, header.size)
            except (CorruptBatch, InvalidRecord):
                whole = _unreadable(header)
        if whole or not _fit(waiting, found):
            made += _batch_of(waiting)
            waiting = []
        made += whole
        waiting += found
        position += header.size
    return bytes(made + _batch_of(waiting))


def _fit(some: list[Message], more: list[Message]) -> bool:
    """Whether they may be in one batch: it has one timestamp type, and of the broker's timestamps one."""
    if not some:
        return True
    first, last = some[0], more[-1]
    return (
        len(some) < _ROWS_OF_A_BATCH
        and last.offset - first.offset < _FAR
        and first.timestamp_type == last.timestamp_type
        and (not first.timestamp_type or first.timestamp == last.timestamp)
        and (first.timestamp < 0) == (last.timestamp < 0)
    )


def _batch_of(rows: list[Message]) -> bytearray:
    if not rows:
        return bytearray()
    first = rows[0]
    newest = max(row.timestamp for row in rows)
    batch = bytearray(HEADER_SIZE)
    for row in rows:
        body = b"\0" + _varint(row.timestamp - first.timestamp) + _varint(row.offset - first.offset)
        for cell in (row.key, row.value):
            body += b"\1" if cell is None else _varint(len(cell)) + cell
        batch += _varint(len(body) + 1) + body + b"\0"
    attributes = LOG_APPEND_TIME_BIT if first.timestamp_type else 0
    delta = rows[-1].offset - first.offset
    fields = (first.offset, len(batch) - LOG_OVERHEAD, -1, MAGIC, 0, attributes, delta, first.timestamp, newest)
    HEADER.pack_into(batch, 0, *fields, -1, -1, -1, len(rows))
    write_crc(batch, 0)
    return batch


def _unreadable(header: BatchHeader) -> bytearray:
    batch = bytearray(HEADER_SIZE)
    timestamp = header.max_timestamp
    fields = (header.base_offset, HEADER_SIZE - LOG_OVERHEAD, -1, 2, 0, 0, 0, timestamp, timestamp, -1, -1, -1, 1)
    HEADER.pack_into(batch, 0, *fields)
    write_crc(batch, 0)
    batch[17] ^= 0xFF
    return batch


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    number = bytearray()
    while rest > 127:
        number.append(rest & 127 | 128)
        rest >>= 7
    number.append(rest)
    return bytes(number)
