"""Files that wait to be removed."""

from pathlib import Path

from kbroker.segment.files import FilePool, Folder, PooledFile
from kbroker.segment.trash import Trash


class Steady:
    """A clock that is only moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


def removed_at(trash: Trash, clock: Steady, moment: int) -> int:
    """How many are removed by a look at that moment."""
    clock.now = moment
    return trash.run_due()


def test_files_are_renamed_at_once_and_removed_when_due(tmp_path: Path) -> None:
    pool, clock = FilePool(capacity=4), Steady()
    trash = Trash(pool.files, clock)
    file = PooledFile(pool, Folder(str(tmp_path)), "x.log", create=True)
    file.write(b"x", 0)
    trash.bury([file], 100)
    (tmp_path / "folder").mkdir()
    trash.bury_folder(str(tmp_path / "folder"), 50)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "x.log.deleted"]
    assert trash.wait_ms == 50
    assert [removed_at(trash, clock, moment) for moment in (1_049, 1_099, 1_100)] == [0, 1, 1]
    assert not list(tmp_path.iterdir())
    assert trash.wait_ms is None


def test_a_name_that_is_buried_again_takes_another(tmp_path: Path) -> None:
    pool, clock = FilePool(capacity=4), Steady()
    trash = Trash(pool.files, clock)
    files = []
    for number in range(3):
        file = PooledFile(pool, Folder(str(tmp_path)), "x.log", create=True)
        file.write(b"%d" % number, 0)
        file.close()
        trash.bury([file], 100 + number)
        files.append(file)
    assert [file.read(9, 0) for file in files] == [b"0", b"1", b"2"]
    assert [file.name for file in files] == ["x.log.deleted", "x.log.1.deleted", "x.log.2.deleted"]
    assert removed_at(trash, clock, 1_100) == 1
    assert [file.read(9, 0) for file in files[1:]] == [b"1", b"2"]
    assert removed_at(trash, clock, 1_200) == 2
