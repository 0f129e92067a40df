"""A log's files: what is removed, in which order, and while who waits."""

import os
from pathlib import Path

from kbroker.segment.files import Files
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, fill, new_log

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_bytes=2000)


class Watching(Files):
    """Notes what is renamed, and whether the log was locked."""

    __slots__ = ("log", "renamed")

    def __init__(self) -> None:
        self.log: Log | None = None
        self.renamed: list[tuple[str, bool]] = []

    def rename(self, source: str, target: str) -> None:
        if self.log is not None and target.endswith(".deleted"):
            self.renamed.append((os.path.basename(source), self.log._lock.locked()))
        super().rename(source, target)


def test_retention_renames_without_the_logs_lock(tmp_path: Path) -> None:
    files = Watching()
    log = files.log = new_log(tmp_path, SMALL, files)
    fill(log, 60)
    count = log.retention(NOW)
    assert count > 2
    assert len(files.renamed) == 3 * count
    assert not any(locked for _, locked in files.renamed)
    assert log.log_start_offset == log.segments[0].base_offset
    log.close()


def test_truncation_removes_the_newest_segments_first(tmp_path: Path) -> None:
    files = Watching()
    log = files.log = new_log(tmp_path, SMALL, files)
    fill(log, 60)
    log.truncate_to(15)
    bases = [int(name[:20]) for name, _ in files.renamed if name.endswith(".log")]
    assert len(bases) > 2
    assert bases == sorted(bases, reverse=True)
    log.close()


def test_a_flush_syncs_small_files_also_when_all_records_are_on_disk(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 5)
    log.flush()
    before = log.needs_flush
    log.finish()
    assert (before, log.needs_flush) == (False, True)
    begun = log.begin_flush()
    assert begun is not None
    assert f"{5:020d}.snapshot" in begun.small_files.values()
    log.truncate_to(3)
    assert not log.end_flush(begun)
    again = log.begin_flush()
    assert again is not None
    assert begun.small_files.items() <= again.small_files.items(), "what was not synced for sure is synced again"
    log.close()


class Syncing(Files):
    """Notes what is synced besides the segments."""

    __slots__ = ("synced",)

    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync_folder(self, path: str) -> None:
        self.synced.append(os.path.basename(path))

    def sync_path(self, path: str) -> None:
        self.synced.append(os.path.basename(path))


def test_a_flush_does_not_count_on_what_another_one_has_not_ended(tmp_path: Path) -> None:
    files = Syncing()
    log = new_log(tmp_path, SMALL, files)
    fill(log, 5)
    log.flush()
    fill(log, 30)
    log.disk.replace_file("small", b"file")
    assert len(log.segments) > 2
    slow = log.begin_flush()
    assert slow is not None
    files.synced.clear()
    fill(log, 1)
    log.flush()
    assert log.recovery_point == log.log_end_offset
    assert set(files.synced) == {"small", os.path.basename(log.directory)}
    assert log.end_flush(slow)
    assert not log.needs_flush
    log.close()


def test_a_roll_takes_back_what_recovery_may_pass_over_and_nothing_of_what_is_on_disk(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    while len(log.segments) == 1:
        log.flush()
        fill(log, 1)
    base = log.active_segment.base_offset
    assert (log.disk.flushed_to, log.recovery_point) == (base, base - 1)
    begun = log.begin_flush()
    assert begun is not None
    while len(log.segments) == 2:
        fill(log, 1)
    begun.disk.sync(begun)
    assert log.end_flush(begun)
    assert log.disk.flushed_to == begun.target == base + 1
    log.truncate_to(base - 2)
    assert log.disk.flushed_to == log.recovery_point == base - 2
    log.truncate_fully_and_start_at(90)
    assert log.disk.flushed_to == log.recovery_point == 90
    log.close()
