"""A disk that forgets what was not synced when the power goes, under real processes.

forgetful_disk.c, preloaded, writes each change of a folder down while the process makes it; a `Disk` plays that again
and knows at every moment what has reached the disk. The strictest reading of POSIX:

    a file      holds what was written to it before its last sync began
    a name      (new, changed or removed) counts once its folder was synced

`Disk.restore` writes what is there when the power is back. With `rng` some of the rest is there as well: of what was
done to a folder the first part, as with a journaling file system; of a file's writes any, torn at sectors of 512 bytes,
with zeros where a later one arrived and an earlier one did not.

    power = PowerSupply(library, folder, journals)
    power.launcher()      goes before the command of a process that works below the folder
    power.after_a_cut()   leaves in the folder what the disk has kept, once the process is dead
    power.at(moment, to)  leaves elsewhere what it would have kept, had the power failed then
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import signal
import struct
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

SOURCE = Path(__file__).with_suffix(".c")
SECTOR_BYTES = 512
COMPILE_S = 60
_EVENT = struct.Struct("=IIIIQQQ")
MAKE_FILE, MAKE_FOLDER, WRITE, TRUNCATE, RENAME, REMOVE, SYNC_BEGINS, SYNC_ENDS, SYNC_ALL, STRANGE = range(1, 11)


class NotFollowed(AssertionError):
    """A process did to its files what the library does not follow: nothing can be said of the disk."""


class Event(NamedTuple):
    """A line of the journal."""

    kind: int
    inode: int
    position: int
    """Bytes; of syncs their number."""
    first: str
    second: str
    data: bytes
    time_ns: int
    """Of the steady clock."""


def events(journal: bytes) -> Iterator[Event]:
    """All that was written down whole."""
    here = 0
    while here + _EVENT.size <= len(journal):
        kind, first, second, data, inode, position, time_ns = _EVENT.unpack_from(journal, here)
        here += _EVENT.size
        if here + first + second + data > len(journal):
            return
        names = journal[here : here + first].decode(), journal[here + first : here + first + second].decode()
        here += first + second
        yield Event(kind, inode, position, *names, journal[here : here + data], time_ns)
        here += data


@dataclass(slots=True)
class File:
    """What a file has on the disk, and what was done to it since."""

    content: bytearray = field(default_factory=bytearray)
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(position, written bytes), or (size, None) where it was cut to that or extended."""
    kept: int = 0
    """How many changes are on the disk; those in `changes` come behind."""

    def keep(self, count: int) -> None:
        """The first so many of all changes are on the disk."""
        arrived, self.changes = self.changes[: count - self.kept], self.changes[max(0, count - self.kept) :]
        self.kept += len(arrived)
        for position, data in arrived:
            _apply(self.content, position, data)

    def after_a_cut(self, rng: Random | None) -> bytes:
        """What is in it when the power is back."""
        found = bytearray(self.content)
        if rng is not None:
            share = rng.choice((0.0, 0.5, 0.9, 1.0))
            for position, data in self.changes:
                if rng.random() < share:
                    _apply(found, position, data if data is None else data[: _torn(position, len(data), rng)])
        return bytes(found)


def _torn(position: int, size: int, rng: Random) -> int:
    """How many bytes of a write arrive: mostly all, else up to the end of some sector."""
    if rng.random() < 0.7:
        return size
    end = (position + rng.randrange(size + 1)) // SECTOR_BYTES * SECTOR_BYTES
    return max(0, end - position)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is not None:
        content[position : position + len(data)] = data


@dataclass(slots=True)
class Folder:
    """The names on the disk, those that processes see, and the steps from one to the other."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    seen: dict[str, File | Folder] = field(default_factory=dict)
    changes: list[dict[str, File | Folder | None]] = field(default_factory=list)
    """Each: name -> what it means from then on."""
    kept: int = 0

    def set(self, names: dict[str, File | Folder | None]) -> None:
        """Change some names in one step."""
        self.changes.append(names)
        _rename(self.seen, names)

    def keep(self, count: int) -> None:
        """The first so many of all changes are on the disk."""
        arrived, self.changes = self.changes[: count - self.kept], self.changes[max(0, count - self.kept) :]
        self.kept += len(arrived)
        for names in arrived:
            _rename(self.names, names)

    def after_a_cut(self, rng: Random | None) -> dict[str, File | Folder]:
        """The names that are in it when the power is back."""
        found = dict(self.names)
        if rng is not None:
            count = rng.choice((0, len(self.changes), rng.randint(0, len(self.changes))))
            for names in self.changes[:count]:
                _rename(found, names)
        return found


def _rename(names: dict[str, File | Folder], changes: dict[str, File | Folder | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Disk:
    """What has reached the disk of one folder."""

    def __init__(self, folder: Path) -> None:
        """All that is in the folder now is on the disk."""
        self._path = str(folder)
        self._nodes: dict[int, File | Folder] = {}
        self._syncs: dict[int, list[tuple[File | Folder, int]]] = {}
        self.root = self._scan(folder)

    def _scan(self, folder: Path) -> Folder:
        found = Folder()
        self._nodes[folder.stat().st_ino] = found
        for entry in os.scandir(folder):
            if entry.is_dir():
                found.names[entry.name] = self._scan(Path(entry.path))
            else:
                file = File(bytearray(Path(entry.path).read_bytes()))
                found.names[entry.name] = self._nodes[entry.inode()] = file
        found.seen = dict(found.names)
        return found

    def play(self, events: Iterable[Event]) -> None:
        """What a process did, or the next part of it."""
        for event in events:
            self._play(event)

    def process_ended(self) -> None:
        """Of another process syncs have numbers of their own."""
        self._syncs.clear()

    def _play(self, event: Event) -> None:
        match event.kind:
            case k if k in (MAKE_FILE, MAKE_FOLDER):
                self._nodes[event.inode] = node = File() if event.kind == MAKE_FILE else Folder()
                folder, name = self._find(event.first)
                folder.set({name: node})
            case k if k in (WRITE, TRUNCATE):
                file = self._nodes[event.inode]
                assert isinstance(file, File)
                file.changes.append((event.position, event.data if event.kind == WRITE else None))
            case k if k == RENAME:
                self._rename(event.first, event.second)
            case k if k == REMOVE:
                folder, name = self._find(event.first)
                folder.set({name: None})
            case k if k == SYNC_BEGINS:
                self._begin_sync(event.position, [self._nodes[event.inode]])
            case k if k == SYNC_ALL:
                self._begin_sync(event.position, self._nodes.values())
            case k if k == SYNC_ENDS:
                for node, count in self._syncs.pop(event.position):
                    node.keep(count)
            case _:
                raise NotFollowed(f"{event.first} of inode {event.inode}")

    def _begin_sync(self, number: int, nodes: Iterable[File | Folder]) -> None:
        self._syncs[number] = [(node, node.kept + len(node.changes)) for node in nodes]

    def _rename(self, source: str, target: str) -> None:
        one, old = self._find(source)
        other, new = self._find(target)
        node = one.seen[old]
        if one is other:
            one.set({old: None, new: node})
        else:
            other.set({new: node})
            one.set({old: None})

    def _find(self, path: str) -> tuple[Folder, str]:
        path = os.path.normpath(path)
        assert path.startswith(f"{self._path}/"), path
        *folders, name = path[len(self._path) + 1 :].split("/")
        found: File | Folder = self.root
        for each in folders:
            assert isinstance(found, Folder), path
            found = found.seen[each]
        assert isinstance(found, Folder), path
        return found, name

    def restore(self, target: Path, rng: Random | None = None) -> None:
        """Write to a new folder what is there when the power is back."""
        _restore(self.root, target, rng)


def _restore(folder: Folder, target: Path, rng: Random | None) -> None:
    target.mkdir()
    for name, node in folder.after_a_cut(rng).items():
        if isinstance(node, Folder):
            _restore(node, target / name, rng)
        else:
            (target / name).write_bytes(node.after_a_cut(rng))


# -- processes on it --------------------------------------------------------------------------------------------------


def compile_library(folder: Path) -> Path | None:
    """The library to preload; None where there is no C compiler."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None or os.uname().sysname != "Linux":
        return None
    library = folder / "forgetful_disk.so"
    command = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    done = subprocess.run(
        [*command, "-o", str(library), str(SOURCE)], capture_output=True, text=True, timeout=COMPILE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return library


@dataclass(frozen=True, slots=True)
class Failing:
    """Calls that fail: from the `first`-th on that changes a file with `name` in its path, `count` of them."""

    first: int
    name: str = ""
    count: int = 1
    code: int = errno.EIO

    def environment(self) -> list[str]:
        """As the library wants to be told."""
        return [
            f"DISK_FAIL_AT={self.first}",
            f"DISK_FAIL_NAME={self.name}",
            f"DISK_FAIL_COUNT={self.count}",
            f"DISK_FAIL_WITH={self.code}",
        ]


class PowerSupply:
    """One folder, and the processes that work on it, one at a time."""

    def __init__(self, library: Path, folder: Path, journals: Path, sync_us: int = 0) -> None:
        """`folder` is made, empty; what it holds is on the disk. A sync takes `sync_us` microseconds."""
        folder.mkdir(parents=True)
        journals.mkdir(parents=True)
        self.folder = folder
        self._journals = journals
        self._library = library
        self._sync_us = sync_us
        self._disk = Disk(folder)
        self._recorded: deque[Event] | None = None
        """Of the one process that there was: what `at` has not played yet."""

    def launcher(self, failing: Failing | None = None) -> list[str]:
        """Goes before the command of the process."""
        return [
            "env",
            f"LD_PRELOAD={self._library}",
            f"DISK_ROOT={self.folder}",
            f"DISK_JOURNAL={self._journals}",
            f"DISK_SYNC_US={self._sync_us}",
            *(failing.environment() if failing is not None else ()),
        ]

    def after_a_cut(self, rng: Random | None = None) -> None:
        """The processes are dead, the power is back: leave in the folder what the disk has kept."""
        for journal in sorted(self._journals.iterdir(), key=lambda each: each.stat().st_mtime_ns):
            self._disk.play(events(journal.read_bytes()))
            self._disk.process_ended()
            journal.unlink()
        shutil.rmtree(self.folder)
        self._disk.restore(self.folder, rng)
        self._disk = Disk(self.folder)

    def at(self, moment_ns: int, target: Path, rng: Random | None = None) -> None:
        """Write to a new folder what there would be, had the power failed at a moment, later than the one before."""
        if self._recorded is None:
            (journal,) = self._journals.iterdir()
            self._recorded = deque(events(journal.read_bytes()))
        now = itertools.takewhile(lambda event: event.time_ns <= moment_ns, self._recorded)
        played = list(now)
        self._disk.play(played)
        for _ in played:
            self._recorded.popleft()
        self._disk.restore(target, rng)


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL to all, as close to each other as can be."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
