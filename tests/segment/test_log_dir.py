"""One log directory."""

from pathlib import Path

from kbroker.segment.files import Files
from kbroker.segment.log_dir import LogDir


def test_the_clean_marker_is_taken_once(tmp_path: Path) -> None:
    directory = LogDir(str(tmp_path), Files())
    assert not directory.take_clean_marker()
    directory.write_clean_marker()
    assert directory.take_clean_marker()
    assert not directory.take_clean_marker()


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
