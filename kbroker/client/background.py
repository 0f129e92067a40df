"""What a consumer does behind its application's back: one plan, made anew whenever it is wanted, and its tasks.

A plan only starts tasks. What neither plan nor task expected is logged, raised by the next poll, and tried again:
nothing ends this but `close`. Partitions whose leader is not known (any more) are `lost`: a plan leaves them
alone until the metadata is new, which is asked for with growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import Cluster
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import KafkaError

log = logging.getLogger(__name__)


class Background:
    """Lives on the loop of its consumer."""

    def __init__(self, config: ConsumerConfig, cluster: Cluster, plan: Callable[[], None]) -> None:
        self.problems: deque[Exception] = deque()
        """What concerns no single partition: raised by polling."""
        self.arrived = asyncio.Event()
        """Set when there is something to deliver or to tell."""
        self.wants_poll = False
        """Whether iterators over what is decoded already should come to poll first: the group has something to do."""
        self.lost: set[TopicPartition] = set()
        """Those whose leader must be looked up before anybody is asked about them again."""
        self.wants_all_topics = False
        """Whether new topics are looked for too."""
        self._config = config
        self._cluster = cluster
        self._plan = plan
        self._wanted = asyncio.Event()
        self._refreshing = False
        self._refreshed_at = float("-inf")
        self._pause_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="kbroker-consumer-fetcher")

    def wake(self) -> None:
        """Make a new plan soon."""
        self._wanted.set()

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self.plan()
            if not self._refreshing and (self.lost or self._cluster.is_metadata_old):
                self._refreshing = True
                self.spawn(self._refresh())

    def plan(self) -> None:
        """Make a new plan now."""
        try:
            self._plan()
        except Exception as error:
            self._broken(error)

    async def _refresh(self) -> None:
        """Look up what was lost, or only see to it that the metadata is young."""
        try:
            await asyncio.sleep(self._next_pause_s())
            lost = set(self.lost)
            await self._cluster.refresh(None if self.wants_all_topics else {key.topic for key in lost})
            self.lost -= lost
        except (OSError, KafkaError) as error:
            self._cluster.note_failure(error)
            self.later()
        else:
            self.wake()
        finally:
            self._refreshed_at = self._loop.time()
            self._refreshing = False

    def _next_pause_s(self) -> float:
        first, most = self._config.retry_backoff_ms / 1000, self._config.retry_backoff_max_ms / 1000
        if self._loop.time() - self._refreshed_at >= 2 * most:
            self._pause_s = first if self.lost else 0.0
        else:
            self._pause_s = min(max(2 * self._pause_s, first), most)
        return self._pause_s

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a task until it or the consumer ends."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        log.error("the consumer met what it did not expect, and tries again", exc_info=error)
        self.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        self.later()

    def fail(self, error: Exception) -> None:
        """Have polling raise an error."""
        if not self.problems:  # what lasts is found again after it was told
            self.problems.append(error)
        self.arrived.set()

    def later(self) -> None:
        """Make a new plan after a pause."""
        self._loop.call_later(self._config.retry_backoff_ms / 1000, self._wanted.set)

    async def close(self) -> None:
        """Stop all tasks."""
        tasks = [self._task, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
