"""Grouped fsync: all partitions that wait for their log to reach the disk share one round.

    round n:    logs asked for before it began     -> worker threads: fsync each once -> everything appended until its
                                                      begin counts and is acknowledged
    round n+1:  logs asked for meanwhile           -> begins when round n ends

So with many connections the number of fsyncs depends on the disk's speed, not on the number of requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from kbroker.replica.hosted import HostedPartition
from protocol.errors import KafkaError
from segment.log import Log

PARALLEL_FLUSHES = 4
"""Threads per round: a journalling file system commits several files' metadata together."""

Round = list[tuple[HostedPartition, int]]
"""What a round flushes, with each log's end at its begin."""


class Flusher:
    """Runs the rounds. `done(hosted, log_end_offset)` or `failed(hosted, error)` is called on the loop for each log."""

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
        self._running: asyncio.Future[None] | None = None
        self._scheduled = False
        self.rounds = 0
        """How many rounds have begun."""

    def add(self, hosted: HostedPartition) -> None:
        """Flush this log in the next round. What is appended in the same turn of the loop is in the same round."""
        self._waiting[hosted] = None
        if self._running is None and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    async def finish(self) -> None:
        """Wait until nothing waits any more."""
        while self._running is not None or self._scheduled:
            if self._running is not None:
                await asyncio.wait([self._running])
            await asyncio.sleep(0)

    def _begin(self) -> None:
        self._scheduled = False
        if not self._waiting:
            return
        round_: Round = [(hosted, hosted.log.log_end_offset) for hosted in self._waiting]
        self._waiting = {}
        self.rounds += 1
        self._running = asyncio.ensure_future(self._run(round_))

    async def _run(self, round_: Round) -> None:
        loop = asyncio.get_running_loop()
        share = -(-len(round_) // PARALLEL_FLUSHES)
        parts = [round_[start : start + share] for start in range(0, len(round_), share)]
        try:
            results = await asyncio.gather(
                *(loop.run_in_executor(self._executor, _flush, [h.log for h, _ in part]) for part in parts)
            )
            for part, errors in zip(parts, results, strict=True):
                for (hosted, log_end_offset), error in zip(part, errors, strict=True):
                    if error is None:
                        self._done(hosted, log_end_offset)
                    else:
                        self._failed(hosted, error)
        finally:
            self._running = None
            if self._waiting and not self._scheduled:
                self._begin()


def _flush(logs: list[Log]) -> list[KafkaError | None]:
    errors: list[KafkaError | None] = []
    for log in logs:
        try:
            log.flush()
        except KafkaError as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors
