"""Where a consumer reads a partition: what was fetched and waits, the position, and of which leader epochs it is.

state.move(20, epoch=3)          begin at offset 20; the record before it is of leader epoch 3
state.add(chunk)                 fetched: a chunk's batches say of which epochs they are
state.epoch_before(25)           what a commit of offset 25 says, and what the next leader is asked about (KIP-320)

Whatever changes what is to be done with a partition goes through a method: its owner (assignment.py) hears of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Any, Protocol

from kbroker.client.errors import error_out_of_order
from kbroker.client.types import EARLIEST, LATEST, TopicPartition
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.protocol.records.control import AbortedTransactions
from kbroker.protocol.records.message_set import as_batches
from kbroker.protocol.records.succession import UNKNOWN, look_through

COMMITTED = -100
"""Where a group has been before: `reset_to` of partitions that are new here."""
NOWHERE = -101
"""Nowhere to begin, as auto_offset_reset is none: an error, once."""
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": NOWHERE}
UNKNOWN_EPOCH = -1
CHUNKS_AHEAD = 2
"""So many answers of a partition wait before it is left out of the next request."""


class Answer:
    """A fetched answer: all of it is in memory as long as a chunk of it waits."""

    __slots__ = ("size", "waiting")

    def __init__(self, size: int) -> None:
        self.size = size
        self.waiting = 0
        """Chunks of it that wait to be decoded."""


class Chunk:
    """The batches of one partition out of one answer; `position` is the next byte to decode."""

    __slots__ = ("aborted", "answer", "follower_in", "position", "records")

    def __init__(
        self,
        records: Any,
        aborted: AbortedTransactions | None = None,
        answer: Answer | None = None,
        follower_in: int | None = None,
    ) -> None:
        self.records = as_batches(records)
        self.aborted = aborted
        self.position = 0
        self.answer = Answer(len(records)) if answer is None else answer
        self.follower_in = follower_in
        """The epoch of the leader whose follower gave it; None: a leader did."""


class Owner(Protocol):
    """Who keeps the states, and hears of each change."""

    buffered_bytes: int

    def sort(self, state: PartitionState) -> None:
        """Note what is to be done with a partition now."""


class Nobody:
    """The owner of a state that stands alone, or that is read no more."""

    buffered_bytes = 0

    def sort(self, state: PartitionState) -> None:
        """Nothing is done with it."""


class PartitionState:
    """Where a partition is read."""

    __slots__ = (
        "chunks",
        "distrusted_in",
        "end_offset",
        "epochs",
        "fetch_offset",
        "generation",
        "is_fetching",
        "is_out_of_range",
        "key",
        "leader_epoch",
        "offset",
        "owner",
        "paused",
        "problem",
        "replica",
        "replica_epoch",
        "replica_until",
        "reset_to",
        "rests_until",
        "topic_id",
    )

    def __init__(self, key: TopicPartition, offset: int | None = None, reset_to: int | None = None) -> None:
        self.key = key
        self.owner: Owner = Nobody()
        self.offset = -1 if offset is None else offset
        """Of the next record to decode."""
        self.fetch_offset = self.offset
        """Of the next record to fetch."""
        self.reset_to = reset_to
        """A wanted timestamp, EARLIEST, LATEST or COMMITTED: look its offset up first. None: it waits for a seek."""
        self.topic_id = ZERO_UUID
        """Of the topic that its offsets are of, as far as that is known."""
        self.epochs: list[tuple[int, int]] = []
        """Leader epochs of what lies before fetch_offset: (an offset, the epoch from there on), growing."""
        self.leader_epoch = UNKNOWN_EPOCH
        """The leader of this epoch is known to have what lies before fetch_offset."""
        self.end_offset = -1
        """Where the readable records end, as the last answer said."""
        self.chunks: deque[Chunk] = deque()
        self.problem: Exception | None = None
        """Why no more can be fetched: raised behind the last chunk, then tried again."""
        self.is_fetching = False
        """Its leader is being asked about where it is read now."""
        self.is_out_of_range = False
        """There is nothing at fetch_offset; what was fetched before is delivered first."""
        self.rests_until = 0.0
        """There was little to read a moment ago: not asked before that time while other partitions' records wait."""
        self.paused = False
        self.generation = 0
        """Counts the seeks, and the end: answers to what was asked before are dropped."""
        self.replica = -1
        self.replica_epoch = -1
        self.replica_until = 0.0
        """The follower that the leader of that epoch wants us to read from (KIP-392), and until when."""
        self.distrusted_in: int | None = None
        """The epoch of a leader of which a follower gave what cannot be read: that leader is read itself."""

    @property
    def is_read(self) -> bool:
        """Whether it belongs to somebody."""
        return not isinstance(self.owner, Nobody)

    @property
    def is_ready(self) -> bool:
        """Whether there is something to deliver, or to tell."""
        return not self.paused and (bool(self.chunks) or self.problem is not None)

    @property
    def is_readable(self) -> bool:
        """Whether more could be asked for."""
        return self.offset >= 0 and not self.paused and not self.is_fetching and self.problem is None

    @property
    def is_full(self) -> bool:
        """Whether what was fetched must be delivered first."""
        return self.is_out_of_range or len(self.chunks) >= CHUNKS_AHEAD

    def prefer(self, replica: int, leader_epoch: int, until: float) -> None:
        """Read from a follower from now on."""
        if leader_epoch != self.distrusted_in:
            self.replica, self.replica_epoch, self.replica_until = replica, leader_epoch, until

    def distrust(self, follower_in: int | None) -> bool:
        """Read what cannot be read once more, from the leader; False where a leader gave it (see Chunk)."""
        if follower_in is None:
            return False
        self.replica, self.distrusted_in = -1, follower_in
        self.fetch_again()
        return True

    def source(self, leader: int, leader_epoch: int, nodes: Container[int], now: float) -> int:
        """Return the broker to read from: the leader, once the follower is gone, its time over or the leader new."""
        if self.replica in nodes and self.replica_epoch == leader_epoch and now < self.replica_until:
            return self.replica
        return leader

    def move(self, offset: int | None, reset_to: int | None = None, epoch: int = UNKNOWN_EPOCH) -> None:
        """Go on elsewhere; `epoch` is that of the record before."""
        self._forget()
        self.problem = None
        self.offset = self.fetch_offset = -1 if offset is None else offset
        self.epochs = [(self.offset - 1, epoch)] if epoch >= 0 else []
        self.leader_epoch = UNKNOWN_EPOCH
        self.reset_to = reset_to
        self.rests_until = 0.0
        self.owner.sort(self)

    def go_back(self, offset: int) -> None:
        """Read again from an offset, with what is known of the records before it."""
        self.move(offset, epoch=self.epoch_before(offset))

    def fetch_again(self) -> None:
        """Forget what was fetched and not decoded."""
        self.go_back(self.offset)

    def retire(self) -> None:
        """It is read no more: no answer changes it, and nobody hears of it."""
        self._forget()
        self.owner = Nobody()

    def _forget(self) -> None:
        self.generation += 1
        while self.chunks:
            self._release(self.chunks.popleft())
        self.is_out_of_range = self.is_fetching = False

    def add(self, chunk: Chunk, high_watermark: int = UNKNOWN) -> None:
        """Keep what was fetched, as far as its offsets make sense; what does not is a problem behind it."""
        seen = look_through(chunk.records, self.fetch_offset, high_watermark)
        if seen.problem and self.distrust(chunk.follower_in):
            return
        if seen.problem:
            self.problem = error_out_of_order(*self.key, seen)
            chunk.records = memoryview(chunk.records)[: seen.end]
        chunk.position = seen.start
        self.fetch_offset = seen.next_offset
        if seen.end or not seen.problem:
            self._keep(chunk, seen.epochs)
        self.owner.sort(self)

    def _keep(self, chunk: Chunk, epochs: list[tuple[int, int]]) -> None:
        for start, epoch in epochs:
            if not self.epochs or self.epochs[-1][1] != epoch:
                self.epochs.append((start, epoch))
        while len(self.epochs) > 1 and self.epochs[1][0] < self.offset:
            del self.epochs[0]
        self.chunks.append(chunk)
        if not chunk.answer.waiting:
            self.owner.buffered_bytes += chunk.answer.size
        chunk.answer.waiting += 1

    def chunk_done(self) -> None:
        """The first chunk is decoded."""
        self._release(self.chunks.popleft())
        if not self.chunks:
            self.is_out_of_range = False
        self.owner.sort(self)

    def _release(self, chunk: Chunk) -> None:
        chunk.answer.waiting -= 1
        if not chunk.answer.waiting:
            self.owner.buffered_bytes -= chunk.answer.size

    def fetching(self, is_fetching: bool) -> None:
        """Its leader is being asked, or has answered."""
        self.is_fetching = is_fetching
        self.owner.sort(self)

    def pause(self, paused: bool) -> None:
        """Deliver nothing, or go on."""
        self.paused = paused
        self.owner.sort(self)

    def stop(self, problem: Exception) -> None:
        """Fetch no more until polling has said why, or a seek leads elsewhere."""
        self.problem = problem
        self.owner.sort(self)

    def out_of_range(self) -> None:
        """Fetch no more until what was fetched is decoded."""
        self.is_out_of_range = True
        self.owner.sort(self)

    def take_problem(self) -> Exception:
        """Return why nothing more can be fetched; it is tried again then."""
        problem, self.problem = self.problem, None
        assert problem is not None
        self.owner.sort(self)
        return problem

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the last record before an offset that is read here; -1 when it is not known."""
        for start, epoch in reversed(self.epochs):
            if start < offset:
                return epoch
        return UNKNOWN_EPOCH
