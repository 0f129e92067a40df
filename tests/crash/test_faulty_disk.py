"""A disk that fails in the middle of anything: what was acknowledged is there afterwards, nothing torn is served."""

import errno
from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import split_batches
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from tests.crash.faults import FaultyFiles
from tests.segment.batches import NOW, batch, new_log, reopen

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=50)


def run_until_failure(log: Log) -> int:
    """Append, flush now and then, until the disk fails; how many batches were acknowledged."""
    acknowledged = 0
    try:
        for number in range(30):
            log.append_as_leader(
                batch(2, timestamp=NOW + number, producer_id=3, producer_epoch=0, base_sequence=2 * number), 1, NOW
            )
            acknowledged += 1
            if number % 7 == 6:
                log.flush()
        log.close()
    except KafkaError as error:
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR or not log.failure:
            raise
        with pytest.raises(KafkaError):
            log.append_as_leader(batch(), 1, NOW)
        log.discard()
    except OSError:
        log.discard()
    return acknowledged


def check(path: Path, acknowledged: int) -> None:
    log = reopen(path, SMALL)
    assert 2 * acknowledged <= log.log_end_offset <= 2 * acknowledged + 2
    seen: list[int] = []
    while len(seen) < log.log_end_offset:
        data = log.read(len(seen), 10_000).read()
        for position, size in split_batches(data):
            seen += [record.offset for record in decode_batch(data, position, size)]
    assert seen == list(range(log.log_end_offset))
    following = log.log_end_offset
    log.append_as_leader(batch(2, producer_id=3, producer_epoch=0, base_sequence=following), 2, NOW)
    log.close()


def test_writes_cut_short_by_the_kernel_are_continued(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL, FaultyFiles(short=True))
    assert run_until_failure(log) == 30
    check(tmp_path, 30)


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("keep", [0, 40, 100])
def test_every_call_may_fail_and_nothing_acknowledged_is_lost(tmp_path: Path, code: int, keep: int) -> None:
    calls = FaultyFiles()
    (tmp_path / "all").mkdir()
    run_until_failure(new_log(tmp_path / "all", SMALL, calls))
    for fail_at in range(5, calls.calls + 1, 3 if keep == 40 else 7):
        path = tmp_path / str(fail_at)
        path.mkdir()
        files = FaultyFiles(fail_at, code, keep)
        log = new_log(path, SMALL, files)
        check(path, run_until_failure(log))


def test_a_failure_is_told_once_with_the_directory(tmp_path: Path) -> None:
    from kbroker.segment.files import FilePool
    from kbroker.segment.recovery import LogSetup, create_log
    from kbroker.segment.trash import Trash

    files = FaultyFiles(9, errno.ENOSPC)
    pool = FilePool(files)
    told: list[tuple[str, int | None]] = []

    class Owner:
        def log_failed(self, failed: Log, error: OSError) -> None:
            told.append((failed.log_dir, error.errno))

        def log_rolled(self, rolled: Log) -> None: ...
        def log_cut(self, cut: Log, offset: int) -> None: ...

    setup = LogSetup(pool, Trash(files), NOW, owner=Owner())
    log = create_log(setup, str(tmp_path / "orders-0"), "orders", 0, SMALL, bytes(15) + b"1")
    run_until_failure(log)
    assert told == [(str(tmp_path), errno.ENOSPC)]
