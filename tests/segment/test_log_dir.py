"""One log directory."""

import shutil
from pathlib import Path

import pytest

from kbroker.segment.files import Files
from kbroker.segment.log_dir import LogDir
from tests.crash.power import Platter


def test_the_clean_marker_is_taken_once(tmp_path: Path) -> None:
    directory = LogDir(str(tmp_path), Files())
    assert not directory.take_clean_marker()
    directory.write_clean_marker()
    assert directory.take_clean_marker()
    assert not directory.take_clean_marker()


def test_the_clean_marker_that_was_taken_does_not_come_back_with_the_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not synced from now on would be taken for whole."""
    (tmp_path / "data").mkdir()
    platter = Platter.below(monkeypatch)
    directory = LogDir(str(tmp_path / "data"), Files())
    directory.write_clean_marker()
    assert directory.take_clean_marker()
    platter.restore(tmp_path / "data", tmp_path / "after")
    assert not LogDir(str(tmp_path / "after"), Files()).take_clean_marker()


def test_the_folders_that_a_directory_needed_are_there_after_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platter = Platter.below(monkeypatch)
    directory = LogDir(str(tmp_path / "new" / "data"), Files())
    directory.open()
    directory.claim(1, "cluster")
    directory.unlock()
    platter.restore(tmp_path, tmp_path / "after")
    assert LogDir(str(tmp_path / "after" / "new" / "data"), Files()).read_identity()["cluster.id"] == "cluster"


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    """A directory whose broker was registered by session 77, and is dead."""
    directory = LogDir(str(tmp_path / "data"), Files())
    directory.open()
    directory.note_session(77)
    directory.unlock()
    return tmp_path / "data"


def former_session(path: Path) -> int | None:
    directory = LogDir(str(path), Files())
    directory.open()
    found = directory.former_session()
    directory.unlock()
    return found


def test_who_has_the_lock_next_knows_by_which_session_the_dead_process_was_registered(noted: Path) -> None:
    assert former_session(noted) == 77


def test_of_a_directory_where_nothing_was_noted_nobody_is_known_to_be_dead(tmp_path: Path) -> None:
    assert former_session(tmp_path) is None


def test_in_a_copy_of_a_directory_nobody_is_known_to_be_dead(noted: Path) -> None:
    assert former_session(shutil.copytree(noted, noted.parent / "copy")) is None


def test_where_the_lock_is_another_nobody_is_known_to_be_dead(noted: Path) -> None:
    (noted / ".lock").rename(noted / "held by a process that lives")
    assert former_session(noted) is None


@pytest.mark.parametrize("boot_id", [b"", b"other"])
def test_on_another_machine_nobody_is_known_to_be_dead(
    noted: Path, monkeypatch: pytest.MonkeyPatch, boot_id: bytes
) -> None:
    monkeypatch.setattr(LogDir, "boot_id", lambda directory: boot_id)
    assert former_session(noted) is None


def test_a_damaged_checkpoint_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n7\n")
    assert LogDir(str(tmp_path), Files()).read_offsets("recovery-point-offset-checkpoint") == {}


def test_an_unchanged_checkpoint_is_not_written_again(tmp_path: Path) -> None:
    directory = LogDir(str(tmp_path), Files())
    directory.write_offsets("x-checkpoint", {("a", 0): 1})
    (tmp_path / "x-checkpoint").unlink()
    directory.write_offsets("x-checkpoint", {("a", 0): 1})
    assert not (tmp_path / "x-checkpoint").exists()
    directory.write_offsets("x-checkpoint", {("a", 0): 2})
    assert directory.read_offsets("x-checkpoint") == {("a", 0): 2}
