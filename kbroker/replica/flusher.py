"""Grouped fsync: all requests that wait for the same log to reach the disk share one flush.

    flush n of a log      begins when it is asked for and a worker thread is free; what was appended until then counts
                          and is acknowledged when it ends
    flush n + 1           whatever was appended meanwhile; begins when flush n has ended

So with many requests in flight the number of fsyncs depends on the disk's speed, not on the number of requests. Several
logs are flushed at the same time, each on its own: a journalling file system commits them together.

Never on the loop: a disk that is quick nearly always is slow when it counts. Each log directory has threads of its own,
so that one slow disk holds up nobody but its own logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.replica.hosted import HostedPartition
from kbroker.segment.log import Log

log = logging.getLogger(__name__)

PARALLEL_FLUSHES = 3
"""Worker threads used at once for one disk; with more logs than threads each thread flushes several."""

AGAIN_S = 1.0
"""After a thread could not be started."""

Portion = list[HostedPartition]
"""What one thread flushes."""
Flushed = list[KafkaError | None]
"""What became of each log."""


class Flusher:
    """Runs the flushes; tells on the loop of each log `done(hosted)` or `failed(hosted, error)`."""

    def __init__(
        self,
        executor: Callable[[str], Executor],
        done: Callable[[HostedPartition], None],
        failed: Callable[[HostedPartition, KafkaError], None],
    ) -> None:
        """`executor(log_dir)` is where the logs of a directory are flushed."""
        self._executor = executor
        self._done = done
        self._failed = failed
        self._disks: dict[str, _Disk] = {}
        self._idle: dict[HostedPartition, None] = {}
        self._idler: asyncio.Task[None] | None = None

    def add(self, hosted: HostedPartition) -> None:
        """Flush this log as soon as possible. What is appended in the same turn of the loop shares the flush."""
        log_dir = hosted.log.log_dir
        disk = self._disks.get(log_dir)
        if disk is None:
            disk = self._disks[log_dir] = _Disk(self._executor(log_dir), self._done, self._failed)
        disk.add(hosted)

    def add_idle(self, hosted: HostedPartition) -> None:
        """Flush this log some time, one after the other: nobody waits for it, and nobody is to wait for such logs."""
        self._idle[hosted] = None
        if self._idler is None:
            self._idler = asyncio.create_task(self._flush_idle(), name="flush-idle-logs")

    async def _flush_idle(self) -> None:
        try:
            while self._idle:
                hosted = next(iter(self._idle))
                del self._idle[hosted]
                if hosted.needs_flush():
                    executor = self._executor(hosted.log.log_dir)
                    await asyncio.get_running_loop().run_in_executor(executor, _flush, [hosted.log])
        finally:
            self._idler = None

    @property
    def rounds(self) -> int:
        """How often a group of logs was sent off."""
        return sum(disk.rounds for disk in self._disks.values())

    async def finish(self) -> None:
        """Wait until nothing waits any more. Idle logs are left as they are."""
        if self._idler is not None:
            self._idler.cancel()
            await asyncio.gather(self._idler, return_exceptions=True)
        for disk in self._disks.values():
            await disk.finish()


class _Disk:
    """The flushes of one log directory."""

    def __init__(
        self,
        executor: Executor,
        done: Callable[[HostedPartition], None],
        failed: Callable[[HostedPartition, KafkaError], None],
    ) -> None:
        self._executor = executor
        self._done = done
        self._failed = failed
        self._waiting: dict[HostedPartition, None] = {}
        self._being_flushed: set[HostedPartition] = set()
        self._running: set[asyncio.Future[Flushed]] = set()
        self._next: asyncio.Handle | None = None
        """What sends off those that wait: in this turn of the loop, or later when no thread was to be had."""
        self._is_finishing = False
        self.rounds = 0

    def add(self, hosted: HostedPartition) -> None:
        self._waiting[hosted] = None
        if self._next is None and len(self._running) < PARALLEL_FLUSHES and hosted not in self._being_flushed:
            self._schedule()

    def _schedule(self) -> None:
        """Send off what waits in this turn, also if it was put off."""
        if self._next is not None:
            self._next.cancel()
        self._next = asyncio.get_running_loop().call_soon(self._begin)

    async def finish(self) -> None:
        self._is_finishing = True
        if self._next is not None:
            self._schedule()  # what was put off is tried for the last time
        while self._running or self._next is not None:
            if self._running:
                await asyncio.wait(self._running)
            await asyncio.sleep(0)
        self._is_finishing = False

    def _begin(self) -> None:
        """Send off the logs that nobody flushes yet, spread over the threads that are free."""
        self._next = None
        free = PARALLEL_FLUSHES - len(self._running)
        ready = [hosted for hosted in self._waiting if hosted not in self._being_flushed]
        if not ready or free <= 0:
            return
        self.rounds += 1
        for hosted in ready:
            del self._waiting[hosted]
        self._being_flushed.update(ready)
        share = -(-len(ready) // free)
        loop = asyncio.get_running_loop()
        for start in range(0, len(ready), share):
            portion = ready[start : start + share]
            try:
                running = loop.run_in_executor(self._executor, _flush, [hosted.log for hosted in portion])
            except RuntimeError as error:
                self._put_off(ready[start:], error)
                return
            self._running.add(running)
            running.add_done_callback(partial(self._ended, portion))

    def _put_off(self, ready: Portion, error: RuntimeError) -> None:
        """There is no thread to be had: they wait on, and are tried again."""
        log.error("%d logs cannot be flushed now: %s", len(ready), error)
        self._being_flushed.difference_update(ready)
        if self._is_finishing:
            return  # nobody may wait for that: the logs are flushed when they are closed
        self._waiting = dict.fromkeys(ready) | self._waiting
        self._next = asyncio.get_running_loop().call_later(AGAIN_S, self._begin)

    def _ended(self, portion: Portion, finished: asyncio.Future[Flushed]) -> None:
        self._running.discard(finished)
        self._being_flushed.difference_update(portion)
        if finished.cancelled():
            return
        for hosted, error in zip(portion, finished.result(), strict=True):
            if error is None:
                self._done(hosted)
            else:
                self._failed(hosted, error)
        if self._waiting:  # a thread is free, whatever was put off for want of one
            self._schedule()


def _flush(logs: list[Log]) -> Flushed:
    errors: Flushed = []
    for each in logs:
        try:
            each.flush()
        except KafkaError as error:
            errors.append(error)
        except Exception:
            log.exception("%s: not flushed", each)
            errors.append(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            errors.append(None)
    return errors
