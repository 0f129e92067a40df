"""The pool of open files."""

import errno
import os
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kbroker.segment.files import GROW_S, Buffer, FilePool, FileRemoved, Files, Folder, NotInMemory, PooledFile
from kbroker.segment.log_manager import LogManager
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


def test_what_is_open_for_a_moment_finds_a_descriptor_though_connections_took_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = [os.dup(1)]
    while len(connections) < 100 or connections[-1] - connections[-100] != 99:  # from here on all numbers are free
        connections.append(os.dup(1))
    limit = connections[-1] + 1
    for _ in range(60):
        os.close(connections.pop())
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    pool = FilePool(capacity=100)
    files = make(pool, tmp_path, 70)
    try:
        for file in files:
            file.write(b"x", 0)
            momentary = os.dup(1)  # the lowest number that is free
            os.close(momentary)
            assert momentary < limit - 10
        assert [file.read(1, 0) for file in files] == [b"x"] * 70
    finally:
        for descriptor in connections:
            os.close(descriptor)
        for file in files:
            file.close()


class Descriptors(Files):
    """Tells numbers as a process would that has so many others open; `is_out`: there is none at the first try."""

    above = 0
    is_out = False

    def __init__(self) -> None:
        self.given: dict[int, int] = {}

    def open(self, path: str, flags: int) -> int:
        if self.is_out:
            self.is_out = False
            raise OSError(errno.EMFILE, "Too many open files")
        number = super().open(path, flags)
        self.given[self.above + number] = number
        return self.above + number

    def close(self, descriptor: int) -> None:
        super().close(self.given.pop(descriptor))

    def pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        return super().pwrite(self.given[descriptor], data, position)


def touch(files: list[PooledFile]) -> None:
    for file in files:
        file.write(b"x", 0)


LIMIT = 1 << 20


@pytest.fixture
def descriptors(monkeypatch: pytest.MonkeyPatch) -> Descriptors:
    monkeypatch.setattr("resource.getrlimit", lambda _: (LIMIT, LIMIT))
    return Descriptors()


def test_a_pool_that_gave_way_to_connections_grows_back_once_they_are_gone(
    tmp_path: Path, descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    pool = FilePool(descriptors, capacity=64)
    files = make(pool, tmp_path, 64)
    touch(files[:40])
    descriptors.above = LIMIT - 16
    touch(files[40:41])
    assert (pool.capacity, len(pool) < 24) == (20, True)
    descriptors.above = LIMIT - 2000  # many are open still
    touch(files[41:50])
    assert pool.capacity == 20
    descriptors.above = 0
    touch(files)
    assert pool.capacity == 20  # low numbers are free, as it has closed some itself
    now = GROW_S
    touch(files)
    assert pool.capacity == 40
    now = 2 * GROW_S
    touch(files)
    touch(files)
    assert (pool.capacity, len(pool)) == (64, 64)
    for file in files:
        file.close()


def test_a_pool_that_found_no_descriptor_gives_way_once(tmp_path: Path, descriptors: Descriptors) -> None:
    pool = FilePool(descriptors, capacity=128)
    files = make(pool, tmp_path, 81)
    touch(files[:80])
    descriptors.above, descriptors.is_out = LIMIT - 16, True
    touch(files[80:])
    assert pool.capacity == 40
    for file in files:
        file.close()


def test_a_pool_of_few_files_that_finds_no_descriptor_closes_one(tmp_path: Path, descriptors: Descriptors) -> None:
    pool = FilePool(descriptors, capacity=64)
    files = make(pool, tmp_path, 4)
    touch(files[:3])
    descriptors.is_out = True
    touch(files[3:])
    assert len(pool) == 3
    for file in files:
        file.close()


def test_a_pool_that_gives_way_keeps_the_few_files_that_it_may(tmp_path: Path, descriptors: Descriptors) -> None:
    pool = FilePool(descriptors, capacity=64)
    files = make(pool, tmp_path, 13)
    touch(files[:12])
    descriptors.above = LIMIT - 16
    touch(files[12:])
    assert (pool.capacity, len(pool)) == (16, 13)
    for file in files:
        file.close()


def test_a_pool_that_gives_way_does_not_grow_by_it(tmp_path: Path, descriptors: Descriptors) -> None:
    pool = FilePool(descriptors, capacity=8)
    files = make(pool, tmp_path, 3)
    descriptors.above = LIMIT - 16
    touch(files)
    assert pool.capacity == 8
    for file in files:
        file.close()


@pytest.mark.parametrize(("directories", "least"), [(1, 16), (2, 8), (3, 5), (8, 4)])
def test_the_pools_of_several_directories_keep_no_more_than_is_spare(
    tmp_path: Path, directories: int, least: int, descriptors: Descriptors
) -> None:
    manager = LogManager([tmp_path / str(number) for number in range(directories)], files=descriptors)
    for number, pool in enumerate(manager._pools.values()):
        (tmp_path / str(number)).mkdir(exist_ok=True)
        assert pool.capacity > least
        files = make(pool, tmp_path / str(number), 20)
        descriptors.above = LIMIT - 16
        touch(files)
        assert (pool.capacity, len(pool) <= least + 1) == (least, True)
        for file in files:
            file.close()


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


class Stalling(Files):
    """A disk that is behind: writes to one file wait."""

    __slots__ = ("goes_on", "is_asked")

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.is_asked = threading.Event()

    def pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        if data == b"slow":
            self.is_asked.set()
            assert self.goes_on.wait(20)
        return os.pwrite(descriptor, data, position)


def test_a_write_that_waits_for_its_disk_holds_up_no_other_file(tmp_path: Path) -> None:
    stalling = Stalling()
    pool = FilePool(stalling, capacity=4)
    slow, quick = make(pool, tmp_path, 2)
    writer = threading.Thread(target=slow.write, args=(b"slow", 0))
    writer.start()
    assert stalling.is_asked.wait(20)
    done = threading.Thread(target=lambda: (quick.write(b"quick", 0), quick.read(5, 0), quick.close()))
    done.start()
    done.join(20)
    assert not done.is_alive()
    slow.remove()
    stalling.goes_on.set()
    writer.join()
    assert (len(pool), quick.file_size(), slow.file_size()) == (0, 5, 0)


def test_a_removed_file_is_never_opened_again(tmp_path: Path) -> None:
    pool = FilePool(capacity=4)
    first, again = make(pool, tmp_path, 1) + make(pool, tmp_path, 1)
    first.write(b"former", 0)
    first.remove()
    again.write(b"successor", 0)
    with pytest.raises(FileRemoved):
        first.read(3, 0)
    first.sync()  # and needs no syncing
    again.close()
    os.unlink(again.path)
    with pytest.raises(FileNotFoundError):
        again.sync()


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


def test_what_is_not_in_the_page_cache_is_not_read_at_once(tmp_path: Path) -> None:
    pool = FilePool()
    file = make(pool, tmp_path, 1)[0]
    file.write(bytes(1 << 20), 0)
    file.sync()
    assert file.read_at_once(1 << 20, 0) == bytes(1 << 20)
    file.require_in_memory(1 << 20, 0)
    with pytest.raises(NotInMemory):
        file.read_at_once(2, (1 << 20) - 1)
    os.posix_fadvise(pool.pin(file), 0, 0, os.POSIX_FADV_DONTNEED)
    if not cannot_tell(file):
        with pytest.raises(NotInMemory):
            file.require_in_memory(1 << 20, 0)
    file.read_ahead(1 << 20, 0)
    file.require_in_memory(1 << 20, 0)


@pytest.mark.parametrize("refusal", [errno.ENOTSOCK, errno.EINVAL])
def test_where_files_cannot_be_sent_to_nowhere_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    class Counting(Files):
        places: ClassVar[list[tuple[int, int]]] = []

        def pread(self, descriptor: int, size: int, position: int) -> bytes:
            self.places.append((position, size))
            return os.pread(descriptor, size, position)

    def refuse(*_: Any) -> int:
        raise OSError(refusal, os.strerror(refusal))

    file = make(FilePool(files=Counting()), tmp_path, 1)[0]
    file.write(bytes(1 << 20), 0)
    file.read_ahead(1 << 19, 10)
    assert not Counting.places
    monkeypatch.setattr(os, "sendfile", refuse)
    file.read_ahead((1 << 18) + 5, 10)
    assert Counting.places == [(10, 1 << 18), (10 + (1 << 18), 5)]


def test_a_disk_that_fails_while_it_is_read_ahead_is_heard_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> int:
        raise OSError(errno.EIO, "the disk is broken")

    file = make(FilePool(), tmp_path, 1)[0]
    file.write(bytes(1000), 0)
    file.read_ahead(5000, 0)  # it ends where the file ends
    monkeypatch.setattr(os, "sendfile", fail)
    with pytest.raises(OSError, match="broken"):
        file.read_ahead(1000, 0)


def cannot_tell(file: PooledFile) -> bool:
    """Whether the file system keeps everything in memory, or does not say what is there."""
    try:
        os.preadv(file.descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def test_a_file_system_that_does_not_say_what_is_in_memory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv

    def refuse(descriptor: int, buffers: Any, position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return preadv(descriptor, buffers, position)

    monkeypatch.setattr(os, "preadv", refuse)
    file = make(FilePool(), tmp_path, 1)[0]
    file.write(b"abc", 0)
    assert file.read_at_once(3, 0) == b"abc"
    file.require_in_memory(3, 0)
