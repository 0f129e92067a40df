"""Whether a directory's disk keeps up."""

import time
from pathlib import Path

import pytest

from kbroker.segment.disk_pace import REMEMBERED_S, SLOW_S, DiskPace
from kbroker.segment.files import FilePool, Files, Folder, PooledFile
from kbroker.segment.log_dir import LogDir


class Clock:
    """Of the test's own."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_a_disk_is_slow_for_a_while_after_a_call_that_took_long(clock: Clock) -> None:
    pace = DiskPace()
    with pace.timed():
        clock.now += SLOW_S / 2
    seen = [pace.is_slow]
    begun = clock.now
    clock.now += SLOW_S
    pace.note(begun)
    for seconds in (0, REMEMBERED_S - 1, 1):
        clock.now += seconds
        seen.append(pace.is_slow)
    assert seen == [False, True, True, False]


def test_a_disk_is_slow_while_a_call_takes_long_that_is_not_over(clock: Clock) -> None:
    pace = DiskPace()
    with pace.timed():
        quick = pace.is_slow
        clock.now += SLOW_S
        assert (quick, pace.is_slow) == (False, True)


class Behind(Files):
    """A disk for whose every call of one kind the clock goes on."""

    __slots__ = ("clock", "kind")

    def __init__(self, clock: Clock, kind: str) -> None:
        self.clock, self.kind = clock, kind

    def _take(self, kind: str) -> None:
        if kind == self.kind:
            self.clock.now += SLOW_S

    def open(self, path: str, flags: int) -> int:
        self._take("open")
        return super().open(path, flags)

    def write_all(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
        self._take("write")
        super().write_all(descriptor, data, position)

    def rename(self, source: str, target: str) -> None:
        self._take("rename")
        super().rename(source, target)

    def sync(self, descriptor: int) -> None:
        self._take("sync")
        super().sync(descriptor)


@pytest.mark.parametrize("kind", ["open", "write", "rename", "nothing"])
def test_whoever_opens_writes_or_renames_a_file_notices(tmp_path: Path, clock: Clock, kind: str) -> None:
    pool = FilePool(Behind(clock, kind), capacity=4)
    file = PooledFile(pool, Folder(str(tmp_path)), "f", create=True)
    file.write(b"x", 0)
    pool.rename(file, "g")
    file.close()
    assert pool.pace.is_slow is (kind != "nothing")


def test_how_long_a_checkpoint_takes_to_reach_the_disk_says_nothing(tmp_path: Path, clock: Clock) -> None:
    directory = LogDir(str(tmp_path), Behind(clock, "sync"))
    before = clock.now
    directory.write_offsets("recovery-point-offset-checkpoint", {("t", 0): 1})
    assert clock.now > before
    assert not directory.pace.is_slow
