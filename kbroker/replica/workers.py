"""Threads for what waits for a disk or takes long: a bounded pool for each kind of work, and for each disk.

    preparing           num.io.threads       unpack, check and compress batches that are to be appended
    flushing(log_dir)   3 per directory      fsync for acknowledgements
    appending(log_dir)  4 per directory      append to what this broker leads, while that disk is slow
    following(log_dir)  4 per directory      append and truncate what this broker follows
    reading(log_dir)    4 per directory      fetch what consumers want and is not in memory
    tending(log_dir)    1 per directory      checkpoints, retention, what is to be removed
    upkeep              background.threads   open, make, move, remove logs
    loading             2                    read what coordinators left in their partitions
    expressions         2                    try members' regular expressions on the names of topics

So a slow disk holds up its own logs only, and a flood of batches that unpack to much only others like them. Threads
start when there is work for them: a pool that nobody needs costs nothing.

Threads that compute rather than wait (preparing, expressions) are no more than processors, and nicer than the event
loop.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor, ThreadPoolExecutor

from kbroker.segment.threads import become_nicer

FLUSHING_THREADS = 3
APPENDING_THREADS = 4
FOLLOWING_THREADS = 4
READING_THREADS = 4
TENDING_THREADS = 1
LOADING_THREADS = 2
EXPRESSION_THREADS = 2

KINDS = "preparing", "upkeep", "loading", "expressions"
"""Pools that work for all log directories."""


class _Pool(ThreadPoolExecutor):
    """One that does what it has taken, or has not taken it: where no further thread can be started.

    The library's puts the work into its queue, and raises all the same: it would be done later, when nobody expects it.
    """

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                self._work_queue.get_nowait()  # what was just put there: nobody else takes anything out
                raise


class Workers:
    """All threads of a broker that do its slow work."""

    def __init__(self, preparing_threads: int = 8, upkeep_threads: int = 10) -> None:
        self.preparing: ThreadPoolExecutor = _computing(preparing_threads, "preparing")
        self.upkeep: ThreadPoolExecutor = _Pool(upkeep_threads, thread_name_prefix="upkeep")
        self.loading = _Pool(LOADING_THREADS, thread_name_prefix="loading")
        self.expressions = _computing(EXPRESSION_THREADS, "expressions")
        self._by_disk: dict[tuple[str, str], _Pool] = {}

    def resize(self, preparing_threads: int, upkeep_threads: int) -> None:
        """Take other numbers of threads; work that has begun or waits is done by those there were."""
        if self.preparing._max_workers != _at_most_processors(preparing_threads):
            self.preparing.shutdown(wait=False)
            self.preparing = _computing(preparing_threads, "preparing")
        if self.upkeep._max_workers != upkeep_threads:
            self.upkeep.shutdown(wait=False)
            self.upkeep = _Pool(upkeep_threads, thread_name_prefix="upkeep")

    def flushing(self, log_dir: str) -> Executor:
        """For fsync."""
        return self._of_disk("flushing", log_dir, FLUSHING_THREADS)

    def appending(self, log_dir: str) -> Executor:
        """For what clients send, where the event loop would have to wait for the disk."""
        return self._of_disk("appending", log_dir, APPENDING_THREADS)

    def following(self, log_dir: str) -> Executor:
        """For what comes from leaders."""
        return self._of_disk("following", log_dir, FOLLOWING_THREADS)

    def reading(self, log_dir: str) -> Executor:
        """For what has to come from the disk before it can be sent."""
        return self._of_disk("reading", log_dir, READING_THREADS)

    def tending(self, log_dir: str) -> Executor:
        """For what is to be done regularly, one thing after the other."""
        return self._of_disk("tending", log_dir, TENDING_THREADS)

    def _of_disk(self, kind: str, log_dir: str, threads: int) -> Executor:
        pool = self._by_disk.get((kind, log_dir))
        if pool is None:
            name = f"{kind}-{len(self._by_disk)}"
            pool = self._by_disk[kind, log_dir] = _Pool(threads, thread_name_prefix=name)
        return pool

    def depths(self) -> list[tuple[str, str, int, int]]:
        """Return of each pool what it does, for which log directory ("" for all), what waits for it, its threads."""
        pools = [(name, "", getattr(self, name)) for name in KINDS]
        pools += [(kind, log_dir, pool) for (kind, log_dir), pool in list(self._by_disk.items())]
        return [(kind, log_dir, pool._work_queue.qsize(), len(pool._threads)) for kind, log_dir, pool in pools]

    def close(self) -> None:
        """Wait for what is under way; what has not begun is dropped."""
        for pool in (*(getattr(self, kind) for kind in KINDS), *self._by_disk.values()):
            pool.shutdown(wait=True, cancel_futures=True)


def _computing(threads: int, name: str) -> ThreadPoolExecutor:
    return _Pool(_at_most_processors(threads), thread_name_prefix=name, initializer=become_nicer)


def _at_most_processors(threads: int) -> int:
    """More threads that compute bring nothing, and stand in the way of others."""
    return min(threads, os.cpu_count() or 1)
