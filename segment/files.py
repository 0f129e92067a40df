"""Every call to the operating system that storage makes, and a pool that bounds the open descriptors.

`Files` holds the calls; tests subclass it to cut writes short or to fail the n-th call. A broker may hold 10,000 logs
and more files than descriptors, so a `PooledFile` knows its place and is opened on use; the pool closes the least
recently used ones beyond its capacity. Whoever works on a descriptor *pins* the file: a pinned one is never closed
under its user, not even when the file is deleted meanwhile (the kernel keeps the bytes of an unlinked file that is
open).

A disk may take its time to open, to rename and to remove: nobody holds the pool's lock then, and who uses a file that
is open does not notice. Who does one of these *claims* the file, or the folder, and the next one who wants that waits.
So a file is opened by the name that it has, and nobody finds another one in its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import resource
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence

from kbroker.segment.disk_pace import SLOW_S, DiskPace
from kbroker.segment.flush_times import FlushTimes

Buffer = bytes | bytearray | memoryview

CREATE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_AT_ONCE: int = getattr(os, "RWF_NOWAIT", 0)
_CANNOT_TELL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""What a file system says that keeps everything in memory, or does not know the question."""
_NO_SENDFILE = (*_CANNOT_TELL, errno.ENOTSOCK)
"""What is said where sendfile serves sockets only, or not this file system."""
_SPARE_DESCRIPTORS = 32
"""Checkpoints, snapshots and folders are opened for a moment only, by whatever thread: they find a descriptor free."""
LEAST_CAPACITY = 16
"""Of all pools of a process together: fewer than are spare."""
GROW_S = 60.0
"""How seldom a pool that gave way takes more again."""
_PROBE_EVERY = 1 << 19
_READ_AHEAD_BYTES = 1 << 18
_SMALL_FILE_BYTES, _LARGER_FILE_BYTES = 1 << 12, 1 << 20
_NO_LIMIT = (1 << 31) - 1


class NotInMemory(Exception):
    """Reading this now would wait for the disk, or take long: a worker thread should do it."""


class FileRemoved(FileNotFoundError):
    """The file was removed by us, under a reader that had found it a moment ago: nothing is wrong with the disk."""


class Files:
    """The operating system, call by call. The small wrappers exist so that tests can fail each of them."""

    __slots__ = ()

    pwrite: Callable[[int, Buffer, int], int] = staticmethod(os.pwrite)
    pread: Callable[[int, int, int], bytes] = staticmethod(os.pread)
    read_into: Callable[[int, Sequence[memoryview], int], int] = staticmethod(os.preadv)
    truncate: Callable[[int, int], None] = staticmethod(os.ftruncate)

    def read_at_once(self, descriptor: int, buffer: bytearray, position: int) -> bool:
        """Fill the buffer from the page cache; False when that is not possible without waiting for the disk."""
        try:
            return os.preadv(descriptor, (buffer,), position, _AT_ONCE) == len(buffer)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _CANNOT_TELL:
                raise
            return os.preadv(descriptor, (buffer,), position) == len(buffer)

    def load(self, descriptor: int, position: int, size: int) -> None:
        """Bring bytes of a file into the page cache; blocks. What is there already costs next to nothing."""
        end = position + size
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while position < end and (count := os.sendfile(null, descriptor, position, end - position)):
                position += count
        except OSError as error:
            if error.errno not in _NO_SENDFILE:
                raise
            for place in range(position, end, _READ_AHEAD_BYTES):
                self.pread(descriptor, min(_READ_AHEAD_BYTES, end - place), place)
        finally:
            os.close(null)

    def sync(self, descriptor: int) -> None:
        """Let a file's bytes reach the disk."""
        os.fdatasync(descriptor)

    def open(self, path: str, flags: int) -> int:
        """Open a file, readable by its group as Kafka's are."""
        return os.open(path, flags, 0o644)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing the target atomically."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file; one that is gone already is fine."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def set_modified(self, path: str, time_ns: int) -> None:
        """Set the time when a file was last changed."""
        os.utime(path, ns=(time_ns, time_ns))

    def make_folder(self, path: str) -> None:
        """Make a folder whose parent exists."""
        os.mkdir(path, 0o755)

    def make_folders(self, path: str) -> None:
        """Make a folder, and those above it, that is missing; what is made survives a power loss."""
        if not os.path.isdir(path):
            above = os.path.dirname(path) or "."
            self.make_folders(above)
            os.makedirs(path, exist_ok=True)  # another broker may have been quicker
            self.sync_folder(above)

    def remove_folder(self, path: str) -> None:
        """Remove a folder and all that is in it."""
        shutil.rmtree(path)

    def write_all(self, descriptor: int, data: Buffer, position: int) -> None:
        """Write all of data at position: the kernel may take less than it is given."""
        written = self.pwrite(descriptor, data, position)
        if written != len(data):
            view = memoryview(data)
            while written < len(view):
                written += self.pwrite(descriptor, view[written:], position + written)

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder survive a power loss."""
        descriptor = os.open(path, _DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_path(self, path: str) -> None:
        """fsync a file by name; one that is gone meanwhile needs no syncing."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def sync_filesystem(self, path: str) -> None:
        """Sync the whole file system a path lies on: with thousands of dirty files much cheaper than one by one."""
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(path, _DIRECTORY)
        try:
            if not hasattr(libc, "syncfs"):
                os.sync()
            elif libc.syncfs(descriptor) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(descriptor)

    def read_file(self, path: str) -> bytes | None:
        """A small file's content, None when there is none."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:  # in few calls: a start reads two such files of each log
            pieces = [os.read(descriptor, _SMALL_FILE_BYTES)]
            while len(pieces[-1]) >= _SMALL_FILE_BYTES:
                pieces.append(os.read(descriptor, _LARGER_FILE_BYTES))
            return b"".join(pieces)
        finally:
            os.close(descriptor)

    def write_file(self, path: str, data: bytes, sync: bool) -> None:
        """Write a file; one that is there is overwritten."""
        descriptor = self.open(path, CREATE | os.O_TRUNC)
        try:
            self.write_all(descriptor, data, 0)
            if sync:
                self.sync(descriptor)
        finally:
            self.close(descriptor)

    def replace_file(self, path: str, data: bytes, sync: bool) -> None:
        """Write a small file whole or not at all: `<path>.tmp`, then rename."""
        temporary = path + ".tmp"
        self.write_file(temporary, data, sync)
        self.rename(temporary, path)
        if sync:
            self.sync_folder(os.path.dirname(path))


def default_capacity() -> int:
    """Raise the soft descriptor limit to the hard one; half of it is for segments, the rest for connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = 1 << 20
    if soft < hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return max(32, min(soft // 2, 30_000))  # 30,000: vm.max_map_count is 65,530 by default


def first_spare_descriptor() -> int:
    """Return the number from which on descriptors are left to what is open for a moment only."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _NO_LIMIT if limit == resource.RLIM_INFINITY else limit - min(limit // 4, _SPARE_DESCRIPTORS)


class FilePool:
    """Bounds how many descriptors (and maps) the segments keep open. Thread-safe."""

    __slots__ = (
        "_claimed",
        "_first_spare",
        "_given_up",
        "_grows_at",
        "_least",
        "_most",
        "_open",
        "capacity",
        "files",
        "flush_times",
        "is_full",
        "lock",
        "pace",
    )

    def __init__(
        self,
        files: Files | None = None,
        capacity: int = 0,
        least: int = LEAST_CAPACITY,
        pace: DiskPace | None = None,
        flush_times: FlushTimes | None = None,
    ) -> None:
        """`least`: of its capacity so much is left to it when descriptors are short; `pace`: of the files' disk."""
        self.files = files or Files()
        self.pace = pace or DiskPace()
        self.flush_times = flush_times or FlushTimes()
        self.capacity = self._most = capacity or default_capacity()
        self._least = min(least, self._most)
        self._first_spare = first_spare_descriptor()
        self._grows_at = 0.0
        self.lock = threading.RLock()
        """Guards all descriptors and maps; held for a look-up in a map, too, never while bytes or names move."""
        self._claimed: set[PooledFile | Folder] = set()
        self._given_up = threading.Condition(self.lock)
        """Told when a claim ends."""
        self._open: OrderedDict[PooledFile, None] = OrderedDict()
        self.is_full = False
        """Whether another file cannot be opened without closing one; only then it matters who was used last."""

    def __len__(self) -> int:
        """How many files are open."""
        return len(self._open)

    def pin(self, file: PooledFile) -> int:
        """Return the descriptor (opened if need be), not to be closed before unpin."""
        with self.lock:
            descriptor = file.descriptor
            if descriptor >= 0:
                if self.is_full:
                    self._open.move_to_end(file)
                file.pins += 1
                return descriptor
        with self.claim(file), self.pace.timed():
            return self._pin_claimed(file)

    @contextlib.contextmanager
    def claim(self, what: PooledFile | Folder) -> Iterator[None]:
        """Be the only one who opens, renames or removes a file, or the files of a folder. One thing at a time."""
        with self._given_up:
            while self._is_claimed(what):
                self._given_up.wait()
            self._claimed.add(what)
        try:
            yield
        finally:
            with self._given_up:
                self._claimed.discard(what)
                self._given_up.notify_all()

    def _is_claimed(self, what: PooledFile | Folder) -> bool:
        if isinstance(what, PooledFile):
            return what in self._claimed or what.folder in self._claimed
        return any(each is what or (isinstance(each, PooledFile) and each.folder is what) for each in self._claimed)

    def unpin(self, file: PooledFile) -> None:
        """Give a pinned file back."""
        with self.lock:
            file.pins -= 1
            if file.closing and file.pins == 0:
                self._close_file(file)

    def _pin_claimed(self, file: PooledFile) -> int:
        with self.lock:
            if file.is_removed:
                raise FileRemoved(errno.ENOENT, "it was removed", file.path)
            descriptor = file.descriptor
            if descriptor < 0 and len(self._open) + len(self._claimed) > self.capacity:
                self._evict()
            file.pins += 1
        try:
            return descriptor if descriptor >= 0 else self._open_file(file)
        except BaseException:
            self.unpin(file)
            raise

    def _open_file(self, file: PooledFile) -> int:
        """Open a file that is claimed and pinned."""
        flags = CREATE if file.create else os.O_RDWR | os.O_CLOEXEC
        was_found = True
        try:
            descriptor = self.files.open(file.path, flags)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            with self.lock:
                self._close_half(at_least=1)
            descriptor = self.files.open(file.path, flags)
            was_found = False
        with self.lock:
            if was_found:
                self._heed(descriptor)
            file.descriptor = descriptor
            file.create = False
            self._open[file] = None
            self.is_full = len(self._open) >= self.capacity
        return descriptor

    def _heed(self, descriptor: int) -> None:
        """Give way, or grow back: the system gives the lowest free number."""
        if descriptor >= self._first_spare:
            self._close_half()
        elif self.capacity < self._most and descriptor < self._first_spare * 3 // 4:
            self._grow()

    def _grow(self) -> None:
        """Seldom, as low numbers tell little: what this pool has closed itself left them free."""
        if time.monotonic() >= self._grows_at:
            self.capacity = min(2 * self.capacity, self._most)
            self._grows_at = time.monotonic() + GROW_S

    def _close_half(self, at_least: int = 0) -> None:
        """Connections took more than their half."""
        self._grows_at = time.monotonic() + GROW_S
        self.capacity = max(self._least, min(len(self._open) // 2, self._most))
        self._evict(at_least)

    def _evict(self, at_least: int = 0) -> None:
        """Close the least recently used files that nobody works on: an eighth of them, to do it seldom."""
        surplus = len(self._open) - self.capacity + 1 + self.capacity // 8
        victims = [file for file in self._open if file.pins == 0][: max(surplus, at_least)]
        for file in victims:
            self._close_file(file)

    def _close_file(self, file: PooledFile) -> None:
        self._open.pop(file, None)
        self.is_full = len(self._open) >= self.capacity
        descriptor, file.descriptor, file.closing = file.descriptor, -1, False
        if file.map is not None:
            file.map.close()
            file.map = None
        if descriptor >= 0:
            self.files.close(descriptor)

    def close(self, file: PooledFile) -> None:
        """Close the file now, or when the last user unpins it."""
        with self.lock:
            if file.pins:
                file.closing = True
            elif file.descriptor >= 0:
                self._close_file(file)

    def rename(self, file: PooledFile, name: str) -> None:
        """Give the file another name in its folder; it may stay open."""
        with self.claim(file), self.pace.timed():
            self.files.rename(file.path, f"{file.folder.path}/{name}")
            file.name = name

    def move_folder(self, folder: Folder, path: str) -> None:
        """Rename a folder with all its files, which may stay open."""
        with self.claim(folder), folder.moving, self.pace.timed():
            self.files.rename(folder.path, path)
            folder.path = path

    def remove(self, file: PooledFile) -> None:
        """Delete the file, and never open it again."""
        with self.lock:
            file.is_removed = True
        with self.claim(file):  # it may be about to be opened, or to have another name
            self.close(file)
            self.files.unlink(file.path)


class Folder:
    """Where a log's files lie; renamed as a whole when the log is deleted, or takes the place of another."""

    __slots__ = ("moving", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.moving = threading.Lock()
        """Held from before it has another name until `path` tells it."""

    def was_moved(self, path: str) -> bool:
        """Whether it lies elsewhere by now: then it is no fault of the disk that nothing was found there."""
        with self.moving:
            return self.path != path


class PooledFile:
    """A file that is open only while it is used, or lately was."""

    __slots__ = ("closing", "create", "descriptor", "folder", "is_removed", "map", "name", "pins", "pool")

    def __init__(self, pool: FilePool, folder: Folder, name: str, create: bool = False) -> None:
        self.pool = pool
        self.folder = folder
        self.name = name
        self.create = create
        """Whether the first opening makes the file."""
        self.descriptor = -1
        self.pins = 0
        self.closing = False
        self.is_removed = False
        """Never to be opened again: another file may have its name by now."""
        self.map: mmap.mmap | None = None

    @property
    def path(self) -> str:
        """Where it lies now."""
        return f"{self.folder.path}/{self.name}"

    def write(self, data: Buffer, position: int) -> None:
        """Write all of data at position. A disk that is behind makes writers wait: nobody else waits with them."""
        pool = self.pool
        descriptor = pool.pin(self)
        begun = time.monotonic()
        try:
            pool.files.write_all(descriptor, data, position)
        finally:
            if time.monotonic() - begun >= SLOW_S:
                pool.pace.note(begun)
            pool.unpin(self)

    def change_time_ns(self) -> int:
        """When the file was last changed, by whomever."""
        pool = self.pool
        with pool.lock:
            if self.descriptor >= 0 and not pool.is_full:
                return os.fstat(self.descriptor).st_mtime_ns
        descriptor = pool.pin(self)
        try:
            return os.fstat(descriptor).st_mtime_ns
        finally:
            pool.unpin(self)

    def read(self, size: int, position: int) -> bytes:
        """Up to size bytes from position; fewer only at the file's end."""
        pool = self.pool
        descriptor = pool.pin(self)
        try:
            data = pool.files.pread(descriptor, size, position)
            while 0 < len(data) < size:  # a read of more than 2 GiB, or one that a signal cut short
                more = pool.files.pread(descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data
        finally:
            pool.unpin(self)

    def read_at_once(self, size: int, position: int) -> bytearray:
        """All these bytes, without waiting for the disk; raises NotInMemory when some are not in the page cache."""
        data = bytearray(size)
        self._fill_at_once(data, (position,))
        return data

    def require_in_memory(self, size: int, position: int) -> None:
        """Raise NotInMemory when sending these bytes would wait for the disk, as far as samples tell: the last byte,
        and some on the way there. The first ones were looked at by whoever knows where to begin.
        """
        last = position + size - 1
        places = (last,) if size <= _PROBE_EVERY else (*range(position + _PROBE_EVERY, last, _PROBE_EVERY), last)
        self._fill_at_once(bytearray(1), places)

    def _fill_at_once(self, buffer: bytearray, places: Iterable[int]) -> None:
        pool = self.pool
        descriptor = pool.pin(self)
        try:
            for place in places:
                if not pool.files.read_at_once(descriptor, buffer, place):
                    raise NotInMemory
        finally:
            pool.unpin(self)

    def read_ahead(self, size: int, position: int) -> None:
        """Bring these bytes into the page cache. The kernel sees a file that is read, and goes on by itself.

        It is not told what will be wanted (POSIX_FADV_WILLNEED): reading and sending what it fetched by that took
        twice the time where it was measured.
        """
        descriptor = self.pool.pin(self)
        try:
            self.pool.files.load(descriptor, position, size)
        finally:
            self.pool.unpin(self)

    def sync(self) -> None:
        """fdatasync; a file that we removed meanwhile needs none. Nobody holds a lock while waiting."""
        try:
            descriptor = self.pool.pin(self)
        except FileRemoved:
            return
        try:
            self.pool.files.sync(descriptor)
        finally:
            self.pool.unpin(self)

    def truncate(self, size: int) -> None:
        """Cut the file to size."""
        descriptor = self.pool.pin(self)
        try:
            self.pool.files.truncate(descriptor, size)
        finally:
            self.pool.unpin(self)

    def file_size(self) -> int:
        """Size on disk; 0 when the file does not exist."""
        try:
            return os.fstat(self.descriptor).st_size if self.descriptor >= 0 else os.stat(self.path).st_size
        except FileNotFoundError:
            return 0

    def modified_ms(self) -> int:
        """Time of the last change, 0 when the file does not exist."""
        try:
            return os.stat(self.path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        """Close, at the latest when its last user lets go."""
        self.pool.close(self)

    def remove(self) -> None:
        """Delete the file; slices that are pinned can still be read. It may be gone already, with its folder."""
        self.pool.remove(self)
