"""Disks: real files in folders, below what segment/files.py asks of the operating system.

    disk = Disks.add(folder)
    disk.fails = errno.EIO          # from now on; 0: no more
    disk.forget(rng)                # its machine has lost its power
    undo = disk.flip(rng, path, 7)  # one bit of a file

Nothing waits for a real disk, and the times at which files were changed are virtual. What is changed is noted until it
is synced, each file's contents and each folder's names by themselves: when power is lost, a first part of each is kept,
as long as chance draws it, mostly none; the last of it in a log may be torn. What folders are called, and that they are
there, is safe at once.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbroker.segment import files, log_dir
from tests.simulation.loop import EPOCH_S, STARTED_AT_S, Simulation

NOT_IN_MEMORY = 0.03
"""How often what is read at once has to come from the disk first."""
KEPT = 0.3
"""How often a part of what was not synced is there after a loss of power."""
TORN, TEARS = 0.5, ".log"
"""How often the last of it is there in part only, and in which files: batches have checksums."""
MADE_AT_NS = int((EPOCH_S + STARTED_AT_S) * 1e9)
"""Of files that nobody but their brokers has changed."""
Undo = Callable[[str], None]
"""Takes a change back, in the file or folder that lies there."""


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A change of a file's contents."""

    position: int
    before: bytes
    """What was there, as far as the file reached."""
    size: int
    """The file's."""

    def __call__(self, path: str) -> None:
        """Take it back."""
        with open(path, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), self.before, self.position)
            os.ftruncate(file.fileno(), self.size)

    def tear(self, rng: random.Random, path: str) -> None:
        """What was appended came to the disk in part: the file is as long as it was to be, and ends with zeros."""
        length = os.stat(path).st_size - self.position
        if self.position == self.size and length > 0:
            first = self.position + rng.randrange(length)
            with open(path, "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), bytes(self.position + length - first), first)


class Disk:
    """All files below a folder, and what of them is not safe yet."""

    def __init__(self, folder: str, graves: str, changed_ns: dict[str, int] | None = None) -> None:
        self.folder = folder
        self.name = os.path.basename(folder)
        self._changed_ns = {} if changed_ns is None else changed_ns
        """When files were changed by somebody else, as they show."""
        self.fails = 0
        """The error that every call meets."""
        self.fails_syncs_only = False
        """All but those that let something reach the disk do well."""
        self.flips = 0
        """How many bits have flipped."""
        self._graves = graves
        """Where files lie whose removal is not safe yet."""
        self._changes: dict[int, list[Undo]] = {}
        """Inode -> what was not synced, in order."""
        self._buried = 0
        self.boots = 1
        """How often its machine was switched on."""

    def check(self, is_sync: bool = False) -> None:
        """Raises OSError while the disk fails."""
        if self.fails and (is_sync or not self.fails_syncs_only):
            raise OSError(self.fails, os.strerror(self.fails), self.folder)

    def note(self, inode: int, undo: Undo) -> None:
        """A file or a folder was changed."""
        self._changes.setdefault(inode, []).append(undo)

    def synced(self, inode: int) -> None:
        """What was changed there is safe."""
        self._changes.pop(inode, None)

    def has_synced(self, path: str, size: int) -> bool:
        """Whether the first bytes of a file are there whatever happens."""
        waiting = self._changes.get(os.stat(path).st_ino, ())
        return not any(isinstance(each, Overwritten) and each.position < size for each in waiting)

    def all_synced(self) -> None:
        """Everything is."""
        self._changes.clear()

    def bury(self, path: str) -> str:
        """Keep a file that is about to go by another name."""
        self._buried += 1
        grave = f"{self._graves}/{self._buried}"
        os.link(path, grave)
        return grave

    def forget(self, rng: random.Random) -> int:
        """Take back what was not synced; returns how many changes that were. Nobody may have files open."""
        self.boots += 1
        changes, self._changes = self._changes, {}
        lost = 0
        for path in sorted(_all_below(self._graves)) + sorted(
            _all_below(self.folder), key=lambda each: (-len(each), each)
        ):
            waiting = changes.pop(os.stat(path).st_ino, [])
            kept = rng.randint(0, len(waiting)) if rng.random() < KEPT else 0
            lost += len(waiting) - kept
            for undo in reversed(waiting[kept:]):
                undo(path)
            if kept and path.endswith(TEARS) and rng.random() < TORN and isinstance(waiting[kept - 1], Overwritten):
                waiting[kept - 1].tear(rng, path)  # type: ignore[attr-defined]
        return lost

    def flip(self, rng: random.Random, path: Path, position: int, is_shown: bool = False) -> Callable[[], None]:
        """Flip a bit of a file's byte; returns what turns it back, if it is still the one.

        `is_shown`: the time of the file tells that it was changed.
        """
        self.flips += 1
        inode = path.stat().st_ino
        wrong = path.read_bytes()[position] ^ (1 << rng.randrange(8))

        def set_byte(value: int) -> None:
            with path.open("r+b", buffering=0) as file:
                file.seek(position)
                file.write(bytes([value]))
            if is_shown:
                self._changed_ns[str(path)] = time.time_ns()

        def turn_back(right: int = path.read_bytes()[position]) -> None:
            if (
                path.exists()
                and path.stat().st_ino == inode
                and path.read_bytes()[position : position + 1] == bytes([wrong])
            ):
                set_byte(right)

        set_byte(wrong)
        return turn_back


def _all_below(folder: str) -> Iterator[str]:
    for path, _, names in os.walk(folder):
        yield path
        yield from (f"{path}/{name}" for name in names)


class Disks:
    """What stands in the place of `os` in segment/files.py: the same calls, on the disks that there are."""

    def __init__(self) -> None:
        self._disks: dict[str, Disk] = {}
        self._open: dict[int, Disk] = {}
        """By descriptor."""
        self._changed_ns: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        """All else is the operating system's."""
        return getattr(os, name)

    def add(self, folder: Path) -> Disk:
        """Make a disk of a folder."""
        graves = folder.with_name(f"{folder.name}-graves")
        for each in (folder, graves):
            each.mkdir(parents=True)
        disk = self._disks[str(folder)] = Disk(str(folder), str(graves), self._changed_ns)
        return disk

    def changed_ns(self, path: str) -> int:
        """When a file was changed last by anybody but its broker."""
        return self._changed_ns.get(path, MADE_AT_NS) if self._changed_ns else MADE_AT_NS

    def of(self, folder: str) -> Disk:
        """Return the disk that a folder is."""
        return self._disks[folder]

    def _of(self, path: str) -> Disk | None:
        return next((disk for folder, disk in self._disks.items() if path.startswith(folder + "/")), None)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """Open, and perhaps make or empty, a file."""
        disk = self._of(path + "/")
        if disk is None:
            return os.open(path, flags, mode)
        disk.check()
        is_new = bool(flags & os.O_CREAT) and not os.path.exists(path)
        descriptor = os.open(path, flags & ~os.O_TRUNC, mode)
        self._open[descriptor] = disk
        if is_new:
            disk.synced(os.fstat(descriptor).st_ino)  # the number of one that is gone
            name = os.path.basename(path)
            disk.note(_inode_of_folder(path), lambda folder: os.unlink(f"{folder}/{name}"))
        elif flags & os.O_TRUNC:
            self.ftruncate(descriptor, 0)
        return descriptor

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Make a folder."""
        disk = self._of(path)
        if disk is not None:
            disk.check()
        os.mkdir(path, mode)
        if disk is not None:
            disk.synced(os.stat(path).st_ino)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        self._open.pop(descriptor, None)
        os.close(descriptor)

    def pwrite(self, descriptor: int, data: Any, position: int) -> int:
        """Write."""
        disk = self._open.get(descriptor)
        if disk is not None:
            disk.check()
            self._note_contents(disk, descriptor, position, len(data))
        return os.pwrite(descriptor, data, position)

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Cut, or lengthen, a file."""
        disk = self._open.get(descriptor)
        if disk is not None:
            disk.check()
            self._note_contents(disk, descriptor, size, 1 << 30)
        os.ftruncate(descriptor, size)

    def _note_contents(self, disk: Disk, descriptor: int, position: int, length: int) -> None:
        found = os.fstat(descriptor)
        size = found.st_size
        before = os.pread(descriptor, min(length, size - position), position) if position < size else b""

        disk.note(found.st_ino, Overwritten(position, before, size))

    def fdatasync(self, descriptor: int) -> None:
        """Make contents safe."""
        disk = self._open.get(descriptor)
        if disk is not None:
            disk.check(is_sync=True)
            disk.synced(os.fstat(descriptor).st_ino)

    fsync = fdatasync

    def replace(self, source: str, target: str) -> None:
        """Rename."""
        disk = self._of(source)
        if disk is not None:
            disk.check()
            if not os.path.isdir(source):
                self._note_renamed(disk, source, target)
        os.replace(source, target)

    def _note_renamed(self, disk: Disk, source: str, target: str) -> None:
        grave = disk.bury(target) if os.path.exists(target) else None
        old, new = os.path.basename(source), os.path.basename(target)

        def undo(folder: str) -> None:
            os.replace(f"{folder}/{new}", f"{folder}/{old}")
            if grave is not None:
                os.link(grave, f"{folder}/{new}")

        disk.note(_inode_of_folder(target), undo)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        disk = self._of(path)
        if disk is not None and os.path.exists(path):
            disk.check()
            grave, name = disk.bury(path), os.path.basename(path)
            disk.note(_inode_of_folder(path), lambda folder: os.link(grave, f"{folder}/{name}"))
        os.unlink(path)

    def preadv(self, descriptor: int, buffers: Any, position: int, flags: int = 0) -> int:
        """Read."""
        self._check(descriptor)
        return os.preadv(descriptor, buffers, position)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        """Read."""
        self._check(descriptor)
        return os.pread(descriptor, size, position)

    def _check(self, descriptor: int) -> None:
        disk = self._open.get(descriptor)
        if disk is not None:
            disk.check()


def _inode_of_folder(path: str) -> int:
    return os.stat(os.path.dirname(path)).st_ino


def take_over(simulation: Any) -> Disks:
    """Let every log of this process lie on a simulated disk; `simulation` returns the one that is played."""
    disks = Disks()

    def read_at_once(files: Any, descriptor: int, buffer: bytearray, position: int) -> bool:
        playing: Simulation = simulation()
        if playing.rng.random() < NOT_IN_MEMORY:
            return False
        return disks.preadv(descriptor, (buffer,), position) == len(buffer)

    def sync_filesystem(files: Any, path: str) -> None:
        for folder, disk in disks._disks.items():
            if f"{path}/".startswith(f"{folder}/"):
                disk.check(is_sync=True)
                disk.all_synced()

    log_dir.LogDir.boot_id = lambda directory: b"%d" % disks.of(directory.path).boots  # type: ignore[assignment, method-assign]
    files.os = disks  # type: ignore[assignment, attr-defined]
    for name, call in (("pwrite", disks.pwrite), ("pread", disks.pread), ("read_into", disks.preadv)):
        setattr(files.Files, name, staticmethod(call))
    files.Files.truncate = staticmethod(disks.ftruncate)
    files.Files.read_at_once = read_at_once  # type: ignore[assignment, method-assign]
    files.Files.sync_filesystem = sync_filesystem  # type: ignore[assignment, method-assign]
    files.PooledFile.change_time_ns = lambda file: disks.changed_ns(file.path)  # type: ignore[assignment, method-assign]
    files.PooledFile.modified_ms = lambda file: MADE_AT_NS // 1_000_000  # type: ignore[assignment, method-assign]
    return disks
