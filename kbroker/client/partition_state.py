"""Where a consumer reads a partition: what was fetched and waits, the position, and of which leader epochs it is.

state.move(20, epoch=3)          begin at offset 20; the record before it is of leader epoch 3
state.add(chunk)                 fetched: a chunk's batches say of which epochs they are
state.epoch_before(25)           what a commit of offset 25 says, and what the next leader is asked about (KIP-320)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Any

from kbroker.client.types import EARLIEST, LATEST, TopicPartition
from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import HEADER_SIZE, read_header
from kbroker.protocol.records.control import AbortedTransactions

COMMITTED = -100
"""Where a group has been before: `reset_to` of partitions that are new here."""
NOWHERE = -101
"""Nowhere to begin, as auto_offset_reset is none: an error, once."""
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": NOWHERE}
UNKNOWN_EPOCH = -1


class Chunk:
    """The batches of one partition out of one answer; `position` is the next byte to decode."""

    __slots__ = ("aborted", "answer_bytes", "partition", "position", "records")

    def __init__(
        self,
        partition: TopicPartition,
        records: Any,
        aborted: AbortedTransactions | None,
        answer_bytes: int | None = None,
    ) -> None:
        self.partition = partition
        self.records = records
        self.aborted = aborted
        self.position = 0
        self.answer_bytes = len(records) if answer_bytes is None else answer_bytes
        """Of the whole answer, which any chunk of it keeps in memory."""

    @property
    def answer(self) -> int:
        """Which answer it is a part of, as long as it lives."""
        return id(self.records.obj if isinstance(self.records, memoryview) else self.records)


class PartitionState:
    """Where a partition is read."""

    __slots__ = (
        "chunks",
        "epochs",
        "fetch_offset",
        "generation",
        "is_fetching",
        "leader_epoch",
        "offset",
        "paused",
        "problem",
        "replica",
        "replica_epoch",
        "replica_until",
        "reset_to",
        "rests_until",
    )

    def __init__(self, offset: int | None = None, reset_to: int | None = None) -> None:
        self.offset = -1 if offset is None else offset
        """Of the next record to deliver."""
        self.fetch_offset = self.offset
        """Of the next record to fetch."""
        self.reset_to = reset_to
        """A wanted timestamp, EARLIEST, LATEST or COMMITTED: look its offset up first. None: it waits for a seek."""
        self.epochs: list[tuple[int, int]] = []
        """Leader epochs of what lies before fetch_offset: (an offset, the epoch from there on), growing."""
        self.leader_epoch = UNKNOWN_EPOCH
        """The leader of this epoch is known to have what lies before fetch_offset."""
        self.chunks: deque[Chunk] = deque()
        self.problem: Exception | None = None
        """Why no more can be fetched: raised behind the last chunk, then tried again."""
        self.is_fetching = False
        """Its leader is being asked."""
        self.rests_until = 0.0
        """There was little to read a moment ago: not asked before that time while other partitions' records wait."""
        self.paused = False
        self.generation = 0
        """Counts the seeks: answers to what was asked before one are dropped."""
        self.replica = -1
        self.replica_epoch = -1
        self.replica_until = 0.0
        """The follower that the leader of that epoch wants us to read from (KIP-392), and until when."""

    def prefer(self, replica: int, leader_epoch: int, until: float) -> None:
        """Read from a follower from now on."""
        self.replica, self.replica_epoch, self.replica_until = replica, leader_epoch, until

    def source(self, leader: int, leader_epoch: int, nodes: Container[int], now: float) -> int:
        """Return the broker to read from: the leader, once the follower is gone, its time over or the leader new."""
        if self.replica in nodes and self.replica_epoch == leader_epoch and now < self.replica_until:
            return self.replica
        return leader

    def move(self, offset: int | None, reset_to: int | None = None, epoch: int = UNKNOWN_EPOCH) -> None:
        """Go on elsewhere; `epoch` is that of the record before."""
        self.generation += 1
        self.chunks.clear()
        self.problem = None
        self.offset = self.fetch_offset = -1 if offset is None else offset
        self.epochs = [(self.offset - 1, epoch)] if epoch >= 0 else []
        self.leader_epoch = UNKNOWN_EPOCH
        self.reset_to = reset_to
        self.rests_until = 0.0

    def fetch_again(self) -> None:
        """Forget what was fetched and not decoded."""
        self.move(self.offset, epoch=self.epoch_before(self.offset))

    def add(self, chunk: Chunk) -> None:
        """Keep what was fetched."""
        self.fetch_offset, epochs = look_through(chunk.records, self.fetch_offset)
        for start, epoch in epochs:
            if not self.epochs or self.epochs[-1][1] != epoch:
                self.epochs.append((start, epoch))
        while len(self.epochs) > 1 and self.epochs[1][0] < self.offset:
            del self.epochs[0]
        self.chunks.append(chunk)

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the last record before an offset that is read here; -1 when it is not known."""
        for start, epoch in reversed(self.epochs):
            if start < offset:
                return epoch
        return UNKNOWN_EPOCH


def look_through(records: Any, offset: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the offset behind the last whole batch, and (first offset, leader epoch) wherever the epoch changes.

    A batch that makes no sense is left for the decoder to name.
    """
    position = 0
    epochs: list[tuple[int, int]] = []
    try:
        while len(records) - position >= HEADER_SIZE:
            header = read_header(records, position)
            position += header.size
            if position > len(records):
                break
            offset = max(offset, header.next_offset)
            if not epochs or epochs[-1][1] != header.partition_leader_epoch:
                epochs.append((header.base_offset, header.partition_leader_epoch))
    except KafkaError:
        pass
    return offset, epochs
