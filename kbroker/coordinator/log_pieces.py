"""Reads a coordinator's partition from its start to its end, piece by piece. Blocking; for a thread.

To the log's end, not to the high watermark: what is beyond was written by a leader before us and will be committed by
us. What is damaged is told in the log and left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import HEADER_SIZE, BatchHeader, read_header
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from kbroker.protocol.records.message_set import as_batches
from kbroker.segment.log import Log

log = logging.getLogger(__name__)


def read_pieces(
    partition_log: Log, buffer_bytes: int, is_wanted: Callable[[], bool], take: Callable[[bytes, int], int]
) -> None:
    """Hand the whole log over, as long as `is_wanted` holds. Raises KafkaError when the disk fails.

    `take(batches, offset)` takes the batches from an offset on and returns the offset behind the last whole one; the
    piece may begin before the offset, and end within a batch.
    """
    offset = partition_log.log_start_offset
    while offset < partition_log.log_end_offset and is_wanted():
        data = _read(partition_log, offset, buffer_bytes)
        if data is None:
            offset += 1  # inside of a damaged batch; sooner or later the next one begins
            continue
        reached = take(data, offset)
        if reached == offset:
            log.error("%s: nothing can be read at offset %d, the rest is left out", partition_log.name, offset)
            break
        offset = reached


def _read(partition_log: Log, offset: int, buffer_bytes: int) -> bytes | None:
    """Return the batches from an offset on, None when the first is damaged (the log has said so)."""
    try:
        return bytes(as_batches(partition_log.read(offset, buffer_bytes).read()))
    except KafkaError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            return None
        raise


def header_at(data: bytes, position: int, partition_log: Log) -> BatchHeader | None:
    """Return the header of a whole batch, None where there is none (the log says so if it is damaged)."""
    if position + HEADER_SIZE > len(data):
        return None
    try:
        header = read_header(data, position)
    except (CorruptBatch, InvalidRecord) as error:
        log.error("%s: a batch cannot be read: %s", partition_log.name, error)
        return None
    return header if position + header.size <= len(data) else None
