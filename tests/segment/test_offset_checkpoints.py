"""What the checkpoints of a directory say of its logs, and do not say any longer."""

from pathlib import Path

import pytest

from kbroker.segment import checkpoints
from kbroker.segment.files import Files
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_manager import LogManager
from tests.segment.batches import NOW, TOPIC_ID, fill
from tests.segment.test_log_manager import start

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=50)
KEY = ("orders", 0)


def written(log_dir: Path) -> list[int | None]:
    """The recovery point, the high watermark, the log start and the first dirty offset of orders-0."""
    names = (
        checkpoints.RECOVERY_POINTS,
        checkpoints.HIGH_WATERMARKS,
        checkpoints.LOG_START_OFFSETS,
        checkpoints.FIRST_DIRTY_OFFSETS,
    )
    return [checkpoints.read_offsets(Files(), str(log_dir / name)).get(KEY) for name in names]


def flushed(log_dir: Path, records: int = 40) -> LogManager:
    manager = start(log_dir)
    log = manager.create(*KEY, TOPIC_ID, SMALL)
    fill(log, records)
    log.flush()
    log.first_dirty_offset = 7
    log.delete_records(3)
    manager.checkpoints.write_all()
    assert written(log_dir) == [records - 1, records, 3, 7]
    return manager


@pytest.mark.parametrize("way", ["cut", "restart", "restart below the start"])
def test_a_truncation_lowers_what_was_promised_before_anything_is_cut(tmp_path: Path, way: str) -> None:
    manager = flushed(tmp_path)
    log = manager.logs[KEY]
    seen: list[list[int | None]] = []
    lower = manager.checkpoints.lower

    def note(*arguments: object) -> None:
        assert log.log_end_offset == 40
        lower(*arguments)  # type: ignore[arg-type]
        seen.append(written(tmp_path)[:3])

    manager.checkpoints.lower = note  # type: ignore[assignment, method-assign]
    if way == "cut":
        log.truncate_to(20)
    else:
        log.truncate_fully_and_start_at(20 if way == "restart" else 1)
    assert seen == [[0, 1, 1] if way == "restart below the start" else [19, 20, 3]]
    manager.checkpoints.write_recovery_points()
    assert written(tmp_path)[0] == seen[0][0]
    manager.abandon()


def test_the_high_watermark_on_disk_is_never_below_a_log_start(tmp_path: Path) -> None:
    manager = flushed(tmp_path)
    log = manager.logs[KEY]
    fill(log, 10)
    log.delete_records(45)
    manager.checkpoints.write_log_start_offsets()
    assert written(tmp_path)[1:3] == [50, 45]
    manager.abandon()


def test_what_was_not_flushed_nor_replicated_is_cut_without_writing(tmp_path: Path) -> None:
    manager = flushed(tmp_path)
    log = manager.logs[KEY]
    fill(log, 10)
    log.flush()
    log.high_watermark = 45
    manager.checkpoints.write_all()
    assert written(tmp_path)[:2] == [44, 45], "no recovery point as high as the high watermark"
    before = (tmp_path / checkpoints.RECOVERY_POINTS).stat().st_ino
    log.truncate_to(45)
    assert (tmp_path / checkpoints.RECOVERY_POINTS).stat().st_ino == before
    assert log.recovery_point == 45
    manager.abandon()


def test_a_new_log_has_nothing_of_a_former_one_of_its_name(tmp_path: Path) -> None:
    manager = flushed(tmp_path)
    manager.delete([KEY])
    manager.create(*KEY, bytes(15) + b"n", SMALL)
    assert written(tmp_path) == [None] * 4
    manager.abandon()
    again = start(tmp_path)
    assert (again.logs[KEY].log_end_offset, again.logs[KEY].is_short) == (0, False)
    again.shutdown()


def test_what_a_recovery_cut_is_not_promised_any_longer_after_it(tmp_path: Path) -> None:
    manager = flushed(tmp_path)
    path = manager.logs[KEY].segments[-1].file.path
    manager.abandon()
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[:-10])
    again = start(tmp_path)
    end = again.logs[KEY].log_end_offset
    assert end < 40
    points, watermark = written(tmp_path)[:2]
    assert points == end - 1
    assert watermark == 40, "that it had more is remembered until it is filled"
    again.abandon()


def test_leader_epochs_that_were_cut_do_not_come_back_after_a_crash(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = manager.create(*KEY, TOPIC_ID)
    fill(log, 10, epoch=1)
    fill(log, 10, epoch=5)
    log.write_pending()
    log.truncate_to(8)
    other = manager.create("orders", 1, TOPIC_ID)
    fill(other, 8, epoch=1)
    fill(other, 4, epoch=3)
    fill(other, 2, epoch=6)
    log.append_as_follower(other.read(8, 10_000).read(), NOW)
    entries = log.leader_epochs.entries
    manager.abandon()
    again = start(tmp_path)
    found = again.logs[KEY]
    assert found.leader_epochs.entries == entries[: len(found.leader_epochs.entries)]
    assert found.leader_epochs.entries[1] == (3, 8)
    again.shutdown()
