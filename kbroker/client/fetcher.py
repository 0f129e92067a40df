"""Fetches ahead: keeps some answers of each partition in memory, so that decoding never waits for the network.

One request at a time per leader, for all of its partitions that have room. No more is asked for while `prefetch_bytes`
wait to be delivered; at most one answer per leader is under way beyond that.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import Any

from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import DATA, Cluster
from kbroker.client.errors import error_for
from kbroker.client.offset_lookup import list_offsets
from kbroker.client.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.records.batch import HEADER_SIZE, read_header
from protocol.records.control import AbortedTransactions

log = logging.getLogger(__name__)

COMMITTED = -100
"""Where a group has been before: `reset_to` of partitions that are new here."""
NOWHERE = -101
"""Nowhere to begin, as auto_offset_reset is none: an error, once."""
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": NOWHERE}

NEWEST_FETCH = 12
"""The last version that names topics by name: a topic made again under its name is then read on."""
CHUNKS_AHEAD = 2


Committed = Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]


class Chunk:
    """The batches of one partition out of one answer; `position` is the next byte to decode."""

    __slots__ = ("aborted", "partition", "position", "records")

    def __init__(self, partition: TopicPartition, records: Any, aborted: AbortedTransactions | None) -> None:
        self.partition = partition
        self.records = records
        self.aborted = aborted
        self.position = 0


class PartitionState:
    """Where a partition is read."""

    __slots__ = (
        "chunks",
        "fetch_offset",
        "generation",
        "is_fetching",
        "offset",
        "paused",
        "replica",
        "replica_epoch",
        "replica_until",
        "reset_to",
    )

    def __init__(self, offset: int | None = None, reset_to: int | None = None) -> None:
        self.offset = -1 if offset is None else offset
        """Of the next record to deliver."""
        self.fetch_offset = self.offset
        """Of the next record to fetch."""
        self.reset_to = reset_to
        """A wanted timestamp, EARLIEST, LATEST or COMMITTED: look its offset up first. None: it waits for a seek."""
        self.chunks: deque[Chunk] = deque()
        self.is_fetching = False
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

    def move(self, offset: int | None, reset_to: int | None = None) -> None:
        """Go on elsewhere."""
        self.generation += 1
        self.chunks.clear()
        self.offset = self.fetch_offset = -1 if offset is None else offset
        self.reset_to = reset_to


class Fetcher:
    """Lives on the loop of its consumer."""

    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
        self.states: dict[TopicPartition, PartitionState] = {}
        self.topics: tuple[str, ...] = ()
        """Those subscribed to without a group: partitions that they get later are read too."""
        self.pattern: re.Pattern[str] | None = None
        """What made these topics match: others that do are read too."""
        self.committed: Committed | None = None
        """Asks for a group's committed offsets."""
        self._topic_ids: dict[str, bytes] = {}
        self.problems: deque[Exception] = deque()
        self.arrived = asyncio.Event()
        """Set when there is something to deliver."""
        self._wanted = asyncio.Event()
        self._busy: set[int] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="kbroker-consumer-fetcher")

    def wake(self) -> None:
        """Look what can be fetched."""
        self._wanted.set()

    def buffered_bytes(self) -> int:
        """How many bytes wait to be delivered."""
        return sum(len(c.records) - c.position for state in self.states.values() for c in state.chunks)

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._look_at_metadata()
                await self.locate()
                self._fetch_all()
            except (OSError, KafkaError) as error:
                if isinstance(error, KafkaError) and not error.code.retriable:
                    self._fail(error)
                log.info("the consumer tries again: %s", error)
                self._later()

    async def _look_at_metadata(self) -> None:
        """Keep the metadata young, and read what is new in what was subscribed to."""
        if self.pattern is None:
            await self.cluster.refresh_if_old()
        elif self.cluster.is_metadata_old:
            await self.cluster.refresh(None)
            topics = self.cluster.metadata.topics.values()
            self.topics = tuple(t.name for t in topics if not t.is_internal and self.pattern.match(t.name))
        self._add_partitions()

    def _add_partitions(self) -> None:
        """Read partitions that are new from their beginning: those added to a topic, and a topic made again."""
        for name in self.topics:
            known = self.cluster.metadata.topics.get(name)
            if known is None:
                continue
            before = self._topic_ids.get(name, known.topic_id)
            self._topic_ids[name] = known.topic_id
            for index in known.partitions:
                key = TopicPartition(name, index)
                if key not in self.states:
                    self.states[key] = PartitionState(reset_to=EARLIEST)
                elif before != known.topic_id:
                    self.states[key].move(None, EARLIEST)

    def _fail(self, error: Exception) -> None:
        if len(self.problems) < 100:
            self.problems.append(error)
        self.arrived.set()

    def _later(self) -> None:
        self._loop.call_later(self.config.retry_backoff_ms / 1000, self._wanted.set)

    async def locate(self) -> None:
        """Find the offsets of partitions that start at a time, the beginning, the end, or where their group was."""
        await self._locate_committed()
        asked = {key: (state.generation, state.reset_to) for key, state in self.states.items() if state.offset < 0}
        wanted: dict[TopicPartition, int] = {}
        for key, (_, reset_to) in asked.items():
            if reset_to == NOWHERE:
                self.arrived.set()  # polling says so, unless a seek comes first
            elif reset_to is not None and reset_to != COMMITTED:
                wanted[key] = reset_to
        if not wanted:
            return
        found = await list_offsets(self.cluster, wanted, read_committed=self.config.read_committed)
        young = {key: LATEST for key, item in found.items() if item.offset < 0}
        if young:
            found |= await list_offsets(self.cluster, young, read_committed=self.config.read_committed)
        for key, item in found.items():
            state = self.states.get(key)
            if state is not None and state.generation == asked[key][0]:
                state.move(item.offset)

    def refuse_nowhere(self) -> None:
        """Raise for a partition that has no position to begin from, once."""
        for key, state in self.states.items():
            if state.reset_to == NOWHERE:
                state.reset_to = None
                text = "there is no position to begin from, and auto_offset_reset is none"
                raise error_for(ErrorCode.OFFSET_OUT_OF_RANGE, text, topic=key.topic, partition=key.partition)

    async def _locate_committed(self) -> None:
        """Move partitions to where their group was, or to where auto_offset_reset says."""
        asked = {key: state.generation for key, state in self.states.items() if state.reset_to == COMMITTED}
        if not asked or self.committed is None:
            return
        for key, committed in (await self.committed(asked)).items():
            state = self.states.get(key)
            if state is not None and state.generation == asked[key]:
                if committed is not None:
                    state.move(committed.offset)
                else:
                    state.move(None, RESETS[self.config.auto_offset_reset])

    def _fetch_all(self) -> None:
        """Ask each leader that is not busy."""
        if self.buffered_bytes() >= self.config.prefetch_bytes:
            return
        per_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        lost: set[str] = set()
        for key, state in self.states.items():
            if state.paused or state.is_fetching or state.offset < 0 or len(state.chunks) >= CHUNKS_AHEAD:
                continue
            known = self.cluster.metadata.leader(*key)
            if known is None:
                lost.add(key.topic)
                continue
            source = state.source(known.leader, known.leader_epoch, self.cluster.metadata.nodes, self._loop.time())
            if source not in self._busy:
                per_leader[source].append(key)
        for leader, keys in per_leader.items():
            self._busy.add(leader)
            self._spawn(self._fetch(leader, keys))
        if lost:
            self._spawn(self._refresh(lost))

    def _spawn(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _refresh(self, topics: set[str]) -> None:
        await asyncio.sleep(self.config.retry_backoff_ms / 1000)
        try:
            await self.cluster.refresh(topics)
        except (OSError, KafkaError) as error:
            log.info("no new metadata: %s", error)
        self._wanted.set()

    async def _fetch(self, leader: int, keys: list[TopicPartition]) -> None:
        """One request and its answer."""
        asked = {key: (self.states[key].generation, self.states[key].fetch_offset) for key in keys}
        for key in keys:
            self.states[key].is_fetching = True
        lost: set[str] = set()
        try:
            connection = await self.cluster.connection(leader, DATA)
            timeout = (self.config.fetch_max_wait_ms + self.config.request_timeout_ms) / 1000
            version = connection.version_for(FetchRequest, NEWEST_FETCH)
            answer = await connection.request(fetch_request(self.config, self.cluster, asked), version, timeout=timeout)
            for topic in answer.responses:
                for item in topic.partitions:
                    if self._take(TopicPartition(topic.topic, item.partition_index), item, asked, leader):
                        lost.add(topic.topic)
        except (OSError, KafkaError) as error:
            log.info("a fetch from broker %d failed: %s", leader, error)
            lost |= {key.topic for key in keys}
            for key in keys:
                if key in self.states:
                    self.states[key].replica = -1
        finally:
            self._busy.discard(leader)
            for key in keys:
                if key in self.states:
                    self.states[key].is_fetching = False
        if lost:
            await self._refresh(lost)
        self._wanted.set()

    def _take(
        self,
        key: TopicPartition,
        item: FetchResponse.PartitionData,
        asked: dict[TopicPartition, tuple[int, int]],
        leader: int,
    ) -> bool:
        """Keep one partition's records; True when its leader must be looked up again."""
        state = self.states.get(key)
        if state is None or key not in asked or state.generation != asked[key][0]:
            return False
        code = item.error_code
        if item.preferred_read_replica >= 0:
            known = self.cluster.metadata.leader(*key)
            until = self._loop.time() + self.config.metadata_max_age_ms / 1000
            state.prefer(item.preferred_read_replica, -1 if known is None else known.leader_epoch, until)
        elif code is not ErrorCode.NONE and state.replica == leader:
            state.replica = -1  # the follower may be behind, or none any more: ask the leader before believing it
            return code.refreshes_metadata
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._reset(key, state)
            return False
        if code is not ErrorCode.NONE:
            if not code.retriable:
                self._fail(error_for(code, topic=key.topic, partition=key.partition, broker=leader))
                state.paused = True
            return code.retriable
        if item.records is None or len(item.records) == 0:
            return False
        aborted = None
        if self.config.read_committed:
            pairs = ((one.producer_id, one.first_offset) for one in item.aborted_transactions or ())
            aborted = AbortedTransactions(pairs)
        state.fetch_offset = max(next_offset(item.records, state.fetch_offset), state.fetch_offset)
        state.chunks.append(Chunk(key, item.records, aborted))
        self.arrived.set()
        return False

    def _reset(self, key: TopicPartition, state: PartitionState) -> None:
        """The wanted offset does not exist (any more): do as auto_offset_reset says."""
        if self.config.auto_offset_reset != "none":
            state.move(None, RESETS[self.config.auto_offset_reset])
            return
        text = f"offset {state.fetch_offset} does not exist, and auto_offset_reset is none"
        self._fail(error_for(ErrorCode.OFFSET_OUT_OF_RANGE, text, topic=key.topic, partition=key.partition))
        state.paused = True

    async def close(self) -> None:
        """Stop all tasks."""
        tasks = [self._task, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.states.clear()


def next_offset(records: Any, offset: int) -> int:
    """Return the offset behind the last whole batch; a batch that makes no sense is left for the decoder to name."""
    position = 0
    try:
        while len(records) - position >= HEADER_SIZE:
            header = read_header(records, position)
            position += header.size
            if position > len(records):
                break
            offset = header.next_offset
    except KafkaError:
        pass
    return offset


def fetch_request(
    config: ConsumerConfig, cluster: Cluster, offsets: dict[TopicPartition, tuple[int, int]]
) -> FetchRequest:
    """Return a request without a session for (generation, offset) by partition."""
    topics: dict[str, list[FetchRequest.FetchPartition]] = {}
    for key, (_, offset) in offsets.items():
        known = cluster.metadata.leader(*key)
        topics.setdefault(key.topic, []).append(
            FetchRequest.FetchPartition(
                partition=key.partition,
                current_leader_epoch=known.leader_epoch if known else -1,
                fetch_offset=offset,
                partition_max_bytes=config.max_partition_fetch_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        isolation_level=int(config.read_committed),
        topics=[FetchRequest.FetchTopic(topic=name, partitions=items) for name, items in topics.items()],
        rack_id=config.client_rack,
    )
