"""Files and folders that wait to be removed: renamed at once, removed file.delete.delay.ms later.

That is by a clock that nobody sets: a correction by days keeps no disk full for as long.
Nothing is lost by a restart in between: names that end in `.deleted` or `-delete` are removed when a directory is
loaded.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence

from kbroker.segment.files import Files, PooledFile
from kbroker.segment.names import DELETED

log = logging.getLogger(__name__)


class Trash:
    """What is to be removed, and when. Thread-safe."""

    __slots__ = ("_clock", "_count", "_due", "_files", "_lock")

    def __init__(self, files: Files, clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        """`clock` gives milliseconds that never jump."""
        self._files = files
        self._clock = clock
        self._due: list[tuple[int, int, PooledFile | str]] = []
        self._count = itertools.count()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many files and folders wait."""
        return len(self._due)

    def bury(self, files: Sequence[PooledFile], delay_ms: int) -> None:
        """Rename files to `.deleted` and remove them later."""
        for file in files:
            file.pool.rename(file, _free_name(file))
            self._put(delay_ms, file)

    def bury_folder(self, path: str, delay_ms: int) -> None:
        """Remove a folder (renamed already) later."""
        self._put(delay_ms, path)

    def discard(self, files: Sequence[PooledFile]) -> None:
        """Remove files now; those that are still being sent stay readable until they are let go."""
        for file in files:
            file.remove()

    def _put(self, delay_ms: int, what: PooledFile | str) -> None:
        with self._lock:
            heapq.heappush(self._due, (self._clock() + delay_ms, next(self._count), what))

    @property
    def wait_ms(self) -> int | None:
        """How long it is until run_due has something to do, None when there is nothing."""
        with self._lock:
            return self._due[0][0] - self._clock() if self._due else None

    def run_due(self) -> int:
        """Remove what is due; how many. A failure is logged: the next start tries again."""
        count, now_ms = 0, self._clock()
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
