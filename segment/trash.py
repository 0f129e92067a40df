"""Files and folders that wait to be removed: renamed at once, removed file.delete.delay.ms later.

Nothing is lost by a restart in between: names that end in `.deleted` or `-delete` are removed when a directory is
loaded.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
from collections.abc import Sequence

from kbroker.segment.files import Files, PooledFile
from kbroker.segment.names import DELETED

log = logging.getLogger(__name__)


class Trash:
    """What is to be removed, and when. Thread-safe."""

    __slots__ = ("_count", "_due", "_files", "_lock")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._due: list[tuple[int, int, PooledFile | str]] = []
        self._count = itertools.count()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many files and folders wait."""
        return len(self._due)

    def bury(self, files: Sequence[PooledFile], due_ms: int) -> None:
        """Rename files to `.deleted` and remove them when due."""
        for file in files:
            file.pool.rename(file, _free_name(file))
            self._put(due_ms, file)

    def bury_folder(self, path: str, due_ms: int) -> None:
        """Remove a folder (renamed already) when due."""
        self._put(due_ms, path)

    def discard(self, files: Sequence[PooledFile]) -> None:
        """Remove files now; those that are still being sent stay readable until they are let go."""
        for file in files:
            file.remove()

    def _put(self, due_ms: int, what: PooledFile | str) -> None:
        with self._lock:
            heapq.heappush(self._due, (due_ms, next(self._count), what))

    @property
    def next_due_ms(self) -> int | None:
        """When run_due has something to do, None when there is nothing."""
        with self._lock:
            return self._due[0][0] if self._due else None

    def run_due(self, now_ms: int) -> int:
        """Remove what is due; how many. A failure is logged: the next start tries again."""
        count = 0
        while True:
            with self._lock:
                if not self._due or self._due[0][0] > now_ms:
                    return count
                what = heapq.heappop(self._due)[2]
            count += 1
            try:
                if isinstance(what, PooledFile):
                    what.remove()
                elif os.path.exists(what):
                    self._files.remove_folder(what)
            except OSError as error:
                path = what.path if isinstance(what, PooledFile) else what
                log.warning("could not remove %s: %s", path, error.strerror or error)


def _free_name(file: PooledFile) -> str:
    """`<name>.deleted`, or `<name>.1.deleted` ...: a segment may be compacted again before its predecessor is gone."""
    name = file.name + DELETED
    number = 0
    while os.path.exists(f"{file.folder.path}/{name}"):
        number += 1
        name = f"{file.name}.{number}{DELETED}"
    return name
