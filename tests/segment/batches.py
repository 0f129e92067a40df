"""Batches and logs for the storage tests."""

from pathlib import Path

from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.compression import CompressionType
from kbroker.segment.files import FilePool, Files
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.recovery import KnownOffsets, LogSetup, create_log, open_log
from kbroker.segment.trash import Trash
from tests.protocol.records.old_messages import message, wrapper

NOW = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


def batch(
    count: int = 1,
    size: int = 50,
    timestamp: int = NOW,
    key: bytes | None = b"key",
    compression: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A batch as a producer sends it."""
    builder = BatchBuilder(1 << 24, compression)
    for number in range(count):
        assert builder.append(key, b"v" * size, (), timestamp + number)
    return builder.build(producer_id, producer_epoch, base_sequence, transactional)


def setup(files: Files | None = None) -> LogSetup:
    pool = FilePool(files)
    return LogSetup(pool, Trash(pool.files), NOW)


def new_log(path: Path, config: LogConfig | None = None, files: Files | None = None) -> Log:
    return create_log(setup(files), str(path / "orders-0"), "orders", 0, config or LogConfig(), TOPIC_ID)


def reopen(path: Path, config: LogConfig | None = None, files: Files | None = None, **known: object) -> Log:
    """Open what is on disk; not clean unless said so."""
    offsets = KnownOffsets(**known)  # type: ignore[arg-type]
    return open_log(setup(files), str(path / "orders-0"), "orders", 0, config or LogConfig(), offsets)


def close_all(log: Log) -> None:
    """Close also what was deleted, or was being made, as the end of a process does."""
    pool = log.disk.pool
    for file in list(pool._open):
        pool.close(file)
    assert len(pool) == 0


def fill(log: Log, batches: int, count: int = 1, size: int = 50, epoch: int = 0, timestamp: int = NOW) -> None:
    for number in range(batches):
        log.append_as_leader(batch(count, size, timestamp + number), epoch, NOW)
    log.update_high_watermark(log.log_end_offset)


def write_in_transaction(log: Log, sequence: int) -> None:
    """A batch of producer 5's."""
    data = batch(1, producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True)
    log.append_as_leader(data, 0, NOW)


def put_segment(path: Path, base_offset: int, data: bytes) -> Path:
    """A segment without indexes in the folder of orders-0, as another broker may have left it."""
    folder = path / "orders-0"
    folder.mkdir(exist_ok=True)
    file = folder / f"{base_offset:020d}.log"
    file.write_bytes(data)
    return file


def old_messages(count: int, magic: int = 1, first: int = 0) -> bytes:
    """Messages of old: single ones, and every fourth time three that are compressed."""
    data = b""
    offset = first
    while offset < first + count:
        if offset % 4 == 1:
            times = [NOW + offset + number for number in range(3)]
            rows = [(b"k", b"%d" % (offset + number)) for number in range(3)]
            data += wrapper(magic, offset, list(rows), CompressionType.GZIP, times)
            offset += 3
        else:
            data += message(magic, offset, b"k", b"%d" % offset, NOW + offset)
            offset += 1
    return data
