"""Logs and directories: moves between them, failures, checkpoints."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.primitives import uuid_to_text
from kbroker.segment import checkpoints
from kbroker.segment.files import Files
from kbroker.segment.log_dir import LogDirError
from kbroker.segment.log_manager import LogManager
from kbroker.segment.log_move import copy_portion
from tests.segment.batches import NOW, TOPIC_ID, fill
from tests.segment.test_log_manager import CLUSTER, start


def move(manager: LogManager, log_dir: Path, partition: int = 0) -> None:
    future = manager.create_future("orders", partition, str(log_dir))
    current = manager.get("orders", partition)
    assert future is not None
    assert current is not None
    while not manager.finish_move("orders", partition, future):
        copy_portion(current, future, 1 << 20)
    manager.settle_move(current)


def folders(log_dir: Path) -> list[str]:
    return sorted(each.name for each in log_dir.iterdir() if each.is_dir())


def dirs_of(manager: LogManager) -> dict[str, list[tuple[str, int, bool]]]:
    return {
        Path(each.path).name: [(topic, partition, is_future) for topic, partition, _, is_future in each.logs]
        for each in manager.describe()
    }


def test_new_logs_go_to_the_directory_with_the_fewest_copies_counted(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    logs = [manager.create("orders", partition, TOPIC_ID) for partition in range(3)]
    assert {Path(each.log_dir).name for each in logs} == {"a", "b", "c"}
    manager.create_future("orders", 0, str(tmp_path / "b"))
    manager.create("orders", 3, TOPIC_ID)
    manager.create("orders", 4, TOPIC_ID)
    assert [len(found) for found in dirs_of(manager).values()] == [2, 2, 2]
    manager.shutdown()


def test_a_log_is_made_where_it_was_asked_for_beforehand(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    manager.prefer("orders", 0, str(tmp_path / "b"))
    assert manager.create("orders", 0, TOPIC_ID).log_dir == str(tmp_path / "b")
    manager.delete([("orders", 0)])
    assert manager.create("orders", 0, TOPIC_ID).log_dir == str(tmp_path / "a"), "it is asked for once"
    manager.shutdown()


def test_a_moved_log_is_found_in_its_new_directory(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    log = manager.create("orders", 0, TOPIC_ID)
    fill(log, 10)
    log.flush()
    manager.checkpoints.write_recovery_points()
    move(manager, tmp_path / "b")
    assert manager.get("orders", 0) is log
    assert dirs_of(manager) == {"a": [], "b": [("orders", 0, False)]}
    written = [
        checkpoints.read_offsets(Files(), str(tmp_path / name / checkpoints.RECOVERY_POINTS)) for name in ("a", "b")
    ]
    assert written == [{}, {("orders", 0): 9}], "below the high watermark"
    fill(log, 5)
    manager.shutdown()
    manager = start(tmp_path / "a", tmp_path / "b")
    assert (folders(tmp_path / "a"), folders(tmp_path / "b")) == ([], ["orders-0"])
    found = manager.get("orders", 0)
    assert found is not None
    assert (found.log_dir, found.log_end_offset) == (str(tmp_path / "b"), 15)
    manager.shutdown()


def test_a_copy_survives_a_restart_with_its_offsets(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    log = manager.create("orders", 0, TOPIC_ID)
    fill(log, 10)
    future = manager.create_future("orders", 0, str(tmp_path / "b"))
    assert future is not None
    copy_portion(log, future, 400)
    reached = future.log_end_offset
    assert 0 < reached < 10
    assert dirs_of(manager) == {"a": [("orders", 0, False)], "b": [("orders", 0, True)]}
    manager.shutdown()
    manager = start(tmp_path / "a", tmp_path / "b")
    again = manager.future("orders", 0)
    assert again is not None
    assert (again.log_end_offset, again.high_watermark, again.recovery_point) == (reached, reached, reached)
    assert manager.create_future("orders", 0, str(tmp_path / "b")) is again
    move(manager, tmp_path / "b")
    manager.shutdown()


def test_another_destination_gives_up_the_copy_and_the_present_one_ends_the_move(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    log = manager.create("orders", 0, TOPIC_ID, log_dir=str(tmp_path / "a"))
    first = manager.create_future("orders", 0, str(tmp_path / "b"))
    second = manager.create_future("orders", 0, str(tmp_path / "c"))
    assert first is not None
    assert first.failure is not None
    assert second is not None
    assert dirs_of(manager) == {"a": [("orders", 0, False)], "b": [], "c": [("orders", 0, True)]}
    with pytest.raises(KafkaError):
        manager.finish_move("orders", 0, first)
    assert manager.create_future("orders", 0, log.log_dir) is None
    assert manager.future("orders", 0) is None
    manager.shutdown()


def test_a_deleted_log_takes_its_copy_with_it(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    manager.create("orders", 0, TOPIC_ID)
    manager.create_future("orders", 0, str(tmp_path / "b"))
    manager.delete([("orders", 0)])
    assert dirs_of(manager) == {"a": [], "b": []}
    assert all(name.endswith("-delete") for name in folders(tmp_path / "a") + folders(tmp_path / "b"))
    manager.shutdown()


def test_a_crash_between_the_last_two_renames_of_a_move_is_recovered_from(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    fill(manager.create("orders", 0, TOPIC_ID), 10)
    move(manager, tmp_path / "b")
    manager.abandon()
    (left,) = folders(tmp_path / "a")
    (tmp_path / "a" / left).rename(tmp_path / "a" / "orders-0")
    manager = start(tmp_path / "a", tmp_path / "b")
    found = manager.get("orders", 0)
    assert found is not None
    assert found.log_end_offset == 10
    assert len(folders(tmp_path / "a") + folders(tmp_path / "b")) == 1
    manager.shutdown()


@pytest.mark.parametrize("grows", ["a", "b"])
@pytest.mark.parametrize("epoch", [0, 3])
def test_of_two_logs_of_one_partition_that_stays_which_has_all_of_the_other(
    tmp_path: Path, grows: str, epoch: int
) -> None:
    manager = start(tmp_path / "a")
    fill(manager.create("orders", 0, TOPIC_ID), 3)
    manager.shutdown()
    start(tmp_path / "b").shutdown()
    shutil.copytree(tmp_path / "a" / "orders-0", tmp_path / "b" / "orders-0")
    manager = start(tmp_path / grows)
    fill(manager.logs["orders", 0], 2, epoch=epoch)
    manager.shutdown()
    manager = start(tmp_path / "a", tmp_path / "b")
    log = manager.logs["orders", 0]
    assert (log.log_dir, log.log_end_offset) == (str(tmp_path / grows), 5)
    assert sum(len(each.logs) for each in manager.describe()) == 1
    assert folders(tmp_path / ("b" if grows == "a" else "a")) == []
    manager.shutdown()


def test_two_logs_of_one_partition_that_both_have_something_are_refused_and_named(tmp_path: Path) -> None:
    ids = {"a": TOPIC_ID, "b": bytes(15) + b"n"}
    for name, batches in (("a", 3), ("b", 4)):
        manager = start(tmp_path / name)
        fill(manager.create("orders", 0, ids[name]), batches)
        manager.shutdown()
    manager = LogManager([tmp_path / "a", tmp_path / "b"])
    manager.open(1, "n1-C8GQvSGOSPdVHP5ZRkw")
    with pytest.raises(LogDirError, match="hold the same partition") as caught:
        manager.load()
    for name, end in (("a", 3), ("b", 4)):
        text = f"{tmp_path / name / 'orders-0'} (topic id {uuid_to_text(ids[name])}, offsets 0 to {end - 1})"
        assert text in str(caught.value)
    manager.abandon()


def test_of_two_copies_on_their_way_one_is_enough(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    fill(manager.create("orders", 0, TOPIC_ID, log_dir=str(tmp_path / "a")), 3)
    manager.create_future("orders", 0, str(tmp_path / "b"))
    manager.shutdown()
    (copy,) = folders(tmp_path / "b")
    shutil.copytree(tmp_path / "b" / copy, tmp_path / "c" / copy)
    manager = start(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert manager.future("orders", 0) is not None
    assert len(folders(tmp_path / "b") + folders(tmp_path / "c")) == 1
    manager.shutdown()


def test_a_destination_that_fails_ends_the_move_and_nothing_else(tmp_path: Path) -> None:
    failed: list[str] = []
    manager = start(tmp_path / "a", tmp_path / "b")
    manager.table.on_offline_dir = lambda log_dir, error: failed.append(Path(log_dir).name)
    log = manager.create("orders", 0, TOPIC_ID)
    fill(log, 3)
    future = manager.create_future("orders", 0, str(tmp_path / "b"))
    assert future is not None
    assert manager.mark_offline(str(tmp_path / "b"), OSError(5, "I/O error")) == []
    assert (manager.future("orders", 0), log.failure, failed) == (None, None, ["b"])
    with pytest.raises(KafkaError) as raised:
        manager.finish_move("orders", 0, future)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError, match="offline"):
        manager.create_future("orders", 0, str(tmp_path / "b"))
    fill(log, 1)
    manager.shutdown()


def test_a_log_moved_into_a_directory_that_just_failed_is_lost_with_it(tmp_path: Path) -> None:
    failed: list[str] = []
    manager = start(tmp_path / "a", tmp_path / "b")
    log = manager.create("orders", 0, TOPIC_ID)
    manager.mark_offline(str(tmp_path / "b"), OSError(5, "I/O error"))
    manager.table.on_offline_dir = lambda log_dir, error: failed.append(Path(log_dir).name)
    manager.table.check_not_offline(str(tmp_path / "b"))
    assert (failed, log.failure) == ([], None)
    log.disk.folder.path = str(tmp_path / "b" / "orders-0")
    manager.table.check_not_offline(str(tmp_path / "b"))
    assert (failed, manager.is_offline("orders", 0)) == (["b"], True)
    manager.shutdown()


def test_the_next_directory_takes_a_new_log_when_the_emptiest_fails(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    manager.create("orders", 0, TOPIC_ID)
    (tmp_path / "b").rename(tmp_path / "gone")
    created = manager.create("orders", 1, TOPIC_ID)
    assert created.log_dir == str(tmp_path / "a")
    assert list(manager.offline_dirs) == [str(tmp_path / "b")]
    with pytest.raises(KafkaError) as raised:
        manager.create("orders", 2, TOPIC_ID, log_dir=str(tmp_path / "b"))
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    manager.retention(NOW)
    manager.shutdown()


class AnothersFile(Files):
    """One file belongs to another user."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def _check(self, path: str) -> None:
        if path.endswith(self.name):
            raise PermissionError(errno.EACCES, "Permission denied", path)

    def open(self, path: str, flags: int) -> int:
        self._check(path)
        return super().open(path, flags)

    def read_file(self, path: str) -> bytes | None:
        self._check(path)
        return super().read_file(path)


@pytest.mark.parametrize(
    "name", ["orders-0/leader-epoch-checkpoint", f"orders-0/{0:020d}.log", checkpoints.RECOVERY_POINTS]
)
def test_a_file_that_keeps_a_directory_from_being_loaded_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    manager = start(tmp_path)
    fill(manager.create("orders", 0, TOPIC_ID), 3)
    manager.shutdown()
    again = LogManager([tmp_path], files=AnothersFile(name))
    again.open(1, CLUSTER)
    with pytest.raises(LogDirError, match=f"Permission denied: {name}"):
        again.load()
    assert f"Permission denied: {name}" in caplog.text


def test_a_file_that_cannot_be_read_any_more_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = start(tmp_path)
    fill(manager.create("orders", 0, TOPIC_ID), 3)
    manager.shutdown()
    name = f"orders-0/{0:020d}.timeindex"
    again = LogManager([tmp_path], files=AnothersFile(name))
    again.open(1, CLUSTER)
    again.load()
    found = again.get("orders", 0)
    assert found is not None
    with pytest.raises(KafkaError):
        found.offset_for_timestamp(NOW)
    assert f"Permission denied in {tmp_path}/{name}" in caplog.text
    assert again.offline_dirs == {str(tmp_path): f"Permission denied: {name}"}
    again.abandon()
