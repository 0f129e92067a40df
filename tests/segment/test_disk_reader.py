"""Files are read past the page cache, wherever a piece of them begins and ends."""

import ctypes
import errno
import mmap
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from kbroker.segment.disk_reader import DiskReader
from kbroker.segment.files import Files

DATA = os.urandom(300_001)


class WithoutDirect(Files):
    """A file system that has no direct reads, and says so when a file is opened, or when it is read."""

    __slots__ = ("moment",)

    def __init__(self, moment: str) -> None:
        self.moment = moment

    def open(self, path: str, flags: int) -> int:
        if self.moment == "open" and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct reads")
        return super().open(path, flags)

    def read_into(self, descriptor: int, buffers: Sequence[memoryview], position: int) -> int:
        if self.moment == "read":
            self.moment = ""
            raise OSError(errno.EINVAL, "no direct reads")
        return os.preadv(descriptor, buffers, position)


class NotTwice(WithoutDirect):
    """One that says so when it is read, and cannot be opened again then."""

    __slots__ = ("closed", "opened")

    def __init__(self) -> None:
        super().__init__("read")
        self.opened: list[int] = []
        self.closed: list[int] = []

    def open(self, path: str, flags: int) -> int:
        if self.opened:
            raise OSError(errno.EMFILE, "too many open files")
        self.opened.append(super().open(path, flags))
        return self.opened[0]

    def close(self, descriptor: int) -> None:
        self.closed.append(descriptor)
        if self.closed.count(descriptor) == 1:
            super().close(descriptor)


@pytest.fixture
def path(on_disk: Path) -> Path:
    """A file that is on the disk."""
    file = on_disk / "file"
    file.write_bytes(DATA)
    Files().sync_path(str(file))
    return file


@pytest.mark.parametrize(
    "files", [Files(), WithoutDirect("open"), WithoutDirect("read")], ids=["direct", "open", "read"]
)
def test_any_piece_is_read_as_it_is_and_no_more_than_there_is(path: Path, files: Files) -> None:
    with closing(DiskReader(files, str(path))) as reader:
        pieces = [(0, 10), (1, 4096), (4095, 2), (4096, 4096), (70_000, 200_000), (299_990, 11), (299_990, 5000)]
        for position, size in [*pieces, (300_001, 5), (400_000, 10)]:
            assert reader.read(size, position) == DATA[position : position + size]
        assert b"".join(reader.read(7001, at) for at in range(0, len(DATA), 7001)) == DATA


def cached_pages(path: Path) -> int:
    """How many pages of the file the kernel has; asking brings none in."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as whole:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(whole)
        try:
            assert libc.mincore(ctypes.byref(start), ctypes.c_size_t(size), pages) == 0
        finally:
            del start
        return sum(page & 1 for page in pages)


def test_the_page_cache_stays_as_it_is(path: Path) -> None:
    """A disk is read that has rotted below a cached page, and consumers lose nothing by it."""
    all_pages = cached_pages(path)
    with closing(DiskReader(Files(), str(path))) as reader:
        reader.read(1, 0)
        if not reader.is_direct:
            pytest.skip("this file system has no direct reads")
        reader.read(len(DATA), 0)
        assert 0 < cached_pages(path) <= all_pages
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        left = cached_pages(path)
        if left == all_pages:
            pytest.skip("this file system keeps its files in memory")
        assert reader.read(len(DATA), 0) == DATA
        assert cached_pages(path) <= left


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DiskReader(Files(), str(tmp_path / "none"))


def test_a_file_that_cannot_be_opened_again_is_closed_only_once(path: Path) -> None:
    """Its number may be another file's by then."""
    files = NotTwice()
    with closing(DiskReader(files, str(path))) as reader:
        if not reader.is_direct:
            pytest.skip("this file system has no direct reads")
        with pytest.raises(OSError, match="too many"):
            reader.read(10, 0)
    assert files.closed == files.opened
