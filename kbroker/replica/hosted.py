"""A partition hosted by this broker: its state (pure), its log, and the requests that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import Any

from kbroker.protocol.errors import ErrorCode
from kbroker.replica.delayed import Ack, DelayedFetch, settle_reached
from kbroker.replica.partition import Partition
from kbroker.replica.traffic import Traffic
from kbroker.segment.log import AppendResult, Log

FLUSH_NEVER = (1 << 63) - 1


class HostedPartition:
    """One entry of the replica manager."""

    __slots__ = (
        "acks",
        "changes",
        "changing",
        "consumers",
        "counted_from",
        "deletions",
        "flush_acks",
        "flush_messages",
        "followers",
        "log",
        "log_start_offset",
        "partition",
        "recompresses",
        "state",
        "tail",
        "topic",
        "topic_id",
        "traffic",
        "write",
    )

    def __init__(self, state: Partition, log: Log, traffic: Traffic | None = None) -> None:
        self.topic = state.topic
        self.partition = state.partition
        self.state = state
        self.log = log
        self.topic_id: bytes = log.topic_id
        self.acks: list[Ack] = []
        self.flush_acks: list[Ack] = []
        self.deletions: list[Ack] = []
        """DeleteRecords requests that wait for the followers' log starts."""
        self.consumers: dict[DelayedFetch, None] = {}
        self.followers: dict[DelayedFetch, None] = {}
        self.changes = 0
        """Grows with everything a fetch could see: high watermark, log start, leadership, removal."""
        self.log_start_offset = log.log_start_offset
        """As last told to those who wait."""
        self.tail: asyncio.Future[Any] | None = None
        """The last append that runs in a worker thread, or the end of a move. Later appends wait for it, in order."""
        self.write: asyncio.Future[AppendResult] | None = None
        """The one that a worker thread writes into the log at this moment."""
        self.changing: asyncio.Future[None] | None = None
        """Done when the change of role is that is under way: until then no thread begins to write."""
        self.flush_messages = FLUSH_NEVER
        self.traffic = traffic or Traffic()
        """What is counted for the topic."""
        self.counted_from: tuple[int, int] | None = None
        """Log end offset and bytes appended when this broker began to lead; what came since is not in `traffic` yet."""
        self.recompresses = False
        """Whether the topic's configuration names a compression."""
        self.apply_config()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def apply_config(self) -> None:
        """Take over what the topic's configuration says about acknowledging."""
        config = self.log.config
        self.flush_messages = config.flush_messages
        self.recompresses = config.compression is not None
        self.state.min_insync_replicas = config.min_insync_replicas

    @property
    def is_slow(self) -> bool:
        """Whether who changes the log may well have to wait for its disk: a matter for threads then."""
        return self.log.disk.pool.pace.is_slow

    def needs_flush(self) -> bool:
        """Whether so many records are not on disk yet that the next acknowledgement must wait for a flush."""
        if self.flush_messages == FLUSH_NEVER:
            return False
        log = self.log
        return log.log_end_offset - log.disk.flushed_to >= self.flush_messages

    def log_grew(self, log_end_offset: int, now_ms: int, alive: Container[int]) -> None:
        """Count the log up to here (appended, and flushed where that is asked for); wake who waits for it."""
        if self.state.log_grew(log_end_offset, now_ms, alive):
            self.high_watermark_moved()

    def high_watermark_moved(self) -> None:
        """Pass the state's high watermark on: to the log, to acks=all producers, to consumers."""
        high_watermark = self.state.high_watermark
        self.log.update_high_watermark(high_watermark)
        self.changes += 1
        if self.acks:
            self.acks = settle_reached(self.acks, high_watermark)
        for fetch in self.consumers:
            fetch.touch(self)

    def appended(self) -> None:
        """The log's end moved: followers may read on."""
        if self.followers:
            for fetch in self.followers:
                fetch.touch(self)

    def changed(self) -> None:
        """Something else moved (leadership, log start, last stable offset): whoever waits looks again."""
        self.changes += 1
        self.log_start_offset = self.log.log_start_offset
        for fetch in self.consumers:
            fetch.touch(self)
        for fetch in self.followers:
            fetch.touch(self)

    def appended_as_leader(self) -> tuple[int, int]:
        """Return the messages and bytes that were appended since this broker leads, and are not in `traffic`."""
        if self.counted_from is None:
            return 0, 0
        offset, size = self.counted_from
        return self.log.log_end_offset - offset, self.log.disk.appended_bytes - size

    def begin_to_count(self) -> None:
        """This broker leads from here on."""
        if self.counted_from is None:
            self.counted_from = self.log.log_end_offset, self.log.disk.appended_bytes

    def settle_traffic(self) -> None:
        """This broker leads no more: what it appended goes into `traffic`, and stays there."""
        if self.counted_from is None:
            return
        traffic = self.traffic
        traffic.settled += 1
        messages, size = self.appended_as_leader()
        self.counted_from = None
        traffic.messages_in += messages
        traffic.bytes_in += size
        traffic.settled += 1

    def low_watermark(self, alive: Container[int]) -> int:
        """The lowest log start offset of the live replicas: what is below is gone everywhere."""
        starts = {remote.log_start_offset for broker_id, remote in self.state.remotes.items() if broker_id in alive}
        starts.add(self.log.log_start_offset)
        return min(starts)

    def settle_deletions(self, alive: Container[int]) -> None:
        """A follower told its log start: deletions that all replicas have done are answered."""
        self.deletions = settle_reached(self.deletions, self.low_watermark(alive))

    def settle_flushed(self, log_end_offset: int) -> None:
        """The log is on disk up to here: acks=1 producers who asked for that are answered."""
        if self.flush_acks:
            self.flush_acks = settle_reached(self.flush_acks, log_end_offset)

    def fail_acks(self, error: ErrorCode) -> None:
        """This broker does not lead the partition any more (6), or does not have it (3, 56)."""
        acks = self.acks + self.flush_acks + self.deletions
        self.acks, self.flush_acks, self.deletions = [], [], []
        for _, delayed, place in acks:
            delayed.settle(place, error)
