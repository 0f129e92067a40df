"""Closed segments reach the disk by themselves."""

import threading
from pathlib import Path

from kbroker.segment.background_flush import BackgroundFlush
from kbroker.segment.files import Files
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import fill, new_log

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=50)


class Stalling(Files):
    """A disk that stands still."""

    __slots__ = ("goes_on", "is_asked")

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.is_asked = threading.Event()

    def sync(self, descriptor: int) -> None:
        self.is_asked.set()
        assert self.goes_on.wait(20)


def test_a_disk_that_stands_still_holds_up_no_other_and_no_appender(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    stalling = Stalling()
    slow, quick = new_log(tmp_path / "a", SMALL, stalling), new_log(tmp_path / "b", SMALL)
    background = BackgroundFlush()
    for log in (slow, quick):
        fill(log, 20)
        background.add(log)
    assert stalling.is_asked.wait(20)
    deadline = threading.Event()
    while quick.recovery_point < quick.active_segment.base_offset:
        assert not deadline.wait(0.01)
    fill(slow, 20)
    assert slow.recovery_point == 0
    background.add(slow)
    stalling.goes_on.set()
    background.finish()
    assert slow.recovery_point == slow.active_segment.base_offset
    background.close()
    slow.close()
    quick.close()


def test_logs_that_were_closed_meanwhile_are_passed_over(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 20)
    log.discard()
    background = BackgroundFlush()
    background.add(log)
    background.close()
    background.add(log)
    assert (log.recovery_point, background._threads) == (0, {})
