"""What readers want and is not in memory is brought there by threads, so that the loop never waits for a disk.

A fetch that meets NotInMemory says what it wanted to read. That is looked up, checked and read once here, each disk in
threads of its own; afterwards the loop finds it in the page cache, and sends it from the file as ever.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kbroker.protocol.errors import KafkaError
from kbroker.replica.workers import Workers
from kbroker.segment.log import Log

log = logging.getLogger(__name__)


class ColdRead(NamedTuple):
    """The arguments of a Log.read that would have waited for the disk."""

    log: Log
    offset: int
    max_bytes: int
    limit: int
    whole_batch: bool


class ReadAhead:
    """Brings slices of logs into memory; the same one is read once, however many wait for it."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._running: dict[tuple[Log, int], asyncio.Future[None]] = {}

    def __call__(self, wanted: Sequence[ColdRead]) -> asyncio.Future[list[None]]:
        """Return a future that is done when all of it is in memory; what cannot be read the reader meets himself."""
        return asyncio.gather(*(self._begin(each) for each in wanted))

    def _begin(self, wanted: ColdRead) -> asyncio.Future[None]:
        key = wanted.log, wanted.offset
        running = self._running.get(key)
        if running is None:
            pool = self._workers.reading(wanted.log.log_dir)
            loop = asyncio.get_running_loop()
            try:
                running = self._running[key] = loop.run_in_executor(pool, _read, wanted)
            except RuntimeError as error:  # there is no thread to be had: the loop will wait for the disk
                log.warning("%s is not read ahead: %s", wanted.log.name, error)
                running = loop.create_future()
                running.set_result(None)
                return running
            running.add_done_callback(partial(self._ended, key))
        return asyncio.shield(running)

    def _ended(self, key: tuple[Log, int], finished: asyncio.Future[None]) -> None:
        del self._running[key]


def _read(wanted: ColdRead) -> None:
    partition_log = wanted.log
    try:
        segments = partition_log.segments
        number = bisect_right(segments, wanted.offset, key=lambda segment: segment.base_offset) - 1
        index = segments[max(number, 0)].index
        if not index.is_at_hand:
            index.read_ahead(index.file_size(), 0)  # whoever looks something up holds a lock meanwhile
        partition_log.read(wanted.offset, wanted.max_bytes, wanted.limit, wanted.whole_batch).read_ahead()
    except (KafkaError, OSError) as error:
        log.debug("%s cannot be read ahead at %d: %s", partition_log.name, wanted.offset, error)
