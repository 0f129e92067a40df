"""The threads that compact: which log, what happens to the others when one fails, checkpoints, settings, the end."""

import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.segment.cleaner import LogCleaner, LogCleanerSettings
from kbroker.segment.files import Files
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_manager import LogManager
from tests.segment.batches import NOW, TOPIC_ID, batch, old_messages, put_segment
from tests.segment.compaction import COMPACTED, put, roll, values
from tests.segment.test_threads import are_nicer

CLUSTER = "n1-C8GQvSGOSPdVHP5ZRkw"
QUICK = LogCleanerSettings(log_cleaner_backoff_ms=20, log_cleaner_dedupe_buffer_size=1 << 20)


def managed(path: Path, *topics: str, config: LogConfig = COMPACTED, files: Files | None = None) -> LogManager:
    manager = LogManager([path], clock=lambda: NOW, files=files)
    manager.open(1, CLUSTER)
    manager.load(lambda topic: config)
    for topic in topics:
        fill(manager.create(topic, 0, TOPIC_ID, config))
    return manager


def fill(log: Log, count: int = 20) -> None:
    for number in range(count):
        put(log, ("a", f"{number}"))
    roll(log)


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_one_turn_compacts_the_dirtiest_log_and_writes_the_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = managed(tmp_path, "orders")
    cleaner = LogCleaner(manager, clock=lambda: NOW)
    with caplog.at_level(logging.INFO):
        assert cleaner.clean_dirtiest()
    assert values(manager.logs["orders", 0]) == [(19, "a", "19")]
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 20\n"
    assert "orders-0: compacted [0, 20): read 0.0 MB (20 records), kept 0.0 MB (1 records, 95% smaller)" in caplog.text
    assert not cleaner.clean_dirtiest()
    manager.shutdown()
    again = managed(tmp_path)
    assert again.logs["orders", 0].first_dirty_offset == 20
    assert not LogCleaner(again, clock=lambda: NOW).clean_dirtiest()
    again.shutdown()


def test_logs_that_are_only_deleted_from_are_left_alone(tmp_path: Path) -> None:
    manager = managed(tmp_path, "orders", config=replace(COMPACTED, cleanup_policy=("delete",)))
    assert not LogCleaner(manager).clean_dirtiest()
    assert len(values(manager.logs["orders", 0])) == 20
    manager.shutdown()


def test_retention_goes_on_where_both_are_asked_for(tmp_path: Path) -> None:
    both = replace(COMPACTED, cleanup_policy=("compact", "delete"), retention_ms=1000)
    manager = managed(tmp_path, "orders", config=both)
    assert LogCleaner(manager).clean_dirtiest()
    assert len(values(manager.logs["orders", 0])) == 1
    manager.retention(NOW + 2000)
    assert values(manager.logs["orders", 0]) == []
    manager.shutdown()


def test_a_damaged_log_is_left_alone_and_the_others_go_on(tmp_path: Path) -> None:
    manager = managed(tmp_path, "bad", "good")
    bad = manager.logs["bad", 0]
    path = bad.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    cleaner = LogCleaner(manager, QUICK)
    cleaner.start()
    until(lambda: len(values(manager.logs["good", 0])) == 1)
    until(lambda: cleaner.uncleanable == ["bad-0"])
    assert path.read_bytes() == data
    manager.delete([("bad", 0)])
    until(lambda: not cleaner.uncleanable)
    fill(manager.create("bad", 0, bytes(15) + b"n", COMPACTED))
    until(lambda: len(values(manager.logs["bad", 0])) == 1)
    cleaner.stop()
    manager.shutdown()


def test_several_threads_compact_several_logs_while_they_are_written(tmp_path: Path) -> None:
    topics = [f"t{number}" for number in range(6)]
    manager = managed(tmp_path, *topics, config=replace(COMPACTED, min_cleanable_dirty_ratio=0.01))
    cleaner = LogCleaner(manager, replace(QUICK, log_cleaner_threads=3))
    cleaner.start()
    for _ in range(10):
        for topic in topics:
            fill(manager.logs[topic, 0], 10)
    until(lambda: all(log.first_dirty_offset == 120 for log in manager.logs.values()))
    cleaner.stop()
    assert all(values(log) == [(119, "a", "9")] for log in manager.logs.values())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("log-cleaner")]
    manager.shutdown()


def test_deleting_a_log_does_not_wait_for_its_compaction(tmp_path: Path) -> None:
    manager = managed(tmp_path, "orders", "other")
    slow = replace(QUICK, log_cleaner_io_max_bytes_per_second=10.0)
    cleaner = LogCleaner(manager, slow)
    cleaner.start()
    until(lambda: bool(cleaner._in_progress))
    assert are_nicer("log-cleaner")
    begun = time.monotonic()
    for topic in ("orders", "other"):
        manager.delete([(topic, 0)])
    assert time.monotonic() - begun < 10
    cleaner.stop()
    assert not manager.offline_dirs
    assert cleaner.uncleanable == []
    manager.shutdown()


def test_new_settings_take_effect_at_once(tmp_path: Path) -> None:
    manager = managed(tmp_path, "orders")
    cleaner = LogCleaner(manager, replace(QUICK, log_cleaner_io_max_bytes_per_second=1.0))
    cleaner.start()
    until(lambda: bool(cleaner._in_progress))
    cleaner.reconfigure(QUICK)
    until(lambda: len(values(manager.logs["orders", 0])) == 1)
    cleaner.stop()
    manager.shutdown()


def test_compaction_can_be_turned_off(tmp_path: Path) -> None:
    manager = managed(tmp_path, "orders")
    cleaner = LogCleaner(manager, replace(QUICK, log_cleaner_enable=False))
    cleaner.start()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("log-cleaner")]
    cleaner.stop()
    assert len(values(manager.logs["orders", 0])) == 20
    manager.shutdown()


class FullDisk(Files):
    """No room for what compaction writes."""

    __slots__ = ("code",)
    code: int

    def open(self, path: str, flags: int) -> int:
        if path.endswith(".cleaned") and self.code:
            raise OSError(self.code, os.strerror(self.code), path)
        return super().open(path, flags)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_is_waited_for_and_a_failing_one_goes_offline(tmp_path: Path, code: int) -> None:
    files = FullDisk()
    files.code = 0
    manager = managed(tmp_path, "orders", files=files)
    log = manager.logs["orders", 0]
    files.code = code
    cleaner = LogCleaner(manager, QUICK)
    assert cleaner.clean_dirtiest()
    assert bool(manager.offline_dirs) == (code == errno.EIO)
    assert cleaner.uncleanable == []
    if code == errno.ENOSPC:
        files.code = 0
        assert cleaner.clean_dirtiest()
        assert len(values(log)) == 1
    manager.shutdown()


def test_a_truncated_log_is_compacted_anew_from_where_it_was_cut(tmp_path: Path) -> None:
    manager = managed(tmp_path, "orders", config=replace(COMPACTED, min_cleanable_dirty_ratio=0.01))
    cleaner = LogCleaner(manager)
    log = manager.logs["orders", 0]
    for _ in range(3):
        fill(log)
    cleaner.clean_dirtiest()
    log.truncate_to(30)
    manager.checkpoints.write_first_dirty_offsets()
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == f"0\n1\norders 0 {log.first_dirty_offset}\n"
    log.append_as_leader(batch(3, key=b"a"), 0, NOW)
    log.update_high_watermark(log.log_end_offset)
    roll(log)
    assert cleaner.clean_dirtiest()
    assert len(values(log)) == 1
    manager.shutdown()


def test_a_log_that_moves_is_compacted_where_it_arrives(tmp_path: Path) -> None:
    manager = LogManager([tmp_path / "a", tmp_path / "b"], clock=lambda: NOW)
    manager.open(1, CLUSTER)
    manager.load(lambda topic: COMPACTED)
    log = manager.create("orders", 0, TOPIC_ID, COMPACTED, log_dir=str(tmp_path / "a"))
    fill(log)
    cleaner = LogCleaner(manager, clock=lambda: NOW)
    assert cleaner.clean_dirtiest()
    fill(log)
    future = manager.create_future("orders", 0, str(tmp_path / "b"))
    assert future is not None
    assert not cleaner.clean_dirtiest()
    log.first_dirty_offset = 40  # a compaction that had begun before ends only now
    assert manager.finish_move("orders", 0, future)
    manager.settle_move(log)
    assert log.first_dirty_offset is not None
    assert log.first_dirty_offset <= 20
    roll(log)
    assert cleaner.clean_dirtiest()
    assert values(log) == [(39, "a", "19")]
    assert "orders 0 " in (tmp_path / "b" / "cleaner-offset-checkpoint").read_text()
    assert "orders 0 " not in (tmp_path / "a" / "cleaner-offset-checkpoint").read_text()
    manager.shutdown()


def test_a_log_with_messages_of_old_is_left_alone_and_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = put_segment(tmp_path, 0, old_messages(40))
    before = file.read_bytes()
    manager = managed(tmp_path)
    manager.logs["orders", 0].update_high_watermark(40)
    roll(manager.logs["orders", 0])
    cleaner = LogCleaner(manager, clock=lambda: NOW)
    cleaner.clean_dirtiest()
    assert cleaner.uncleanable == ["orders-0"]
    assert "orders-0 cannot be compacted" in caplog.text
    assert file.read_bytes() == before
    assert manager.logs["orders", 0].log_end_offset == 40
    manager.shutdown()
