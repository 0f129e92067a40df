"""The power fails under the real Files: what was promised to be on the disk is there when it is back."""

from pathlib import Path

import pytest

from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment import checkpoints
from kbroker.segment.files import Files
from kbroker.segment.log import AppendOrigin, Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_manager import LogManager
from kbroker.segment.log_move import copy_portion
from tests.crash.power import Platter
from tests.segment.batches import NOW, TOPIC_ID, batch, fill, new_log, reopen
from tests.segment.test_log_manager import start

SMALL = LogConfig(segment_bytes=900, index_interval_bytes=100, retention_ms=-1)


def manager_of(*log_dirs: Path) -> LogManager:
    for each in log_dirs:
        each.mkdir(exist_ok=True)
    return start(*log_dirs)


def in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Platter, LogManager, Log]:
    """A disk that forgets what was not synced, below it a directory `a` with one log."""
    platter = Platter.below(monkeypatch)
    manager = manager_of(tmp_path / "a")
    return platter, manager, manager.create("orders", 0, TOPIC_ID, SMALL)


def test_what_was_flushed_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    platter = Platter.below(monkeypatch)
    log = new_log(tmp_path / "a", SMALL)
    fill(log, 30, epoch=3)
    platter.restore(tmp_path / "a", tmp_path / "before")
    assert not list((tmp_path / "before").iterdir())
    log.flush()
    fill(log, 5, epoch=3)
    platter.restore(tmp_path / "a", tmp_path / "after")
    again = reopen(tmp_path / "after", SMALL)
    assert (again.log_end_offset, again.topic_id, again.leader_epochs.entries) == (30, TOPIC_ID, ((3, 0),))
    again.close()
    log.close()


def test_what_a_truncation_has_dropped_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later segment with its old name would be taken for the log's end, over what was written since."""
    (tmp_path / "a").mkdir()
    platter = Platter.below(monkeypatch)
    log = new_log(tmp_path / "a", SMALL)
    fill(log, 30, epoch=3)
    log.flush()
    assert len(log.segments) > 2
    log.truncate_to(5)
    fill(log, 2, epoch=3)
    log.flush()
    assert len(log.segments) == 1
    platter.restore(tmp_path / "a", tmp_path / "after")
    again = reopen(tmp_path / "after", SMALL)
    assert (again.log_end_offset, len(again.segments)) == (7, 1)
    again.close()
    log.close()


@pytest.mark.parametrize("epoch", [3, 4])
def test_what_is_written_over_dropped_segments_never_lies_among_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    """The power fails between the syncs of one flush: the segments' are through, that of their folder is not."""
    (tmp_path / "a").mkdir()
    platter = Platter.below(monkeypatch)
    log = new_log(tmp_path / "a", SMALL)
    fill(log, 30, epoch=3)
    log.flush()
    log.truncate_to(5)
    fill(log, 2, epoch=epoch)
    Files().sync_path(log.segments[0].file.path)
    platter.restore(tmp_path / "a", tmp_path / "after")
    again = reopen(tmp_path / "after", SMALL)
    assert again.log_end_offset == 7
    assert again.leader_epochs.entries == log.leader_epochs.entries
    again.close()
    log.close()


def test_of_a_log_that_begins_anew_nothing_former_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    platter = Platter.below(monkeypatch)
    log = new_log(tmp_path / "a", SMALL)
    fill(log, 30, epoch=3)
    log.flush()
    log.truncate_fully_and_start_at(5)
    platter.restore(tmp_path / "a", tmp_path / "after")
    assert not list((tmp_path / "after" / "orders-0").glob("*.log"))
    log.close()


@pytest.mark.parametrize("is_flushed", [True, False])
def test_what_a_truncation_has_cut_off_a_segment_does_not_come_back_when_the_next_one_begins_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_flushed: bool
) -> None:
    (tmp_path / "a").mkdir()
    platter = Platter.below(monkeypatch)
    log = new_log(tmp_path / "a", SMALL)
    fill(log, 6, epoch=3)
    log.flush()
    assert len(log.segments) == 1
    log.truncate_to(4)
    log.append_as_leader(batch(1, 600), 4, NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    if is_flushed:
        log.flush()
    else:  # the later file has reached the disk by itself
        for path in (str(tmp_path / "a" / "orders-0"), str(tmp_path / "a")):
            Files().sync_folder(path)
        Files().sync_path(log.segments[-1].file.path)
    platter.restore(tmp_path / "a", tmp_path / "after")
    again = reopen(tmp_path / "after", SMALL)
    assert (again.log_end_offset, [segment.base_offset for segment in again.segments]) == (5, [0, 4])
    assert again.segments[0].file.file_size() == log.segments[0].size
    again.close()
    log.close()


@pytest.mark.parametrize("meanwhile", [False, True], ids=["between flushes", "during flushes"])
def test_the_indexes_of_a_closed_segment_are_there_though_each_append_was_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    """A recovery does not look at what lies below the recovery point: not at the segment's indexes either."""
    (tmp_path / "a").mkdir()
    platter = Platter.below(monkeypatch)
    log = new_log(tmp_path / "a", SMALL)
    for number in range(30):
        begun = log.begin_flush() if meanwhile else None
        fill(log, 1, timestamp=NOW + number)
        if begun is None:
            log.flush()
        else:
            begun.disk.sync(begun)
            log.end_flush(begun)
    assert len(log.segments) > 2
    platter.restore(tmp_path / "a", tmp_path / "after")
    again = reopen(tmp_path / "after", SMALL, recovery_point=log.recovery_point)
    for before, after in zip(log.segments[:-1], again.segments[:-1], strict=True):
        assert after.index.count == before.index.count > 0
        assert (after.max_timestamp, after.time_index.count) == (before.max_timestamp, before.time_index.count)
    again.close()
    log.close()


def reaches_the_disk_by_itself(manager: LogManager) -> None:
    """The new segment and its name, before any flush of it ends."""
    log = manager.logs["orders", 0]
    for path in (str(log.directory), log.log_dir):
        Files().sync_folder(path)
    Files().sync_path(log.active_segment.file.path)


def test_a_segment_that_is_closed_where_the_recovery_point_was_written_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its indexes were not synced with its records: they are made again, though the file says all is on disk."""
    platter, manager, log = in_use(tmp_path, monkeypatch)
    for number in range(6):
        fill(log, 1, timestamp=NOW + number)
        log.flush()
    manager.checkpoints.write_all()
    manager.background.close()
    log.append_as_leader(batch(1, 600, NOW + 9), 0, NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    reaches_the_disk_by_itself(manager)
    platter.restore(tmp_path / "a", tmp_path / "after")
    again = manager_of(tmp_path / "after")
    found = again.logs["orders", 0]
    assert len(found.segments) == 2
    assert found.segments[0].time_index.last_entry == (NOW + 5, 5)
    again.shutdown()
    manager.shutdown()


@pytest.mark.parametrize("replicated", [4, 6])
def test_what_a_truncation_cut_off_a_segment_is_cut_again_when_the_next_one_begins_at_the_recovery_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replicated: int
) -> None:
    platter, manager, log = in_use(tmp_path, monkeypatch)
    for _ in range(6):
        log.append_as_leader(batch(), 0, NOW)
    log.update_high_watermark(replicated)
    log.flush()
    manager.checkpoints.write_all()
    manager.background.close()
    log.truncate_to(4)
    log.append_as_leader(batch(1, 600), 4, NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    reaches_the_disk_by_itself(manager)
    platter.restore(tmp_path / "a", tmp_path / "after")
    again = manager_of(tmp_path / "after")
    found = again.logs["orders", 0]
    assert (found.log_end_offset, found.segments[0].size) == (5, log.segments[0].size)
    again.shutdown()
    manager.shutdown()


def test_a_clean_stop_leaves_the_indexes_of_what_was_flushed_long_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds the mark of a clean stop believes them as they are."""
    platter, manager, log = in_use(tmp_path, monkeypatch)
    for number in range(6):
        fill(log, 1, timestamp=NOW + number)
        log.flush()
    entries = log.active_segment.index.count
    assert entries > 0
    manager.shutdown()
    platter.restore(tmp_path / "a", tmp_path / "after")
    again = manager_of(tmp_path / "after")
    segment = again.logs["orders", 0].active_segment
    assert (segment.max_timestamp, segment.index.count) == (NOW + 5, entries)
    again.shutdown()


def test_a_clean_stop_leaves_the_aborted_transactions_of_what_was_flushed_long_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else readers of committed records would be given them."""
    platter, manager, log = in_use(tmp_path, monkeypatch)
    log.append_as_leader(batch(3, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True), 0, NOW)
    log.append_as_leader(control_batch(ControlType.ABORT, 9, 0, 1, NOW), 0, NOW, AppendOrigin.COORDINATOR)
    log.update_high_watermark(4)
    log.flush()
    (aborted,) = log.aborted_transactions(log.read(0, 10_000))
    manager.shutdown()
    platter.restore(tmp_path / "a", tmp_path / "after")
    again = manager_of(tmp_path / "after")
    found = again.logs["orders", 0]
    assert found.aborted_transactions(found.read(0, 10_000)) == [aborted]
    again.shutdown()


def test_a_clean_stop_is_on_the_disk_with_all_that_it_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platter, manager, log = in_use(tmp_path, monkeypatch)
    for sequence in range(20):
        log.append_as_leader(batch(producer_id=7, producer_epoch=0, base_sequence=sequence), 4, NOW)
    log.update_high_watermark(20)
    log.flush()  # so that nothing but what the stop itself writes is new
    manager.shutdown()
    platter.restore(tmp_path / "a", tmp_path / "after")
    assert (tmp_path / "after" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "after" / "orders-0" / f"{20:020d}.snapshot").stat().st_size == 10 + 46
    again = manager_of(tmp_path / "after")
    found = again.logs["orders", 0]
    assert (found.log_end_offset, found.high_watermark, found.latest_epoch) == (20, 20, 4)
    assert found.append_as_leader(batch(producer_id=7, producer_epoch=0, base_sequence=19), 4, NOW).duplicate
    again.shutdown()


def on_its_way(folder: Path) -> tuple[LogManager, Log, Log]:
    """A log of twenty records in a, all of them copied to b."""
    manager = manager_of(folder / "a", folder / "b")
    log = manager.create("orders", 0, TOPIC_ID, SMALL, log_dir=str(folder / "a"))
    fill(log, 20)
    log.flush()
    future = manager.create_future("orders", 0, str(folder / "b"))
    assert future is not None
    copy_portion(log, future, 1 << 20)
    return manager, log, future


@pytest.mark.parametrize("renames", [1, 2, 3])
def test_a_power_loss_at_any_rename_of_a_move_leaves_the_log_in_one_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """The destination's name must be on the disk before the source loses its own, which here it does at once."""
    platter = Platter.below(monkeypatch)
    manager, log, future = on_its_way(tmp_path)
    future.flush()
    done = []
    rename = Files.rename

    def stop_after(self: Files, source: str, target: str) -> None:
        rename(self, source, target)
        if "orders-0" in target.rpartition("/")[2]:
            done.append(target)
            if target.endswith("-delete"):
                Files().sync_folder(str(tmp_path / "a"))
            if len(done) == renames:
                for name in ("a", "b"):
                    platter.restore(tmp_path / name, tmp_path / f"{name}-after")

    monkeypatch.setattr(Files, "rename", stop_after)
    assert manager.finish_move("orders", 0, future)
    manager.settle_move(log)
    monkeypatch.setattr(Files, "rename", rename)
    manager.shutdown()
    if len(done) < renames:
        for name in ("a", "b"):
            platter.restore(tmp_path / name, tmp_path / f"{name}-after")
    again = manager_of(tmp_path / "a-after", tmp_path / "b-after")
    assert again.logs["orders", 0].log_end_offset == 20
    again.shutdown()


def test_a_power_loss_soon_after_a_move_leaves_the_log_where_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its former folder, back under its name, would be another log of the partition once this one has grown."""
    platter = Platter.below(monkeypatch)
    manager, log, future = on_its_way(tmp_path)
    assert manager.finish_move("orders", 0, future)
    fill(log, 2)
    log.flush()
    for name in ("a", "b"):
        platter.restore(tmp_path / name, tmp_path / f"{name}-after")
    assert not (tmp_path / "a-after" / "orders-0").exists()
    again = manager_of(tmp_path / "a-after", tmp_path / "b-after")
    assert again.logs["orders", 0].log_end_offset == 22
    again.shutdown()
    manager.shutdown()


def test_a_log_that_was_deleted_does_not_come_back_beside_the_next_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platter = Platter.below(monkeypatch)
    manager = manager_of(tmp_path / "a", tmp_path / "b")
    for partition in range(5):
        fill(manager.create("orders", partition, TOPIC_ID, SMALL, log_dir=str(tmp_path / "a")), 2)
        manager.logs["orders", partition].flush()
    synced: list[str] = []
    sync_folder = Files.sync_folder
    monkeypatch.setattr(Files, "sync_folder", lambda self, path: (synced.append(path), sync_folder(self, path)))
    assert manager.delete([("orders", partition) for partition in range(5)]) == {}
    assert synced == [str(tmp_path / "a")], "one sync for all"
    log = manager.create("orders", 0, bytes(15) + b"n", SMALL, log_dir=str(tmp_path / "b"))
    fill(log, 3)
    log.flush()
    for name in ("a", "b"):
        platter.restore(tmp_path / name, tmp_path / f"{name}-after")
    again = manager_of(tmp_path / "a-after", tmp_path / "b-after")
    assert {key: each.log_end_offset for key, each in again.logs.items()} == {("orders", 0): 3}
    again.shutdown()
    manager.shutdown()


def test_segments_that_are_closed_reach_the_disk_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platter, manager, log = in_use(tmp_path, monkeypatch)
    fill(log, 40)
    manager.background.finish()
    closed = log.active_segment.base_offset
    assert log.recovery_point == closed > 20
    manager.checkpoints.write_recovery_points()
    platter.restore(tmp_path / "a", tmp_path / "after")
    written = checkpoints.read_offsets(Files(), str(tmp_path / "after" / checkpoints.RECOVERY_POINTS))
    assert written == {("orders", 0): closed}
    again = manager_of(tmp_path / "after")
    found = again.logs["orders", 0]
    assert found.log_end_offset >= closed
    assert found.recovery_point >= closed
    assert (tmp_path / "after" / "orders-0" / f"{closed:020d}.snapshot").exists()
    again.shutdown()
    manager.shutdown()
