"""Record batches changed on their way (pure): whole batches only, their records are never unpacked."""

from __future__ import annotations

import struct

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.primitives import BytesLike
from kbroker.protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    set_producer,
    split_batches,
    stamp,
    write_crc,
)

Batch = tuple[BatchHeader, BytesLike]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ATTRIBUTES_AT = 21
_LENGTH_AT = 8
_COUNT_AT = 57


def split(records: BytesLike | None) -> list[Batch]:
    """Cut records into their whole batches; none where they are of the old formats, or no batches at all."""
    if not records:
        return []
    view = memoryview(records)
    try:
        return [(read_header(view, at), view[at : at + size]) for at, size in split_batches(view)]
    except KafkaError:
        return []


def joined(batches: list[BytesLike]) -> bytes:
    """Put batches behind each other."""
    return b"".join(bytes(batch) for batch in batches)


def emptied(batch: Batch) -> bytearray:
    """Take all records out, and keep the offsets, as compaction does: readers go on behind them."""
    header, data = batch
    changed = bytearray(data[:HEADER_SIZE])
    _INT32.pack_into(changed, _LENGTH_AT, HEADER_SIZE - LOG_OVERHEAD)
    _INT32.pack_into(changed, _COUNT_AT, 0)
    _INT16.pack_into(changed, _ATTRIBUTES_AT, header.attributes & ~COMPRESSION_MASK)
    write_crc(changed, 0)
    return changed


def without_producer(batch: Batch) -> bytearray:
    """Make it a batch of nobody's: not part of a transaction, and never taken for one that was sent before."""
    header, data = batch
    changed = bytearray(data)
    _INT16.pack_into(changed, _ATTRIBUTES_AT, header.attributes & ~TRANSACTIONAL_BIT)
    set_producer(changed, 0, -1, -1, -1)
    write_crc(changed, 0)
    return changed


def moved(batch: Batch, base_offset: int) -> bytearray:
    """Give it another offset."""
    header, data = batch
    changed = bytearray(data)
    stamp(changed, 0, base_offset, header.partition_leader_epoch)
    return changed
