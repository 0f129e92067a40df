"""The stand-in's folder: every transaction in a log, now and then all of the tree in a snapshot.

    DIR/.lock                      held while a stand-in (or a real embedded ZooKeeper) runs on the folder
    DIR/stand-in/log.<zxid>        "KBSTLOG1", records of transactions from that zxid on (hexadecimal)
    DIR/stand-in/snapshot.<zxid>   "KBSTSNP1", records of the tree as it was after that zxid

Recovery reads the newest snapshot and the logs from then on. What a crash has left of the last write is cut off; damage
anywhere else is told, not passed over. Each start counts zxids on from a new epoch (their upper 32 bits): whatever
clients have seen of an end that was cut off is older than what they will see.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from io import FileIO

from kbroker.dev.stand_in.jute import Malformed
from kbroker.dev.stand_in.operations import Transaction
from kbroker.dev.stand_in.records import (
    decode_transaction,
    decode_tree,
    encode_transaction,
    encode_tree,
    framed,
    is_torn,
    record_at,
)
from kbroker.dev.stand_in.tree import Tree

LOCK = ".lock"
FOLDER = "stand-in"
FOLDER_OF_A_REAL_ONE = "version-2"
LOG_MAGIC, SNAPSHOT_MAGIC = b"KBSTLOG1", b"KBSTSNP1"
EPOCH_BITS = 32
MAX_LOG_BYTES = 8 << 20
"""A snapshot is taken when the log is larger."""


class JournalError(Exception):
    """The folder cannot be used: one line says why and what to do."""


class Journal:
    """The tree's files, from `open` to `close`. After an OSError nobody knows what was written: that is the end."""

    def __init__(self, directory: str, *, sync: bool = False, max_log_bytes: int = MAX_LOG_BYTES) -> None:
        self._directory = directory
        self._folder = os.path.join(directory, FOLDER)
        self._sync = sync
        self._max_log_bytes = max_log_bytes
        self._lock: FileIO | None = None
        self._log: FileIO | None = None
        self._log_bytes = 0
        self._waiting: list[bytes] = []
        self._tree = Tree()
        self.dropped_bytes = 0
        """What a crash had left of the last write, and recovery has cut off."""

    def open(self, now_ms: int) -> Tree:
        """Take the folder and return the tree as it was; JournalError when that cannot be."""
        try:
            self._open(now_ms)
        except OSError as error:
            self._let_go()
            raise JournalError(f"cannot use the data directory {self._directory}: {error.strerror}") from None
        except JournalError:
            self._let_go()
            raise
        return self._tree

    def _open(self, now_ms: int) -> None:
        os.makedirs(self._directory, exist_ok=True)
        self._take_lock()
        if os.path.exists(os.path.join(self._directory, FOLDER_OF_A_REAL_ONE)):
            raise JournalError(
                f"{self._directory} holds the data of a real ZooKeeper, which the stand-in cannot read: "
                "run that (--zookeeper embedded), or choose another directory"
            )
        os.makedirs(self._folder, exist_ok=True)
        self._tree = self._recovered()
        self._tree.zxid = ((self._tree.zxid >> EPOCH_BITS) + 1) << EPOCH_BITS
        self._tree.on_commit = self._take
        self._begin_log()
        self._take(Transaction(self._tree.zxid, now_ms, ()))
        self.flush()

    def _take_lock(self) -> None:
        self._lock = FileIO(os.path.join(self._directory, LOCK), "a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(
                f"another ZooKeeper or stand-in runs on {self._directory}: end it first, or choose another directory"
            ) from None

    # --- writing ---

    def _take(self, transaction: Transaction) -> None:
        self._waiting.append(framed(encode_transaction(transaction)))

    def flush(self) -> None:
        """Write what has been committed; nobody may hear of it before."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting.clear()
        assert self._log is not None
        _write_all(self._log, data)
        self._log_bytes += len(data)
        if self._sync:
            os.fdatasync(self._log.fileno())
        if self._log_bytes > self._max_log_bytes:
            self.take_snapshot()

    def take_snapshot(self) -> None:
        """Write all of the tree, begin a new log, and remove what is not needed any more."""
        assert not self._waiting, "a snapshot holds what has been written"
        name = f"snapshot.{self._tree.zxid:016x}"
        temporary = os.path.join(self._folder, "snapshot.tmp")
        with FileIO(temporary, "w") as file:
            _write_all(file, SNAPSHOT_MAGIC + b"".join(map(framed, encode_tree(self._tree))))
            os.fsync(file.fileno())
        os.replace(temporary, os.path.join(self._folder, name))
        self._sync_folder()
        before = self._log
        self._begin_log()
        if before is not None:
            before.close()
        for each in (*self._names("log."), *self._names("snapshot.")):
            if each != name and _zxid_of(each) <= self._tree.zxid:
                os.unlink(os.path.join(self._folder, each))

    def _begin_log(self) -> None:
        self._log = FileIO(os.path.join(self._folder, f"log.{self._tree.zxid + 1:016x}"), "w")
        _write_all(self._log, LOG_MAGIC)
        self._log_bytes = 0
        if self._sync:
            self._sync_folder()

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Write everything in the form that is read fastest, and let go of the folder."""
        self.flush()
        self.take_snapshot()
        self._let_go()

    def _let_go(self) -> None:
        for file in (self._log, self._lock):
            if file is not None:
                file.close()

    # --- reading ---

    def _names(self, prefix: str) -> list[str]:
        return sorted(name for name in os.listdir(self._folder) if name.startswith(prefix) and _zxid_of(name) >= 0)

    def _recovered(self) -> Tree:
        snapshots, logs = self._names("snapshot."), self._names("log.")
        tree = Tree()
        if snapshots:
            path = os.path.join(self._folder, snapshots[-1])
            try:
                tree = decode_tree(_payloads(_read(path, SNAPSHOT_MAGIC)))
            except (Malformed, KeyError) as damage:
                raise _damaged(path, damage) from None
        for name in logs:
            self._replay(tree, os.path.join(self._folder, name), is_last=name == logs[-1])
        return tree

    def _replay(self, tree: Tree, path: str, *, is_last: bool) -> None:
        try:
            data = _read(path, LOG_MAGIC)
            position = len(LOG_MAGIC)
            while position < len(data):
                found = record_at(data, position)
                if found is None:
                    self._cut(path, data, position, is_last)
                    return
                payload, position = found
                transaction = decode_transaction(payload)
                if transaction.zxid > tree.zxid:
                    tree.replay(transaction)
        except (Malformed, KeyError) as damage:
            raise _damaged(path, damage) from None

    def _cut(self, path: str, data: bytes, position: int, is_last: bool) -> None:
        if not (is_last and is_torn(data, position)):
            raise Malformed(f"checksum at byte {position}")
        self.dropped_bytes += len(data) - position
        os.truncate(path, position)


def _damaged(path: str, damage: Exception) -> JournalError:
    return JournalError(
        f"{path} is damaged ({damage}): remove the directory to begin anew, all of its data is lost then"
    )


def _zxid_of(name: str) -> int:
    try:
        return int(name.partition(".")[2], 16)
    except ValueError:
        return -1


def _read(path: str, magic: bytes) -> bytes:
    with FileIO(path) as file:
        data = file.readall()
    if data and not magic.startswith(data[: len(magic)]):
        raise Malformed("it does not begin as it should")
    return data


def _payloads(data: bytes) -> Iterator[bytes]:
    position = len(SNAPSHOT_MAGIC)
    while (found := record_at(data, position)) is not None:
        payload, position = found
        yield payload


def _write_all(file: FileIO, data: bytes) -> None:
    """Write everything: a file may take less at a time."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
