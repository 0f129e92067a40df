"""Opening all logs at a start: what fails in one directory is not the others'."""

import shutil
from pathlib import Path

from kbroker.segment.log_manager import LogManager
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
    manager.shutdown()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()


def test_folders_marked_for_deletion_go_and_foreign_ones_stay(tmp_path: Path) -> None:
    for name in ("orders-0.0123456789abcdef0123456789abcdef-delete", "lost+found"):
        (tmp_path / name).mkdir()
    manager = start(tmp_path)
    assert not manager.logs
    assert [each.name for each in tmp_path.iterdir() if each.is_dir()] == ["lost+found"]
    manager.shutdown()
