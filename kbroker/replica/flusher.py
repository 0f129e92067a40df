"""Grouped fsync: all requests that wait for the same log to reach the disk share one flush.

    flush n of a log      begins when it is asked for and a worker thread is free; what was appended until then counts
                          and is acknowledged when it ends
    flush n + 1           whatever was appended meanwhile; begins when flush n has ended

So with many requests in flight the number of fsyncs depends on the disk's speed, not on the number of requests. Several
logs are flushed at the same time, each on its own: a journalling file system commits them together.

A disk with a write cache that survives a power cut syncs in less time than a change of threads and back takes: as long
as flushes are that quick they are done on the loop, at the end of its turn, and the threads are for slower ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from kbroker.protocol.errors import KafkaError
from kbroker.replica.hosted import HostedPartition
from kbroker.segment.log import Log

PARALLEL_FLUSHES = 3
"""Worker threads used at once; with more logs than threads each thread flushes several."""
LONGEST_TURN_S = 0.0005
"""What is expected to take longer does not hold up the loop."""
WEIGHT = 1 / 16
"""Of the latest flush in the average of all."""

Portion = list[tuple[HostedPartition, int]]
"""What is flushed at a time, with each log's end at its begin."""
Flushed = tuple[list[KafkaError | None], float]
"""What became of each log, and how long all took."""


class Flusher:
    """Runs the flushes; tells on the loop of each log `done(hosted, log_end_offset)` or `failed(hosted, error)`."""

    def __init__(
        self,
        executor: Executor | None,
        done: Callable[[HostedPartition, int], None],
        failed: Callable[[HostedPartition, KafkaError], None],
    ) -> None:
        self._executor = executor
        self._done = done
        self._failed = failed
        self._waiting: dict[HostedPartition, None] = {}
        self._being_flushed: set[HostedPartition] = set()
        self._running: set[asyncio.Future[Flushed]] = set()
        self._scheduled = False
        self._average_s = LONGEST_TURN_S
        """Time that flushing a log took lately; taken for slow until it is known to be quick."""
        self.rounds = 0
        """How often a group of logs was sent off."""

    def add(self, hosted: HostedPartition) -> None:
        """Flush this log as soon as possible. What is appended in the same turn of the loop shares the flush."""
        self._waiting[hosted] = None
        if not self._scheduled and len(self._running) < PARALLEL_FLUSHES and hosted not in self._being_flushed:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    async def finish(self) -> None:
        """Wait until nothing waits any more."""
        while self._running or self._scheduled:
            if self._running:
                await asyncio.wait(self._running)
            await asyncio.sleep(0)

    def _begin(self) -> None:
        """Send off the logs that nobody flushes yet, spread over the threads that are free."""
        self._scheduled = False
        free = PARALLEL_FLUSHES - len(self._running)
        ready = [hosted for hosted in self._waiting if hosted not in self._being_flushed]
        if not ready or free <= 0:
            return
        self.rounds += 1
        for hosted in ready:
            del self._waiting[hosted]
        if len(ready) * self._average_s < LONGEST_TURN_S:
            portion = [(hosted, hosted.log.log_end_offset) for hosted in ready]
            self._tell(portion, *_flush([hosted.log for hosted in ready]))
            return
        self._being_flushed.update(ready)
        share = -(-len(ready) // free)
        loop = asyncio.get_running_loop()
        for start in range(0, len(ready), share):
            portion = [(hosted, hosted.log.log_end_offset) for hosted in ready[start : start + share]]
            running = loop.run_in_executor(self._executor, _flush, [hosted.log for hosted, _ in portion])
            self._running.add(running)
            running.add_done_callback(partial(self._ended, portion))

    def _ended(self, portion: Portion, finished: asyncio.Future[Flushed]) -> None:
        self._running.discard(finished)
        self._being_flushed.difference_update(hosted for hosted, _ in portion)
        if finished.cancelled():
            return
        self._tell(portion, *finished.result())
        if self._waiting and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _tell(self, portion: Portion, errors: list[KafkaError | None], took_s: float) -> None:
        self._average_s += (took_s / len(portion) - self._average_s) * WEIGHT
        for (hosted, log_end_offset), error in zip(portion, errors, strict=True):
            if error is None:
                self._done(hosted, log_end_offset)
            else:
                self._failed(hosted, error)


def _flush(logs: list[Log]) -> Flushed:
    begun = time.perf_counter()
    errors: list[KafkaError | None] = []
    for log in logs:
        try:
            log.flush()
        except KafkaError as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors, time.perf_counter() - begun
