"""A disk whose power fails: what was not synced is gone, contents and names alike.

The strictest reading of POSIX: a file holds what it held at its last fsync; a name (new, replaced or removed) counts
once its folder was synced. Real file systems keep more, which recovery must cope with as well: `power_loss` can be
told to keep a part of what was not synced.

`PowerFailing` takes the place of Files. `Platter` lies below it, in the place of the kernel's calls, and so notices a
Files that says it has synced and has not.
"""

import os
import stat
import threading
from pathlib import Path
from random import Random

import pytest

from kbroker.segment.files import Files


class Platter:
    """What has reached the disk, by inode."""

    def __init__(self) -> None:
        self.contents: dict[int, bytes] = {}
        self.names: dict[int, dict[str, tuple[int, bool]]] = {}
        """Folder -> name -> inode, and whether it is a folder."""
        self._noting = threading.Lock()
        """What one thread listed before another did must not take its place: disks forget nothing."""

    @classmethod
    def below(cls, monkeypatch: pytest.MonkeyPatch) -> "Platter":
        """One that notes what the kernel is asked to sync."""
        platter = cls()
        monkeypatch.setattr(os, "fsync", platter.note)
        monkeypatch.setattr(os, "fdatasync", platter.note)
        return platter

    def note(self, descriptor: int) -> None:
        """A file or a folder is synced."""
        with self._noting:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                self.names[status.st_ino] = {
                    entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(descriptor)
                }
            else:
                self.contents[status.st_ino] = os.pread(descriptor, status.st_size, 0)

    def restore(self, folder: Path, target: Path) -> None:
        """Write to `target` what is in a folder when the power is back."""
        target.mkdir()
        self._restore(folder.stat().st_ino, target)

    def _restore(self, folder: int, target: Path) -> None:
        for name, (inode, is_folder) in self.names.get(folder, {}).items():
            if is_folder:
                (target / name).mkdir()
                self._restore(inode, target / name)
            else:
                (target / name).write_bytes(self.contents.get(inode, b""))


class PowerFailing(Files):
    """Notes what has reached the disk."""

    __slots__ = ("_noting", "contents", "names", "syncs")

    def __init__(self) -> None:
        self.contents: dict[int, bytes] = {}
        """Inode -> what is on the disk."""
        self.names: dict[str, dict[str, int]] = {}
        """Folder -> name -> inode, as on the disk."""
        self._noting = threading.Lock()
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        with self._noting:
            self.syncs += 1
            status = os.fstat(descriptor)
            self.contents[status.st_ino] = os.pread(descriptor, status.st_size, 0)

    def sync_folder(self, path: str) -> None:
        with self._noting:
            self.syncs += 1
            self.names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}

    def power_loss(self, log_dir: Path, target: Path, rng: Random | None = None) -> None:
        """Write to `target` what a log directory holds when the power is back; with `rng` some of the rest as well."""
        for folder in self.names.get(str(log_dir), {}):
            source = log_dir / folder
            names = dict(self.names.get(str(source), {}))
            if rng is not None:
                names = {entry.name: entry.inode() for entry in os.scandir(source)}
            (target / folder).mkdir()
            for name, inode in names.items():
                kept = self.contents.get(inode, b"")
                if rng is not None:
                    kept = self._partly(source / name, kept, rng)
                (target / folder / name).write_bytes(kept)

    def _partly(self, file: Path, kept: bytes, rng: Random) -> bytes:
        """Some of what came after the last sync: cut anywhere, and with a page of zeros in it."""
        now = file.read_bytes()
        if now[: len(kept)] != kept:  # replaced or rewritten: one or the other
            return rng.choice((kept, now))
        more = bytearray(now[len(kept) :])
        del more[rng.randrange(len(more) + 1) :]
        if more and rng.random() < 0.5:
            start = rng.randrange(len(more))
            more[start : start + 100] = bytes(len(more[start : start + 100]))
        return kept + bytes(more)
