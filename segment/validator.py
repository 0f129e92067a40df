"""May this batch be appended, and in which form? (Pure, as Kafka's `LogValidator`.)

The order of the checks is Kafka's, since the first that fails names the error. All records are walked, in compiled
code: a batch that says what its records do not bear out would move the log's end, and stop its consumers, for good.
Compressed ones are unpacked for it (into memory that is used again and again), to as much as the caller has time for.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from enum import IntEnum

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    RecordsSummary,
    check_batch,
    set_append_time,
    set_max_timestamp,
    validate_records,
)
from kbroker.protocol.records.checksum import crc32c
from kbroker.protocol.records.compression import (
    MAX_PAYLOAD_SIZE,
    CompressionType,
    check_lz4_frame,
    compress,
    decompress,
)
from kbroker.protocol.records.errors import UnpacksToMore
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.log_config import LogConfig

Batch = bytearray | memoryview

_LENGTH = struct.Struct(">i")
_SMALLEST_OLD_RECORD = 14
"""Bytes behind the length of a record of magic 0."""
_KEPT_BYTES = 1 << 20
"""Of the memory to unpack to, so much stays with each thread."""
_thread = threading.local()
_NOT_FOR_CLIENTS = CONTROL_BIT | LOG_APPEND_TIME_BIT


class AppendOrigin(IntEnum):
    """Who sends a batch; decides which checks apply."""

    CLIENT = 0
    COORDINATOR = 1


class RecordErrors(KafkaError):
    """Records of the batch were refused: which and why (Produce v8+ tells the client)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)
        """(index in the batch, message)"""


ValidBatch = tuple[Batch, BatchHeader, int, int]
"""A batch that may be appended (only its offsets and leader epoch are still open), its header as it arrived
(compression, size, timestamp type and max timestamp may differ by now), its max timestamp, and the append time (-1 for
CreateTime)."""


def validate(
    batch: Batch, config: LogConfig, now_ms: int, from_client: bool = True, room: int = MAX_PAYLOAD_SIZE
) -> ValidBatch:
    """Check one batch as a client (or a coordinator) sent it and bring it into the topic's form.

    Changes the batch in place (timestamp type, max timestamp, CRC). Raises KafkaError, RecordErrors; UnpacksToMore
    (and the batch is as it was) when its records unpack to more than `room` bytes and the caller could give more room.
    """
    size = len(batch)
    if (
        not HEADER_SIZE <= size <= config.max_message_bytes
        or _LENGTH.unpack_from(batch, 8)[0] != size - 12
        or batch[MAGIC_POSITION] != MAGIC
    ):
        batch = _one_batch(batch, config)
    header, summary = check_batch(batch)
    if header.base_offset != 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"base offset is {header.base_offset}, expected 0")
    if from_client and (header.attributes & _NOT_FOR_CLIENTS or header.producer_id >= 0 > header.base_sequence):
        _check_client_header(header, config)
    if summary is None:
        summary = _walk_compressed(batch, header, room)
    is_recompressed = config.compression is not None and config.compression != header.compression
    if (config.checks_records or is_recompressed) and not header.is_control:
        if config.checks_records:
            _check_records(batch, config, summary, now_ms)
        if is_recompressed:
            batch = _recompress(batch, header, config)
    if config.is_log_append_time:
        set_append_time(batch, 0, now_ms)
        return batch, header, now_ms, now_ms
    max_timestamp = header.max_timestamp
    if summary.max_timestamp != max_timestamp or header.attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = summary.max_timestamp
        batch[ATTRIBUTES_POSITION] &= ~LOG_APPEND_TIME_BIT
        set_max_timestamp(batch, 0, max_timestamp)
    return batch, header, max_timestamp, -1


def _one_batch(batch: Batch, config: LogConfig) -> Batch:
    """Exactly one batch of magic 2, of legal size; partial bytes behind it are cut off."""
    size = len(batch)
    whole = _LENGTH.unpack_from(batch, 8)[0] + 12 if size >= HEADER_SIZE else size + 1
    if size > MAGIC_POSITION and batch[MAGIC_POSITION] != MAGIC:
        magic = batch[MAGIC_POSITION]
        is_old = magic < 2 and whole - 12 >= _SMALLEST_OLD_RECORD
        code = ErrorCode.INVALID_RECORD if is_old else ErrorCode.CORRUPT_MESSAGE
        raise KafkaError(code, f"record batches must be of magic 2, not {magic}")
    if whole > size:
        raise KafkaError(ErrorCode.INVALID_RECORD, "there must be exactly one whole record batch per partition")
    if whole < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch length {whole - 12} is too small")
    if whole > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {whole} bytes exceeds max.message.bytes = {config.max_message_bytes}",
        )
    if whole == size:
        return batch
    following = size - whole
    if following >= 12 and _LENGTH.unpack_from(batch, whole + 8)[0] + 12 <= following:
        raise KafkaError(ErrorCode.INVALID_RECORD, "there must be exactly one record batch per partition")
    return memoryview(batch)[:whole]


def _walk_compressed(batch: Batch, header: BatchHeader, room: int) -> RecordsSummary:
    if header.compression > CompressionType.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no compression type has the number {header.compression}"
        )
    memory: bytearray = getattr(_thread, "memory", None) or bytearray()
    _thread.memory = None
    try:
        if header.compression == CompressionType.LZ4:
            check_lz4_frame(memoryview(batch)[HEADER_SIZE:])
        summary = validate_records(batch, 0, len(batch), room, memory)
    except KafkaError as error:
        if isinstance(error, UnpacksToMore) and room < MAX_PAYLOAD_SIZE:
            raise
        message = error.message
    else:
        if len(memory) <= _KEPT_BYTES:
            _thread.memory = memory
        return summary
    # Damage below a CRC that is right is the producer's work: unlike CORRUPT_MESSAGE it is not to be sent again.
    raise KafkaError(ErrorCode.INVALID_RECORD, message)


def _check_client_header(header: BatchHeader, config: LogConfig) -> None:
    if header.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not send control batches")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"base sequence {header.base_sequence} of producer {header.producer_id} is invalid",
        )
    if config.is_log_append_time:  # else it is taken for CreateTime, as Kafka does
        message = "the timestamp type LogAppendTime is the broker's to set"
        raise RecordErrors(ErrorCode.INVALID_TIMESTAMP, message, [(0, message)])


def _check_records(batch: Batch, config: LogConfig, summary: RecordsSummary, now_ms: int) -> None:
    """Compacted topics want keys, others may limit timestamps; only a violation is looked at record by record."""
    if config.is_compacted and summary.has_null_key:
        errors = [
            (number, "a compacted topic needs a key in every record")
            for number, record in enumerate(decode_batch(batch, 0, len(batch)))
            if record.key is None
        ]
        raise RecordErrors(ErrorCode.INVALID_RECORD, "one or more records have been rejected", errors)
    if config.is_log_append_time:
        return
    oldest = now_ms - config.timestamp_before_max_ms
    newest = now_ms + config.timestamp_after_max_ms
    if summary.min_timestamp >= oldest and summary.max_timestamp <= newest:
        return
    errors = [
        (number, f"timestamp {record.timestamp} is outside of the allowed range [{oldest}, {newest}]")
        for number, record in enumerate(decode_batch(batch, 0, len(batch)))
        if record.timestamp >= 0 and not oldest <= record.timestamp <= newest
    ]
    if errors:
        raise RecordErrors(
            ErrorCode.INVALID_TIMESTAMP, "one or more records have been rejected due to invalid timestamp", errors
        )


def _recompress(batch: Batch, header: BatchHeader, config: LogConfig) -> bytearray:
    """The same records under the topic's compression."""
    payload = memoryview(batch)[HEADER_SIZE:]
    if header.compression != CompressionType.NONE:
        payload = memoryview(decompress(header.compression, payload))
    assert config.compression is not None
    if config.compression != CompressionType.NONE:
        payload = memoryview(compress(config.compression, payload, config.compression_level))
    rebuilt = bytearray(batch[:HEADER_SIZE])
    rebuilt += payload
    if len(rebuilt) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(rebuilt)} bytes as {config.compression_type},"
            f" which exceeds max.message.bytes = {config.max_message_bytes}",
        )
    _LENGTH.pack_into(rebuilt, 8, len(rebuilt) - 12)
    struct.pack_into(">H", rebuilt, 21, (header.attributes & ~COMPRESSION_MASK) | config.compression)
    struct.pack_into(">I", rebuilt, 17, crc32c(memoryview(rebuilt)[21:]))
    return rebuilt
