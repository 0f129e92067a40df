"""Whether a log can be used, and the lock of those who change it.

An operating system's error means that the log directory has failed: the log's owner is told, once, and from then on
every change is refused with KAFKA_STORAGE_ERROR. Nothing is tried again: after a failed fsync the kernel may say that
all is well although the data is gone. A log that was closed or given up has nothing to say about its directory: its
files may be gone by right.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, Protocol

from kbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.segment.log import Log

log = logging.getLogger(__name__)

CLOSED = "it is closed"
"""The failure of a log that was closed, or deleted: its directory may be well."""


class LogOwner(Protocol):
    """Who has many logs and is told of each. Called with the log's lock held: to be passed on, or to be quick."""

    def log_failed(self, failed: Log, error: OSError) -> None:
        """The log's directory has failed."""

    def log_rolled(self, rolled: Log) -> None:
        """Segments that are closed are to be flushed, in the background."""

    def log_cut(self, cut: Log, offset: int) -> None:
        """The log's end moves back below what is on disk: no checkpoint may promise more. Raises OSError."""


class LogHealth:
    """One log's. Locks are taken in this order: a log's, that of the checkpoints, that of the table (log_table.py)."""

    __slots__ = ("_log", "_owner", "failure", "lock")

    def __init__(self, log: Log, owner: LogOwner | None) -> None:
        self._log = log
        self._owner = owner
        self.lock = threading.Lock()
        self.failure: str | None = None
        """Why the log cannot be used any more, None while it can."""

    @contextmanager
    def changing(self, doing: str) -> Iterator[None]:
        """Hold the lock of a log that can be used; an operating system's error fails the log."""
        with self.lock:
            if self.failure is not None:
                raise self.unusable()
            try:
                yield
            except OSError as error:
                self.fail(error, doing)

    def unusable(self) -> KafkaError:
        """What every method raises once the log cannot be used."""
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log.name}: the log cannot be used: {self.failure}")

    def end(self, reason: str) -> None:
        """Refuse everything from now on; nothing is wrong with the disk, or others have told so."""
        self.failure = self.failure or reason

    def fail(self, error: OSError, doing: str) -> NoReturn:
        """Refuse everything from now on, and tell that the directory has failed."""
        if self.failure is None:
            self.failure = f"{doing} failed: {error.strerror or error}"
            log.error("%s: %s in %s", self._log.name, self.failure, error.filename or self._log.directory)
            if self._owner is not None:
                self._owner.log_failed(self._log, error)
        raise self.unusable() from error
