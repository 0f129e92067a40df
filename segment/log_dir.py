"""One log directory: its lock, who it belongs to, and its checkpoint files.

.lock                          held with fcntl, as Java's FileChannel.lock does: brokers of both kinds see each other's
meta.properties                cluster.id, broker.id
kbroker-boot-id                which life of the machine a broker last served in
kbroker-session                by which session the broker that holds the lock is registered, and where that lock is
.kafka_cleanshutdown           there only while no broker uses the directory, and only after an orderly stop
*-checkpoint                   offsets per partition (checkpoints.py)
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
from collections.abc import Mapping

from kbroker.segment import checkpoints
from kbroker.segment.checkpoints import MalformedCheckpoint, OffsetTable
from kbroker.segment.disk_pace import DiskPace
from kbroker.segment.files import Files

log = logging.getLogger(__name__)

_locked: set[str] = set()
"""Directories locked by this process: POSIX locks do not exclude the process that holds them."""
_locked_guard = threading.Lock()


class LogDirError(Exception):
    """A log directory cannot be used (locked, of another broker or cluster): one clear line."""


class LogDir:
    """A directory named in log.dirs."""

    def __init__(self, path: str, files: Files) -> None:
        self.path = path
        self.files = files
        self.pace = DiskPace()
        self.failure: str | None = None
        """Why it is offline, None while it is in use."""
        self.was_clean = False
        """Whether the last stop was orderly."""
        self.has_lost_power = False
        """Whether the machine was started anew since, and the last stop was none: what was not synced may be gone.

        Until `note_boot`: who stops before has to wait again at the next start.
        """
        self.loaded = False
        self._lock_descriptor = -1
        self._written: dict[str, OffsetTable] = {}

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def read_identity(self) -> dict[str, str]:
        """meta.properties; empty when there is none."""
        return checkpoints.read_properties(self.files, self._file(checkpoints.META_PROPERTIES)) or {}

    def open(self) -> None:
        """Make the directory if need be and lock it. Raises OSError, and LogDirError when another broker uses it."""
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            raise NotADirectoryError(errno.ENOTDIR, "it is not a directory", self.path)
        self.files.make_folders(self.path)
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            if os.statvfs(self.path).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, "it lies on a read-only file system", self.path)
            raise OSError(errno.EACCES, "it cannot be read and written by this user", self.path)
        real = os.path.realpath(self.path)
        with _locked_guard:
            if real in _locked:
                raise LogDirError(f"log directory {self.path} is already in use by this process")
            descriptor = os.open(self._file(checkpoints.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                raise LogDirError(
                    f"log directory {self.path} is locked by another broker that runs;"
                    " stop it, or set another directory in log.dirs"
                ) from None
            _locked.add(real)
            self._lock_descriptor = descriptor

    def unlock(self) -> None:
        """Let another broker use the directory."""
        if self._lock_descriptor >= 0:
            with _locked_guard:
                os.close(self._lock_descriptor)
                self._lock_descriptor = -1
                _locked.discard(os.path.realpath(self.path))

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Check whose directory this is; write meta.properties. Raises LogDirError, OSError."""
        found = self.read_identity()
        path = self._file(checkpoints.META_PROPERTIES)
        if found.get("version", "0") != "0":
            raise LogDirError(f"{path} has version {found['version']} (a KRaft broker's), expected 0")
        for name, value, key in (("cluster.id", cluster_id, "cluster id"), ("broker.id", str(broker_id), "broker id")):
            if found.get(name, value) != value:
                raise LogDirError(
                    f"{path} says {name}={found[name]}, but this broker's {key} is {value}:"
                    f" use another log directory, or correct the {key}"
                )
        wanted = {**found, "version": "0", "cluster.id": cluster_id, "broker.id": str(broker_id)}
        if wanted != found:
            checkpoints.write_properties(self.files, path, wanted)

    def take_clean_marker(self) -> bool:
        """Whether the last stop was orderly; the marker goes, for from now on a crash is possible."""
        path = self._file(checkpoints.CLEAN_SHUTDOWN)
        self.was_clean = self.files.read_file(path) is not None
        if self.was_clean:
            self.files.unlink(path)
            self.files.sync_folder(self.path)  # back after a loss of power, it would vouch for what was not synced
        known, now = self.files.read_file(self._file(checkpoints.BOOT)), self.boot_id()
        self.has_lost_power = not self.was_clean and known is not None and now != b"" and known != now
        return self.was_clean

    def boot_id(self) -> bytes:
        """What the machine is called from its start to its end; empty where nobody knows."""
        try:
            return self.files.read_file("/proc/sys/kernel/random/boot_id") or b""
        except OSError:
            return b""

    def note_boot(self) -> None:
        """Whatever was lost with an earlier life of the machine, this broker is taken for what it is now."""
        path, now = self._file(checkpoints.BOOT), self.boot_id()
        if now and self.files.read_file(path) != now:
            self.files.replace_file(path, now, sync=True)
        self.has_lost_power = False

    def _own_place(self) -> bytes:
        """Names the lock that this process holds: no copy of the directory, no other machine has the same one."""
        lock = os.fstat(self._lock_descriptor)
        return b"%d %d %s" % (lock.st_dev, lock.st_ino, self.boot_id().strip())

    def note_session(self, session: int) -> None:
        """This process is registered by a session, as long as it holds the lock."""
        if self.boot_id():
            self.files.replace_file(
                self._file(checkpoints.SESSION), b"%d %s" % (session, self._own_place()), sync=False
            )

    def former_session(self) -> int | None:
        """By which session the process was registered that held the lock before: as it is ours now, that one is dead.

        None where that is not known for sure.
        """
        session, _, place = (self.files.read_file(self._file(checkpoints.SESSION)) or b"").partition(b" ")
        return int(session) if session.removeprefix(b"-").isdigit() and place == self._own_place() else None

    def write_clean_marker(self) -> None:
        """The last write of an orderly stop. None after a loss of power that `note_boot` has not yet settled."""
        if self.has_lost_power:
            return
        self.files.replace_file(self._file(checkpoints.CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}', sync=True)

    def read_offsets(self, name: str) -> OffsetTable:
        """A checkpoint's entries; a damaged file counts as empty, which costs time, not data."""
        try:
            found = checkpoints.read_offsets(self.files, self._file(name))
        except MalformedCheckpoint as error:
            log.warning("%s; treated as empty", error)
            return {}
        self._written[name] = found
        return dict(found)

    def written_offsets(self, name: str) -> OffsetTable:
        """What a checkpoint says; to be read only."""
        return self._written.get(name, {})

    def write_offsets(self, name: str, table: Mapping[tuple[str, int], int]) -> None:
        """Replace a checkpoint, unless it says this already."""
        if self._written.get(name) != table:
            checkpoints.write_offsets(self.files, self._file(name), table)
            self._written[name] = dict(table)
