"""All logs of all directories: start, stop, failure, deletion."""

import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.segment import checkpoints
from kbroker.segment.disk_pace import SLOW_S
from kbroker.segment.files import Buffer, Files
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_dir import LogDir
from kbroker.segment.log_manager import LogDirError, LogManager, LogManagerSettings
from tests.segment.batches import NOW, TOPIC_ID, batch, fill

CLUSTER = "n1-C8GQvSGOSPdVHP5ZRkw"


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def start(
    *dirs: Path,
    broker_id: int = 1,
    cluster_id: str = CLUSTER,
    clock: Clock | None = None,
    configs: Callable[[str], LogConfig] | None = None,
) -> LogManager:
    clock = clock or Clock()
    manager = LogManager(dirs, clock=clock, settings=LogManagerSettings(max_open_files=64), steady_clock=clock)
    manager.open(broker_id, cluster_id)
    manager.load(configs)
    return manager


def test_logs_are_found_again_with_their_offsets(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    for partition in range(6):
        fill(manager.create("orders", partition, TOPIC_ID), 10)
    manager.get("orders", 3).delete_records(4)  # type: ignore[union-attr]
    manager.shutdown()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    manager = start(tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert len(manager.logs) == 6
    assert {log.log_dir for log in manager.logs.values()} == {str(tmp_path / "a"), str(tmp_path / "b")}
    log = manager.get("orders", 3)
    assert log is not None
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.topic_id) == (4, 10, 10, TOPIC_ID)
    manager.shutdown()


@pytest.mark.slow
def test_thousands_of_logs_share_a_few_descriptors(tmp_path: Path) -> None:
    manager = start(tmp_path)
    logs = [manager.create("t", partition, TOPIC_ID) for partition in range(300)]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        for log in logs:
            log.append_as_leader(batch(), 0, NOW)
    assert len(os.listdir("/proc/self/fd")) <= before + 64
    assert all(len(log.read(0, 1000).read()) == log.size for log in logs)
    manager.shutdown()
    manager = start(tmp_path)
    assert {log.log_end_offset for log in manager.logs.values()} == {2}
    manager.shutdown()


def test_a_directory_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    manager = start(tmp_path)
    with pytest.raises(LogDirError, match="already in use"):
        start(tmp_path)
    program = (
        "import sys; from kbroker.segment.log_manager import LogManager, LogDirError\n"
        f"try: LogManager([{str(tmp_path)!r}]).open(1, {CLUSTER!r})\n"
        "except LogDirError as error: print(error); sys.exit(3)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 3, done.stderr
    assert "locked by another broker" in done.stdout
    manager.shutdown()
    start(tmp_path).shutdown()


def test_another_brokers_or_clusters_directory_is_refused(tmp_path: Path) -> None:
    start(tmp_path).shutdown()
    assert LogManager([tmp_path]).stored_broker_id() == 1
    assert LogManager([tmp_path]).stored_cluster_id() == CLUSTER
    with pytest.raises(LogDirError, match=r"broker\.id=1, but this broker's broker id is 2"):
        start(tmp_path, broker_id=2)
    with pytest.raises(LogDirError, match=f"id={CLUSTER}, but this broker's cluster id is other"):
        start(tmp_path, cluster_id="other")
    start(tmp_path).shutdown()


def test_meta_properties_keeps_what_others_wrote_into_it(tmp_path: Path) -> None:
    tmp_path.joinpath("meta.properties").write_text(
        f"#x\nversion=0\ncluster.id={CLUSTER}\nbroker.id=1\ndirectory.id=D\n"
    )
    start(tmp_path).shutdown()
    assert "directory.id=D" in tmp_path.joinpath("meta.properties").read_text()


def test_one_unusable_directory_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("a file, not a folder")
    offline: list[str] = []
    manager = LogManager([tmp_path / "good", tmp_path / "bad"], on_offline_dir=lambda path, _: offline.append(path))
    manager.open(1, CLUSTER)
    manager.load()
    assert offline == list(manager.offline_dirs) == [str(tmp_path / "bad")]
    fill(manager.create("orders", 0, TOPIC_ID), 1)
    assert [description.error is None for description in manager.describe()] == [True, False]
    manager.shutdown()
    with pytest.raises(LogDirError, match="no log directory can be used"):
        start(tmp_path / "bad")


def test_a_session_that_cannot_be_noted_costs_no_directory(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a" / "kbroker-session.tmp").mkdir()  # as good as a full disk
    for path in manager.live_dirs:
        manager.note_session(7, path)
    assert (tmp_path / "b" / "kbroker-session").read_bytes().startswith(b"7 ")
    assert dict(manager.offline_dirs) == {}
    manager.shutdown()


def test_a_directory_that_fails_takes_its_logs_with_it(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    logs = [manager.create("orders", partition, TOPIC_ID) for partition in range(4)]
    gone = manager.mark_offline(logs[0].log_dir, OSError(5, "Input/output error"))
    assert len(gone) == 2
    assert manager.is_offline(*gone[0])
    assert manager.get(*gone[0]) is None
    with pytest.raises(KafkaError) as caught:
        logs[0].append_as_leader(batch(), 0, NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        manager.create("orders", gone[0][1], TOPIC_ID)
    assert manager.create("new", 0, TOPIC_ID).log_dir == manager.live_dirs[0]
    manager.shutdown()


def test_a_deleted_log_makes_room_at_once_and_its_files_go_later(tmp_path: Path) -> None:
    clock = Clock()
    manager = start(tmp_path, clock=clock)
    fill(manager.create("orders", 0, TOPIC_ID), 3)
    manager.delete([("orders", 0)])
    (folder,) = [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
    assert manager.create("orders", 0, bytes(15) + b"n").log_end_offset == 0
    manager.run_due(clock.now)
    assert folder.exists()
    clock.now += 60_000
    manager.run_due(clock.now)
    assert not folder.exists()
    manager.delete([("orders", 0)])
    manager.shutdown()
    start(tmp_path).shutdown()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_where_a_deletion_does_not_reach_the_disk_it_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    for partition, name in enumerate("ab"):
        manager.create("orders", partition, TOPIC_ID, log_dir=str(tmp_path / name))
    sync_folder = Files.sync_folder

    def fail(files: Files, path: str) -> None:
        if path == str(tmp_path / "a"):
            raise OSError(errno.EIO, "I/O error", path)
        sync_folder(files, path)

    monkeypatch.setattr(Files, "sync_folder", fail)
    failed = manager.delete([("orders", partition) for partition in range(3)])
    assert {key: error.code for key, error in failed.items()} == {("orders", 0): ErrorCode.KAFKA_STORAGE_ERROR}
    assert manager.live_dirs == [str(tmp_path / "b")]
    manager.shutdown()


def test_regular_work_writes_checkpoints_and_removes_old_segments(tmp_path: Path) -> None:
    clock = Clock()
    manager = start(tmp_path, clock=clock)
    config = LogConfig(segment_bytes=1000, retention_ms=1000)
    fill(manager.create("orders", 0, TOPIC_ID, config), 30)
    due = manager.run_due(clock.now)
    while clock.now < NOW + 400_000:
        clock.now = max(due, clock.now + 1)
        due = manager.run_due(clock.now)
    log = manager.get("orders", 0)
    assert log is not None
    assert (log.log_start_offset, log.size, len(log.segments)) == (30, 0, 1)
    assert "orders 0 30" in (tmp_path / "replication-offset-checkpoint").read_text()
    assert not list(log.directory.glob("*.deleted"))
    manager.shutdown()


def test_unknown_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir(parents=True)
    manager = start(tmp_path)
    assert not manager.logs
    manager.shutdown()
    assert (tmp_path / "lost+found").exists()


def test_the_clean_marker_is_kafkas(tmp_path: Path) -> None:
    start(tmp_path).shutdown()
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": -1}


@pytest.mark.slow
def test_what_waits_in_memory_is_written_every_second_but_more_seldom_with_thousands_of_logs(tmp_path: Path) -> None:
    clock = Clock()
    manager = start(tmp_path, clock=clock)
    for partition in range(1_500):
        manager.create("orders", partition, TOPIC_ID)
    first = manager.get("orders", 0)
    assert first is not None
    fill(first, 3)
    before = first.has_pending
    due = manager.run_due(clock.now)
    assert due == clock.now + 1_000
    after = manager.run_due(due)
    assert (before, first.has_pending) == (True, False)
    assert after == due + 1_500
    manager.shutdown()


@pytest.mark.parametrize("set_by_ms", [-3 * 24 * 3_600_000, 3 * 24 * 3_600_000])
def test_regular_work_goes_on_when_the_clock_is_set(tmp_path: Path, set_by_ms: int) -> None:
    clock, steady = Clock(), Clock()
    settings = LogManagerSettings(log_flush_scheduler_interval_ms=1_000)
    manager = LogManager([tmp_path], clock=clock, settings=settings, steady_clock=steady)
    manager.open(1, "cluster")
    manager.load()
    log = manager.create("orders", 0, TOPIC_ID, LogConfig(flush_ms=1_000))
    manager.create("old", 0, TOPIC_ID)
    for _ in range(3):
        steady.now = manager.run_due(steady.now)
    manager.delete([("old", 0)])
    fill(log, 3)
    clock.now += set_by_ms
    before = log.has_pending
    steady.now += 1_000
    assert manager.run_due(steady.now) == steady.now + 1_000
    assert (before, log.has_pending) == (True, False)
    assert log.recovery_point == log.log_end_offset
    for wait_ms, folders in ((58_000, 1), (1_000, 0)):
        steady.now += wait_ms
        manager.run_due(steady.now)
        assert len(list(tmp_path.glob("old-0.*-delete"))) == folders
    manager.shutdown()


def test_a_log_that_came_back_short_is_found_so_at_every_start_until_it_is_filled(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = manager.create("orders", 0, TOPIC_ID)
    fill(log, 10)
    manager.shutdown()
    path = Path(log.active_segment.file.path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    for _ in range(2):
        manager = start(tmp_path)
        short = manager.logs["orders", 0]
        assert (short.log_end_offset, short.is_short) == (5, True)
        manager.shutdown()
    manager = start(tmp_path)
    manager.logs["orders", 0].append_as_follower(data[len(data) // 2 :], NOW)
    manager.shutdown()
    manager = start(tmp_path)
    filled = manager.logs["orders", 0]
    assert (filled.log_end_offset, filled.is_short) == (10, False)
    manager.shutdown()


@pytest.mark.parametrize("is_clean", [True, False])
def test_after_a_loss_of_power_only_what_was_flushed_before_each_answer_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_clean: bool
) -> None:
    """At every start, until the broker has been taken for what it is now."""

    def whole(manager: LogManager) -> list[str]:
        return [log.topic for log in manager.logs.values() if manager.has_whole(log.topic, log.partition)]

    def end(manager: LogManager) -> None:
        if is_clean:
            manager.shutdown()
        else:
            manager.abandon()

    def configs(topic: str) -> LogConfig:
        return LogConfig(flush_messages=1 if topic == "flushed" else 5)

    monkeypatch.setattr(LogDir, "boot_id", lambda directory: b"one")
    manager = start(tmp_path)
    for topic in ("flushed", "orders"):
        manager.create(topic, 0, TOPIC_ID)
    manager.note_boot()
    assert len(whole(manager)) == 2
    end(manager)
    manager = start(tmp_path, configs=configs)
    assert len(whole(manager)) == 2, "the process died, and its machine lives"
    end(manager)
    monkeypatch.setattr(LogDir, "boot_id", lambda directory: b"other")
    for stop in (end, LogManager.shutdown, end):
        manager = start(tmp_path, configs=configs)
        assert sorted(whole(manager)) == (["flushed", "orders"] if is_clean else ["flushed"])
        stop(manager)
    manager = start(tmp_path, configs=configs)
    manager.note_boot()
    end(manager)
    manager = start(tmp_path, configs=configs)
    assert len(whole(manager)) == 2
    manager.shutdown()


class FullDisk(Files):
    """Takes nothing more in one directory, once it is full."""

    __slots__ = ("full",)

    def __init__(self) -> None:
        self.full = ""

    def _check(self, path: str) -> None:
        if self.full and path.startswith(self.full):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._check(path)
        return super().open(path, flags)

    def pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        self._check(os.readlink(f"/proc/self/fd/{descriptor}"))
        return os.pwrite(descriptor, data, position)


@pytest.mark.parametrize("logs", [4, 40], ids=["a few logs", "many"])
def test_a_disk_that_is_full_at_shutdown_spoils_no_other_directorys_clean_stop(tmp_path: Path, logs: int) -> None:
    files = FullDisk()
    offline: list[str] = []
    manager = LogManager([tmp_path / "a", tmp_path / "b"], files=files, clock=Clock())
    manager.table.on_offline_dir = lambda path, _: offline.append(path)
    manager.open(1, CLUSTER)
    manager.load()
    for partition in range(logs):
        fill(manager.create("orders", partition, TOPIC_ID), 5)
    files.full = str(tmp_path / "b")
    manager.shutdown()
    assert offline == [str(tmp_path / "b")]
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    for name, offset in ((checkpoints.RECOVERY_POINTS, 4), (checkpoints.HIGH_WATERMARKS, 5)):
        found = checkpoints.read_offsets(Files(), str(tmp_path / "a" / name))
        assert sorted(found.values()) == [offset] * (logs // 2)
    files.full = ""
    again = start(tmp_path / "a", tmp_path / "b")
    assert len(again.logs) == logs
    again.shutdown()


def test_a_log_that_fails_while_it_is_asked_for_blocks_nobody(tmp_path: Path) -> None:
    """Who creates waits for the log's lock; who fails with it goes for the table's."""
    manager = start(tmp_path / "a", tmp_path / "b")
    log = manager.create("orders", 0, bytes(16))
    asked: list[object] = []

    def ask() -> None:
        try:
            asked.append(manager.create("orders", 0, TOPIC_ID))
        except KafkaError as error:
            asked.append(error.code)

    asking = threading.Thread(target=ask, daemon=True)

    def fail() -> None:
        with contextlib.suppress(KafkaError), log.changing("append"):
            asking.start()
            asking.join(0.3)
            raise OSError(errno.EIO, "Input/output error")

    failing = threading.Thread(target=fail, daemon=True)
    failing.start()
    failing.join(20)
    asking.join(20)
    assert not failing.is_alive()
    assert asked == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert list(manager.offline_dirs) == [log.log_dir]
    manager.shutdown()


def test_regular_work_that_fails_lets_the_rest_have_its_turn(tmp_path: Path) -> None:
    clock = Clock()
    manager = start(tmp_path, clock=clock)
    good, bad = manager.create("orders", 0, TOPIC_ID), manager.create("orders", 1, TOPIC_ID)
    fill(good, 3)
    fill(bad, 3)
    bad.config = None  # type: ignore[assignment]
    manager.retention(clock.now)
    bad.config = good.config
    manager.run_due(clock.now)
    manager._tasks[str(tmp_path)][0].run = lambda now: 1 // 0
    clock.now += 600_000
    with pytest.raises(ZeroDivisionError):
        manager.run_due(clock.now)
    clock.now += 10
    manager.run_due(clock.now)
    assert "orders 0 3" in (tmp_path / "replication-offset-checkpoint").read_text()
    manager.shutdown()


class HangingDir(Files):
    """A disk that hangs beside one that does not."""

    __slots__ = ("goes_on", "is_asked", "path")

    def __init__(self, path: Path) -> None:
        self.path = f"{path}/"
        self.is_asked, self.goes_on = threading.Event(), threading.Event()

    def write_file(self, path: str, data: bytes, sync: bool) -> None:
        if path.startswith(self.path):
            self.is_asked.set()
            assert self.goes_on.wait(20)
        super().write_file(path, data, sync)


def test_a_directory_that_hangs_keeps_no_other_from_its_checkpoints(tmp_path: Path) -> None:
    clock = Clock()
    manager = start(tmp_path / "a", tmp_path / "b", clock=clock)
    for partition, name in enumerate("ab"):
        made = manager.create("orders", partition, TOPIC_ID, log_dir=str(tmp_path / name))
        fill(made, 3)
        made.update_high_watermark(3)
    manager.run_due(clock.now)
    hanging = HangingDir(tmp_path / "b")
    for directory in manager.table.dirs.values():
        directory.files = hanging
    clock.now += 600_000
    hangs = threading.Thread(target=manager.run_due, args=(clock.now, str(tmp_path / "b")))
    hangs.start()
    assert hanging.is_asked.wait(20)
    manager.run_due(clock.now, str(tmp_path / "a"))
    assert "orders 0 3" in (tmp_path / "a" / "replication-offset-checkpoint").read_text()
    assert hangs.is_alive()
    hanging.goes_on.set()
    hangs.join()
    assert "orders 1 3" in (tmp_path / "b" / "replication-offset-checkpoint").read_text()
    manager.shutdown()


def test_what_the_checkpoints_of_a_directory_said_stays_when_it_goes_offline(tmp_path: Path) -> None:
    clock = Clock()
    manager = start(tmp_path / "a", tmp_path / "b", clock=clock)
    lost = manager.create("orders", 0, TOPIC_ID, log_dir=str(tmp_path / "a"))
    fill(lost, 3)
    manager.checkpoints.write_all()
    manager.run_due(clock.now)
    manager.mark_offline(lost.log_dir, OSError(errno.EIO, "for a moment"))
    clock.now += 600_000
    manager.run_due(clock.now)
    manager.run_due(clock.now, lost.log_dir)
    manager.checkpoints.write_high_watermarks(lost.log_dir)
    assert "orders 0 3" in (tmp_path / "a" / "replication-offset-checkpoint").read_text()
    lost.discard()
    manager.shutdown()


def test_a_stop_that_could_not_finish_a_log_is_not_called_clean(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    first, second = manager.create("orders", 0, TOPIC_ID), manager.create("orders", 1, TOPIC_ID)
    first.leader_epochs = None  # type: ignore[assignment]
    manager.shutdown()
    assert not Path(first.log_dir, ".kafka_cleanshutdown").exists()
    assert Path(second.log_dir, ".kafka_cleanshutdown").exists()


def test_how_long_idle_producers_are_remembered_can_change(tmp_path: Path) -> None:
    manager = start(tmp_path)
    there = manager.create("orders", 0, TOPIC_ID)
    manager.set_producer_expiration(1234)
    assert there.producers.expiration_ms == 1234
    assert manager.create("orders", 1, TOPIC_ID).producers.expiration_ms == 1234
    manager.shutdown()


def test_new_logs_come_into_a_directory_that_is_slow_only_where_there_is_no_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    manager = start(tmp_path / "a", tmp_path / "b")
    slow = str(tmp_path / "a")
    manager.table.dirs[slow].pace.note(time.monotonic() - SLOW_S)
    found = [manager.create("orders", number, TOPIC_ID).log_dir for number in range(3)]
    assert found == [str(tmp_path / "b")] * 3
    assert manager.create("orders", 3, TOPIC_ID, log_dir=slow).log_dir == slow
    manager.table.mark_offline(str(tmp_path / "b"), OSError("gone"))
    assert manager.create("orders", 4, TOPIC_ID).log_dir == slow
    manager.shutdown()
