"""Opening all logs at a start: what fails in one directory is not the others'."""

import shutil
import threading
import time
from pathlib import Path

import pytest

from kbroker.segment import log_loading
from kbroker.segment.files import Files
from kbroker.segment.log_loading import LogLoading
from kbroker.segment.log_manager import LogManager, LogManagerSettings
from kbroker.segment.names import PARTITION_METADATA
from tests.segment.batches import TOPIC_ID, fill
from tests.segment.test_log_manager import CLUSTER, start


def test_a_directory_that_cannot_be_listed_goes_offline_alone(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    for partition in range(4):
        fill(manager.create("orders", partition, TOPIC_ID), 3)
    manager.shutdown()
    manager = LogManager([tmp_path / "a", tmp_path / "b"])
    manager.open(1, CLUSTER)
    shutil.rmtree(tmp_path / "b")
    manager.load()
    assert list(manager.offline_dirs) == [str(tmp_path / "b")]
    assert {log.log_dir for log in manager.logs.values()} == {str(tmp_path / "a")}
    assert len(manager.logs) == 2
    assert [manager.has_whole("orders", each) for each in range(4)] == [
        ("orders", each) in manager.logs for each in range(4)
    ]
    manager.shutdown()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()


def test_folders_marked_for_deletion_go_and_foreign_ones_stay(tmp_path: Path) -> None:
    for name in ("orders-0.0123456789abcdef0123456789abcdef-delete", "lost+found"):
        (tmp_path / name).mkdir()
    manager = start(tmp_path)
    assert not manager.logs
    assert [each.name for each in tmp_path.iterdir() if each.is_dir()] == ["lost+found"]
    manager.shutdown()


@pytest.mark.parametrize(("threads", "counted"), [(1, 1 + 4), (6, 1 + 6)])
def test_the_threads_of_a_directory_share_its_logs_without_a_word_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, counted: int
) -> None:
    manager = start(tmp_path)
    for partition in range(60):
        fill(manager.create("orders", partition, TOPIC_ID), 1)
    manager.shutdown()
    manager = LogManager([tmp_path], settings=LogManagerSettings(num_recovery_threads_per_data_dir=threads))
    manager.open(1, CLUSTER)
    calls = []
    load_folders = LogLoading._load_folders
    monkeypatch.setattr(LogLoading, "_load_folders", lambda *given: (calls.append(1), load_folders(*given))[1])
    manager.load()
    assert len(calls) == counted
    assert sorted(partition for _, partition in manager.logs) == list(range(60))
    assert all(each.log_end_offset == 1 for each in manager.logs.values())
    manager.shutdown()


class _NotingFiles(Files):
    """Notes which threads read a log's small files; a slow disk makes each wait."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s
        self.threads: set[int] = set()

    def read_file(self, path: str) -> bytes | None:
        if path.endswith(PARTITION_METADATA):
            self.threads.add(threading.get_ident())
            if self.wait_s:
                time.sleep(self.wait_s)
        return super().read_file(path)


def _threads_that_open(folder: Path, wait_s: float) -> int:
    manager = start(folder)
    for partition in range(200):
        manager.create("orders", partition, TOPIC_ID)
    manager.shutdown()
    files = _NotingFiles(wait_s)
    manager = LogManager([folder], files=files)
    manager.open(1, CLUSTER)
    manager.load()
    assert len(manager.logs) == 200
    manager.shutdown()
    return len(files.threads)


@pytest.mark.slow
def test_more_threads_open_logs_once_one_has_waited_for_the_disk(tmp_path: Path) -> None:
    assert _threads_that_open(tmp_path, wait_s=0.002) > 1


def test_one_thread_opens_the_logs_of_a_directory_while_nothing_makes_it_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_loading, "_used", lambda: (0, 0.0))  # a machine that stands still looks like a disk
    assert _threads_that_open(tmp_path, wait_s=0) == 1


def test_with_one_log_that_cannot_be_opened_all_of_its_directory_are_known_to_be_offline(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    for partition in range(10):
        fill(manager.create("orders", partition, TOPIC_ID), 3)
    manager.shutdown()
    in_a = [int(folder.name.removeprefix("orders-")) for folder in (tmp_path / "a").glob("orders-*")]
    assert len(in_a) == 5
    for partition in (bad := in_a[:2]):
        broken = tmp_path / "a" / f"orders-{partition}" / "00000000000000000000.log"
        broken.unlink()
        broken.mkdir()
    (tmp_path / "a" / ".kafka_cleanshutdown").unlink()
    manager = LogManager([tmp_path / "a", tmp_path / "b"])
    manager.open(1, CLUSTER)
    manager.load()
    assert list(manager.offline_dirs) == [str(tmp_path / "a")]
    assert {each for each in range(10) if manager.is_offline("orders", each)} == set(in_a) - set(bad)
    assert len(manager.logs) == 5
    manager.shutdown()
