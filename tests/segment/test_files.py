"""The pool of open files."""

import errno
import os
import threading
import time
from collections.abc import Callable
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


class Lingering(Files):
    """A disk that takes its time for one kind of call, and is done with it (or fails) long before it says so."""

    __slots__ = ("error", "goes_on", "is_asked", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.error: OSError | None = None
        self.goes_on = threading.Event()
        self.is_asked = threading.Event()

    def _linger(self, kind: str) -> None:
        if kind == self.kind:
            self.is_asked.set()
            assert self.goes_on.wait(20)
            if self.error is not None:
                raise self.error

    def rename(self, source: str, target: str) -> None:
        if self.error is None:
            super().rename(source, target)
        self._linger("rename")

    def open(self, path: str, flags: int) -> int:
        descriptor = super().open(path, flags)
        self._linger("open " + os.path.basename(path))
        return descriptor

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._linger("unlink")


class Lingered:
    """A pool on such a disk, two files of it, the first one closed, and threads that want something of it."""

    def __init__(self, path: Path, kind: str, close: bool = True) -> None:
        (path / "a").mkdir()
        self.disk = Lingering("")
        self.pool = FilePool(self.disk, capacity=4)
        self.file, self.other = make(self.pool, path / "a", 2)
        self.file.write(b"x", 0)
        if close:
            self.file.close()
        self.disk.kind = kind
        self._threads: list[threading.Thread] = []
        self._waiting = 0

    def start(self, do: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=do)
        self._threads.append(thread)
        thread.start()
        return thread

    def start_waiting(self, do: Callable[[], object]) -> None:
        """Start what has to wait for the one that is under way."""
        self._waiting += 1
        self.start(do)
        deadline = time.monotonic() + 20
        waiters: list[object] = self.pool._given_up._waiters  # type: ignore[attr-defined]
        while len(waiters) < self._waiting and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(waiters) == self._waiting

    def end(self) -> None:
        self._waiting = 0
        self.disk.goes_on.set()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()

    def others_go_on(self) -> None:
        done = self.start(lambda: (self.other.write(b"other", 0), self.other.close(), self.other.read(5, 0)))
        done.join(20)
        assert not done.is_alive()


@pytest.mark.parametrize("kind", ["rename", "open f0", "unlink"])
def test_a_disk_that_takes_its_time_for_one_file_holds_up_no_other(tmp_path: Path, kind: str) -> None:
    lingered = Lingered(tmp_path, kind)
    do: Callable[[], object]
    do = {
        "rename": lambda: lingered.pool.rename(lingered.file, "g"),
        "open f0": lambda: lingered.file.read(1, 0),
        "unlink": lingered.file.remove,
    }[kind]
    lingered.start(do)
    assert lingered.disk.is_asked.wait(20)
    lingered.others_go_on()
    lingered.end()
    assert lingered.other.read(5, 0) == b"other"


def test_a_file_that_is_open_is_used_while_it_gets_another_name(tmp_path: Path) -> None:
    lingered = Lingered(tmp_path, "rename", close=False)
    lingered.start(lambda: lingered.pool.rename(lingered.file, "g"))
    assert lingered.disk.is_asked.wait(20)
    done = lingered.start(lambda: (lingered.file.read(1, 0), lingered.file.write(b"y", 0), lingered.file.sync()))
    done.join(20)
    assert not done.is_alive()
    lingered.end()
    assert (lingered.file.name, (tmp_path / "a" / "g").read_bytes()) == ("g", b"y")


@pytest.mark.parametrize("of_folder", [False, True])
def test_who_opens_a_file_that_has_another_name_since_a_moment_finds_it(tmp_path: Path, of_folder: bool) -> None:
    lingered, found = Lingered(tmp_path, "rename"), []
    pool, file = lingered.pool, lingered.file
    file.create = True  # as that of an index, which is made when it is opened first
    if of_folder:
        lingered.start(lambda: pool.move_folder(file.folder, str(tmp_path / "b")))
    else:
        lingered.start(lambda: pool.rename(file, "g"))
    assert lingered.disk.is_asked.wait(20)
    lingered.start_waiting(lambda: found.append(file.read(1, 0)))
    lingered.end()
    assert found == [b"x"]
    assert [str(each.relative_to(tmp_path)) for each in tmp_path.glob("*/*")] == ["b/f0" if of_folder else "a/g"]


def test_of_two_renames_the_second_one_counts_and_what_is_removed_then_is_gone(tmp_path: Path) -> None:
    lingered = Lingered(tmp_path, "rename")
    pool, file = lingered.pool, lingered.file
    lingered.start(lambda: pool.rename(file, "g"))
    assert lingered.disk.is_asked.wait(20)
    lingered.start_waiting(lambda: pool.rename(file, "h"))
    lingered.end()
    assert (file.name, os.listdir(tmp_path / "a")) == ("h", ["h"])

    lingered.disk.goes_on.clear()
    lingered.disk.is_asked.clear()
    lingered.start(lambda: pool.rename(file, "i"))
    assert lingered.disk.is_asked.wait(20)
    lingered.start_waiting(file.remove)
    lingered.end()
    assert os.listdir(tmp_path / "a") == []


def test_a_rename_that_fails_leaves_the_file_its_name_and_those_who_waited_find_it(tmp_path: Path) -> None:
    lingered, found = Lingered(tmp_path, "rename"), []
    lingered.disk.error = OSError(errno.EIO, "broken")

    def rename() -> None:
        with pytest.raises(OSError, match="broken"):
            lingered.pool.rename(lingered.file, "g")
        found.append(b"failed")

    lingered.start(rename)
    assert lingered.disk.is_asked.wait(20)
    lingered.start_waiting(lambda: found.append(lingered.file.read(1, 0)))
    lingered.end()
    assert (sorted(found), lingered.file.name) == ([b"failed", b"x"], "f0")


def test_who_is_about_to_open_a_file_does_not_find_its_successor(tmp_path: Path) -> None:
    lingered, found = Lingered(tmp_path, "open f0"), []
    (successor,) = make(lingered.pool, tmp_path / "a", 1)
    lingered.start(lambda: found.append(lingered.file.read(1, 0)))
    assert lingered.disk.is_asked.wait(20)
    lingered.start_waiting(lambda: lingered.pool.rename(lingered.file, "f0.deleted"))
    assert os.listdir(tmp_path / "a") == ["f0"]
    lingered.end()
    successor.write(b"y", 0)
    assert (found, lingered.file.read(1, 0), successor.read(1, 0)) == ([b"x"], b"x", b"y")


def test_a_file_that_is_removed_while_it_is_opened_does_not_stay_open(tmp_path: Path) -> None:
    lingered, found = Lingered(tmp_path, "open f0"), []
    lingered.start(lambda: found.append(lingered.file.read(1, 0)))
    assert lingered.disk.is_asked.wait(20)
    lingered.start_waiting(lingered.file.remove)
    lingered.end()
    assert (found, len(lingered.pool), os.listdir(tmp_path / "a")) == ([b"x"], 0, [])


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
