"""Logs to compact, and what is in them afterwards."""

from pathlib import Path

from kbroker.protocol.records.batch import BatchHeader, read_header, split_batches
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.compression import CompressionType
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.protocol.records.record import Record, decode_batch
from kbroker.segment.cleaning import Cleaning, CleaningLimits, CleaningStats
from kbroker.segment.cleaning_plan import examine
from kbroker.segment.files import Files
from kbroker.segment.log import AppendOrigin, Log
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, new_log

COMPACTED = LogConfig(cleanup_policy=("compact",), segment_bytes=2_000, index_interval_bytes=100)
LIMITS = CleaningLimits(map_bytes=1 << 20, load_factor=0.9, chunk_bytes=4096)

Pair = tuple[str, str | None]


def put(
    log: Log,
    *pairs: Pair,
    timestamp: int = NOW,
    compression: CompressionType = CompressionType.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    epoch: int = 0,
) -> None:
    """Append a batch of (key, value); everything is replicated at once. `producer`: id, epoch, sequence."""
    builder = BatchBuilder(1 << 20, compression)
    for key, value in pairs:
        assert builder.append(key.encode(), None if value is None else value.encode(), (), timestamp)
    log.append_as_leader(builder.build(*producer, transactional), epoch, NOW)
    log.update_high_watermark(log.log_end_offset)


def end_transaction(log: Log, control_type: ControlType, producer_id: int, epoch: int = 0) -> None:
    log.append_as_leader(control_batch(control_type, producer_id, epoch, 0, NOW), 0, NOW, AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)


def roll(log: Log, now_ms: int = NOW) -> None:
    """Let what was appended so far be cleanable."""
    with log.changing("roll"):
        log._roll(log.log_end_offset, now_ms)


def compacted_log(path: Path, config: LogConfig = COMPACTED, files: Files | None = None) -> Log:
    return new_log(path, config, files)


def clean(log: Log, now_ms: int = NOW, limits: CleaningLimits = LIMITS) -> CleaningStats:
    """Compact what there is to compact, due or not."""
    return Cleaning(examine(log, now_ms), limits, now_ms, lambda size: None).run()


def headers(log: Log) -> list[BatchHeader]:
    """All batches."""
    return [header for segment in log.segments for _, header in segment.headers()]


def records(log: Log, with_markers: bool = False) -> list[Record]:
    """All records, read as a consumer reads that starts at the beginning."""
    found: list[Record] = []
    position = log.log_start_offset
    while position < log.log_end_offset:
        data = log.read(position, 1 << 20).read()
        if not data:
            break
        for start, size in split_batches(data):
            header = read_header(data, start)
            if with_markers or not header.is_control:
                found += [record for record in decode_batch(data, start, size) if record.offset >= position]
            position = header.next_offset
    return found


def values(log: Log) -> list[tuple[int, str, str | None]]:
    """(offset, key, value) of all data records."""
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for record in records(log)
    ]
