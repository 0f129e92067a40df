"""What becomes of a log whose disk fails."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.segment.files import Files
from kbroker.segment.log import Log
from tests.segment.batches import NOW, batch, fill, new_log


class NoSync(Files):
    """Its fsync fails once, and succeeds from then on, as the kernel's may although the data is gone."""

    __slots__ = ("before", "syncs")

    def __init__(self) -> None:
        self.syncs = 0
        self.before: Callable[[], object] = lambda: None

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        self.before()
        if self.syncs == 1:
            raise OSError(errno.EIO, "Input/output error")


def refused(log: Log) -> str:
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(), 0, NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return caught.value.message


def test_a_log_that_failed_says_why_each_time(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 1)
    log.mark_failed("its directory is offline: Input/output error")
    assert "Input/output error" in refused(log)
    assert "Input/output error" in refused(log)
    log.discard()


def test_a_failed_fsync_is_not_tried_again(tmp_path: Path) -> None:
    files = NoSync()
    log = new_log(tmp_path, files=files)
    fill(log, 1)
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            log.flush()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (files.syncs, log.recovery_point) == (1, 0)
    assert "Input/output error" in refused(log)
    log.discard()


def test_a_failed_fsync_counts_also_when_the_log_is_truncated_meanwhile(tmp_path: Path) -> None:
    files = NoSync()
    log = new_log(tmp_path, files=files)
    fill(log, 10)
    files.before = lambda: log.truncate_to(5)
    with pytest.raises(KafkaError):
        log.flush()
    assert files.syncs == 1
    log.discard()


def test_a_closed_log_says_nothing_of_its_directory(tmp_path: Path) -> None:
    told = []

    class Owner:
        def log_failed(self, failed: Log, error: OSError) -> None:
            told.append(failed)

    log = new_log(tmp_path)
    log._health._owner = Owner()  # type: ignore[assignment]
    log.discard()
    with pytest.raises(KafkaError):
        log.fail(OSError(errno.ENOENT, "gone with its folder"), "flush")
    assert told == []


def test_a_log_tells_its_name_place_and_size(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 2)
    assert (log.name, log.log_dir, log.directory) == ("orders-0", str(tmp_path), tmp_path / "orders-0")
    assert log.size == (log.directory / f"{0:020d}.log").stat().st_size
    assert (log.recovery_point, log.latest_epoch, log.failure) == (0, 0, None)
    log.close()
