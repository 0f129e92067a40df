"""The pool of open files."""

import os
from pathlib import Path

import pytest

from kbroker.segment.files import FilePool, Files, Folder, PooledFile
from tests.crash.faults import FaultyFiles


def make(pool: FilePool, path: Path, count: int) -> list[PooledFile]:
    folder = Folder(str(path))
    return [PooledFile(pool, folder, f"f{number}", create=True) for number in range(count)]


def test_the_pool_stays_within_its_capacity(tmp_path: Path) -> None:
    pool = FilePool(capacity=8)
    files = make(pool, tmp_path, 40)
    for turn in range(3):
        for number, file in enumerate(files):
            file.write(b"%d" % turn, 0)
            assert len(pool) <= 8
            assert files[number // 2].read(1, 0) == b"%d" % turn
    for file in files:
        file.close()
    assert len(pool) == 0


def test_a_pinned_file_is_not_closed_under_its_user(tmp_path: Path) -> None:
    pool = FilePool(capacity=4)
    first, *others = make(pool, tmp_path, 12)
    first.write(b"kept", 0)
    descriptor = pool.pin(first)
    for file in others:
        file.write(b"x", 0)
    first.remove()
    assert os.pread(descriptor, 4, 0) == b"kept"
    pool.unpin(first)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pread(descriptor, 4, 0)
    for file in others:
        file.close()


def test_a_file_is_made_only_when_it_is_opened_first(tmp_path: Path) -> None:
    pool = FilePool(capacity=4)
    (file,) = make(pool, tmp_path, 1)
    assert not file.file_size()
    file.write(b"x", 0)
    file.remove()
    with pytest.raises(FileNotFoundError):
        file.write(b"x", 0)


def test_files_move_with_their_folder(tmp_path: Path) -> None:
    pool = FilePool(capacity=4)
    (tmp_path / "a").mkdir()
    folder = Folder(str(tmp_path / "a"))
    file = PooledFile(pool, folder, "f", create=True)
    file.write(b"x", 0)
    pool.move_folder(folder, str(tmp_path / "b"))
    file.close()
    assert file.read(1, 0) == b"x"
    pool.rename(file, "g")
    assert (tmp_path / "b" / "g").exists()
    file.close()


def test_short_writes_are_continued(tmp_path: Path) -> None:
    pool = FilePool(FaultyFiles(short=True), capacity=4)
    (file,) = make(pool, tmp_path, 1)
    file.write(bytes(range(200)), 0)
    assert file.read(500, 0) == bytes(range(200))
    file.close()


def test_a_small_file_is_replaced_whole(tmp_path: Path) -> None:
    files = Files()
    path = str(tmp_path / "x")
    assert files.read_file(path) is None
    files.replace_file(path, b"one", sync=True)
    files.replace_file(path, b"two", sync=False)
    assert files.read_file(path) == b"two"
    assert os.listdir(tmp_path) == ["x"]
    files.sync_path(path)
    files.sync_path(path + "-gone")
    files.sync_filesystem(str(tmp_path))
