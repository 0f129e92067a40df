"""The process ends, or the power fails, at any step of a compaction: nothing that counts is lost or comes back."""

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kbroker.protocol.records.control import ControlType
from kbroker.segment.files import Buffer
from kbroker.segment.log import Log
from kbroker.segment.recovery import KnownOffsets
from tests.crash.power import PowerFailing
from tests.segment.batches import close_all, reopen
from tests.segment.compaction import COMPACTED, clean, compacted_log, end_transaction, headers, put, roll, values

CONFIG = replace(COMPACTED, segment_bytes=1_500, delete_retention_ms=10**9)


class Stopped(BaseException):
    """The end of the process."""


class StoppingFiles(PowerFailing):
    """Calls `before_stop` instead of the n-th call that changes the disk, and ends there."""

    __slots__ = ("before_stop", "calls", "stop_at")

    def __init__(self, stop_at: int) -> None:
        super().__init__()
        self.calls = 0
        self.stop_at = stop_at
        self.before_stop: Callable[[], object] | None = None

    def _count(self) -> None:
        if self.before_stop is None:
            return
        self.calls += 1
        if self.calls == self.stop_at:
            self.before_stop()
            raise Stopped

    def pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        self._count()
        return os.pwrite(descriptor, data, position)

    def sync(self, descriptor: int) -> None:
        self._count()
        super().sync(descriptor)

    def sync_folder(self, path: str) -> None:
        self._count()
        super().sync_folder(path)

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._count()
        return super().open(path, flags)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)


def written(path: Path, files: StoppingFiles) -> Log:
    """A log in which nearly everything can go; all of it is on the disk."""
    path.mkdir()
    log = compacted_log(path, CONFIG, files)
    for number in range(40):
        put(log, (f"key-{number % 5}", f"value-{number}"), producer=(7, 0, number))
    put(log, ("key-0", "aborted"), producer=(8, 0, 0), transactional=True)
    end_transaction(log, ControlType.ABORT, 8)
    put(log, ("key-1", None))
    roll(log)
    put(log, ("key-2", "in the active segment"))
    log.flush()
    return log


def latest(log: Log) -> dict[str, tuple[int, str | None]]:
    return {key: (offset, value) for offset, key, value in values(log) if value != "aborted"}


def stop_at(number: int, path: Path, snapshot: Callable[[StoppingFiles, Path], object]) -> int:
    """Compact, end at a call, let `snapshot` make what is left; how many calls there were."""
    files = StoppingFiles(number)
    log = written(path, files)
    files.before_stop = lambda: snapshot(files, path)
    with contextlib.suppress(Stopped):
        clean(log)
    files.before_stop = None
    log.discard()
    close_all(log)
    return files.calls


def check(target: Path, expected: dict[str, tuple[int, str | None]], end: int) -> None:
    up_to = end - 1  # where it may come to: one below that is on disk before
    known = KnownOffsets(False, up_to - 1, 0, end, has_lost_power=True)
    for _ in range(2):
        again = reopen(target, CONFIG, **{name: getattr(known, name) for name in KnownOffsets.__dataclass_fields__})
        assert (latest(again), again.log_end_offset) == (expected, end)
        assert again.producers.newest_batches() == {7: (39, 0), 8: (40, 0)}
        names = os.listdir(target / "orders-0")
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        clean(again)
        assert latest(again) == expected
        assert len(headers(again)) <= 12
        again.close()
        close_all(again)


def steps(tmp_path: Path) -> tuple[int, dict[str, tuple[int, str | None]], int]:
    """How many calls a compaction makes, what must be there after any of them, and where the log ends."""
    log = written(tmp_path / "whole", StoppingFiles(-1))
    expected, end = latest(log), log.log_end_offset
    log.close()
    count = stop_at(-1, tmp_path / "counted", lambda files, path: None)
    assert count > 40
    return count, expected, end


@pytest.mark.slow
def test_a_process_that_ends_at_any_step_of_a_compaction_leaves_a_whole_log(tmp_path: Path) -> None:
    count, expected, end = steps(tmp_path)
    for number in range(1, count + 1):
        target = tmp_path / f"after-{number}"
        stop_at(number, tmp_path / str(number), lambda files, path: shutil.copytree(path, target))  # noqa: B023
        check(target, expected, end)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 1, 2], ids=["all is lost", "some is kept", "other is kept"])
def test_the_power_may_fail_at_any_step_of_a_compaction(tmp_path: Path, seed: int | None) -> None:
    count, expected, end = steps(tmp_path)
    rng = None if seed is None else Random(seed)

    def power_loss(files: StoppingFiles, path: Path) -> None:
        target = path.with_name(f"after-{path.name}")
        target.mkdir()
        files.power_loss(path, target, rng)

    for number in range(1, count + 1):
        stop_at(number, tmp_path / str(number), power_loss)
        check(tmp_path / f"after-{number}", expected, end)
