"""Files that wait to be removed."""

from pathlib import Path

from kbroker.segment.files import FilePool, Folder, PooledFile
from kbroker.segment.trash import Trash


def test_files_are_renamed_at_once_and_removed_when_due(tmp_path: Path) -> None:
    pool = FilePool(capacity=4)
    trash = Trash(pool.files)
    file = PooledFile(pool, Folder(str(tmp_path)), "x.log", create=True)
    file.write(b"x", 0)
    trash.bury([file], 100)
    (tmp_path / "folder").mkdir()
    trash.bury_folder(str(tmp_path / "folder"), 50)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "x.log.deleted"]
    assert (trash.next_due_ms, trash.run_due(49), trash.run_due(99), trash.run_due(100)) == (50, 0, 1, 1)
    assert not list(tmp_path.iterdir())
    assert trash.next_due_ms is None


def test_a_name_that_is_buried_again_takes_another(tmp_path: Path) -> None:
    pool = FilePool(capacity=4)
    trash = Trash(pool.files)
    files = []
    for number in range(3):
        file = PooledFile(pool, Folder(str(tmp_path)), "x.log", create=True)
        file.write(b"%d" % number, 0)
        file.close()
        trash.bury([file], 100 + number)
        files.append(file)
    assert [file.read(9, 0) for file in files] == [b"0", b"1", b"2"]
    assert [file.name for file in files] == ["x.log.deleted", "x.log.1.deleted", "x.log.2.deleted"]
    assert trash.run_due(100) == 1
    assert [file.read(9, 0) for file in files[1:]] == [b"1", b"2"]
    assert trash.run_due(200) == 2
