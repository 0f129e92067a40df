"""Fetches ahead: keeps some answers of each partition in memory, so that decoding never waits for the network.

One request at a time per leader, for all of its partitions that have room. No more is asked for while answers of
`prefetch_bytes` are in memory; at most one answer per leader is under way beyond that.

A leader keeps a request for which it has too little for up to `fetch_max_wait_ms`, and what has no room yet would wait
with it: so a request may wait only when it asks for all partitions of its leader.

A new leader is first asked whether it has what was read up to here (KIP-320): if not, the log was truncated.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import DATA, Cluster
from kbroker.client.errors import error_for
from kbroker.client.metadata import PartitionMetadata
from kbroker.client.offset_lookup import EpochEnd, ask_for_epochs, list_offsets
from kbroker.client.partition_state import COMMITTED, NOWHERE, RESETS, Chunk, PartitionState
from kbroker.client.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.protocol.records.control import AbortedTransactions

log = logging.getLogger(__name__)

NEWEST_FETCH = 12
"""The last version that names topics by name: a topic made again under its name is then read on."""
CHUNKS_AHEAD = 2


Committed = Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]


class Asked(NamedTuple):
    """What a Fetch asks for of one partition."""

    generation: int
    offset: int
    leader_epoch: int


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
        self.give_back: Callable[[TopicPartition], int] = lambda key: self.states[key].offset
        """Has what is decoded of a partition forgotten that the application has not got; returns its next offset."""
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
        """How many bytes are in memory: an answer counts as a whole as long as any of it waits to be delivered."""
        answers = {chunk.answer: chunk.answer_bytes for state in self.states.values() for chunk in state.chunks}
        return sum(answers.values())

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
        if not self.problems:  # what lasts is found again after it was told
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
                state.move(item.offset, epoch=item.leader_epoch)

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
                    state.move(committed.offset, epoch=committed.leader_epoch)
                else:
                    state.move(None, RESETS[self.config.auto_offset_reset])

    def _fetch_all(self) -> None:
        """Ask each leader that is not busy."""
        has_room = self._has_room()
        now = self._loop.time()
        per_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        full: set[int] = set()
        unchecked: dict[int, list[TopicPartition]] = defaultdict(list)
        lost: set[str] = set()
        for key, state in self.states.items():
            if state.paused or state.is_fetching or state.offset < 0 or state.problem is not None:
                continue
            known = self.cluster.metadata.leader(*key)
            if known is None:
                lost.add(key.topic)
            elif not self._is_checked(state, known):
                unchecked[known.leader].append(key)
            elif has_room:
                source = state.source(known.leader, known.leader_epoch, self.cluster.metadata.nodes, now)
                if len(state.chunks) >= CHUNKS_AHEAD:
                    full.add(source)
                elif source not in self._busy:
                    per_leader[source].append(key)
        for leader, keys in unchecked.items():
            self._spawn(self._check_positions(leader, keys))
        for leader, keys in per_leader.items():
            may_wait = leader not in full
            keys = keys if may_wait else [key for key in keys if self.states[key].rests_until <= now]
            if keys:
                self._busy.add(leader)
                self._spawn(self._fetch(leader, keys, may_wait))
        if lost:
            self._spawn(self._refresh(lost))

    def _has_room(self) -> bool:
        """Whether more may be fetched; what waits in paused partitions makes way for others."""
        if self.buffered_bytes() < self.config.prefetch_bytes:
            return True
        for state in self.states.values():
            if state.paused and state.chunks:
                state.fetch_again()
        return self.buffered_bytes() < self.config.prefetch_bytes

    # --- leaders that are new ---------------------------------------------------------------------------------

    def _is_checked(self, state: PartitionState, known: PartitionMetadata) -> bool:
        """Whether the leader is known to have what was read before; nothing can be asked where no epoch is known."""
        if state.leader_epoch == known.leader_epoch:
            return True
        if known.leader_epoch >= 0 and state.epoch_before(state.fetch_offset) >= 0:
            return False
        state.leader_epoch = known.leader_epoch
        return True

    async def _check_positions(self, leader: int, keys: list[TopicPartition]) -> None:
        """Ask a leader where the epochs end that were read last, and see whether its log is another than was read."""
        asked = {key: self.states[key] for key in keys}
        wanted = {key: state.epoch_before(state.fetch_offset) for key, state in asked.items()}
        before = {key: state.generation for key, state in asked.items()}
        for state in asked.values():
            state.is_fetching = True
        lost: set[str] = set()
        try:
            answered = await ask_for_epochs(self.cluster, leader, wanted)
            lost |= {key.topic for key in keys if key not in answered}
            for key, end in answered.items():
                state = asked[key]
                if self.states.get(key) is not state or state.generation != before[key]:
                    continue
                if end.error is ErrorCode.NONE:
                    self._compare(key, state, end)
                elif end.error.retriable:
                    lost.add(key.topic)
                else:
                    self._stop(state, error_for(end.error, topic=key.topic, partition=key.partition, broker=leader))
        except (OSError, KafkaError) as error:
            log.info("broker %d does not say where leader epochs end: %s", leader, error)
            lost |= {key.topic for key in keys}
        finally:
            for state in asked.values():
                state.is_fetching = False
        if lost:
            await self._refresh(lost)
        self._wanted.set()

    def _compare(self, key: TopicPartition, state: PartitionState, end: EpochEnd) -> None:
        """Go on behind what both have; what was delivered and is gone is an error unless auto_offset_reset allows."""
        if end.offset >= state.fetch_offset:
            state.leader_epoch = end.asked_leader_epoch
            return
        delivered = self.give_back(key)
        if 0 <= delivered <= end.offset:
            state.move(delivered, epoch=state.epoch_before(delivered))  # only what was fetched ahead is gone
            return
        gone = f"the log was truncated: offset {delivered - 1} of leader epoch {state.epoch_before(delivered)} is gone"
        where = f"it agrees up to offset {end.offset}" if end.offset >= 0 else "it has nothing of that epoch"
        if self.config.auto_offset_reset == "none":
            text = f"{gone}, {where}, and auto_offset_reset is none: seek"
            error = error_for(ErrorCode.OFFSET_OUT_OF_RANGE, text, topic=key.topic, partition=key.partition)
            state.move(delivered, epoch=state.epoch_before(delivered))
            self._stop(state, error)
        elif end.offset >= 0:
            log.warning("%s: %s; reading goes on at offset %d", key, gone, end.offset)
            state.move(end.offset, epoch=end.epoch)
        else:
            log.warning("%s: %s, %s", key, gone, where)
            state.move(None, RESETS[self.config.auto_offset_reset])

    # --- records ----------------------------------------------------------------------------------------------

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

    async def _fetch(self, leader: int, keys: list[TopicPartition], may_wait: bool) -> None:
        """One request and its answer."""
        asked = {key: Asked(state.generation, state.fetch_offset, state.leader_epoch)
                 for key, state in ((key, self.states[key]) for key in keys)}  # fmt: skip
        for key in keys:
            self.states[key].is_fetching = True
        lost: set[str] = set()
        try:
            connection = await self.cluster.connection(leader, DATA)
            timeout = (self.config.fetch_max_wait_ms + self.config.request_timeout_ms) / 1000
            version = connection.version_for(FetchRequest, NEWEST_FETCH)
            answer = await connection.request(fetch_request(self.config, asked, may_wait), version, timeout=timeout)
            size = sum(len(item.records or b"") for topic in answer.responses for item in topic.partitions)
            for topic in answer.responses:
                for item in topic.partitions:
                    if self._take(TopicPartition(topic.topic, item.partition_index), item, asked, leader, size):
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
        asked: dict[TopicPartition, Asked],
        leader: int,
        answer_bytes: int,
    ) -> bool:
        """Keep one partition's records; True when its leader must be looked up again."""
        state = self.states.get(key)
        if state is None or key not in asked or state.generation != asked[key].generation:
            return False
        code = item.error_code
        if item.preferred_read_replica >= 0:
            until = self._loop.time() + self.config.metadata_max_age_ms / 1000
            state.prefer(item.preferred_read_replica, asked[key].leader_epoch, until)
        elif code is not ErrorCode.NONE and state.replica == leader:
            state.replica = -1  # the follower may be behind, or none any more: ask the leader before believing it
            return code.refreshes_metadata
        if code is not ErrorCode.NONE:
            return self._refused(key, state, item, leader)
        size = len(item.records or b"")
        is_little = size < max(1, self.config.fetch_min_bytes)
        state.rests_until = self._loop.time() + self.config.fetch_max_wait_ms / 1000 if is_little else 0.0
        if not size:
            return False
        aborted = None
        if self.config.read_committed:
            pairs = ((one.producer_id, one.first_offset) for one in item.aborted_transactions or ())
            aborted = AbortedTransactions(pairs)
        state.add(Chunk(key, item.records, aborted, answer_bytes))
        self.arrived.set()
        return False

    def _refused(
        self, key: TopicPartition, state: PartitionState, item: FetchResponse.PartitionData, leader: int
    ) -> bool:
        """Deal with an error; True when the leader must be looked up again."""
        code = item.error_code
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._reset(key, state)
            return False
        if code is ErrorCode.CORRUPT_MESSAGE:
            text = f"offset {state.fetch_offset} cannot be read: its batch is damaged on the broker; seek behind it"
            self._stop(state, error_for(code, text, topic=key.topic, partition=key.partition, broker=leader))
            return False
        if not code.retriable:
            self._stop(state, error_for(code, topic=key.topic, partition=key.partition, broker=leader))
            return False
        named = item.current_leader
        if named.leader_id >= 0:
            self.cluster.metadata.new_leader(key.topic, key.partition, named.leader_id, named.leader_epoch)
        return True

    def _reset(self, key: TopicPartition, state: PartitionState) -> None:
        """The wanted offset does not exist (any more): do as auto_offset_reset says."""
        if self.config.auto_offset_reset != "none":
            state.move(None, RESETS[self.config.auto_offset_reset])
            return
        text = f"offset {state.fetch_offset} does not exist, and auto_offset_reset is none"
        self._stop(state, error_for(ErrorCode.OFFSET_OUT_OF_RANGE, text, topic=key.topic, partition=key.partition))

    def _stop(self, state: PartitionState, problem: Exception) -> None:
        """Fetch no more of a partition until polling has said why, or a seek leads elsewhere."""
        state.problem = problem
        self.arrived.set()

    async def close(self) -> None:
        """Stop all tasks."""
        tasks = [self._task, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.states.clear()


def fetch_request(config: ConsumerConfig, wanted: Mapping[TopicPartition, Asked], may_wait: bool) -> FetchRequest:
    """Return a request without a session; `may_wait`: until there is enough to read."""
    topics: dict[str, list[FetchRequest.FetchPartition]] = {}
    for key, asked in wanted.items():
        topics.setdefault(key.topic, []).append(
            FetchRequest.FetchPartition(
                partition=key.partition,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.offset,
                partition_max_bytes=config.max_partition_fetch_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=config.fetch_max_wait_ms if may_wait else 0,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        isolation_level=int(config.read_committed),
        topics=[FetchRequest.FetchTopic(topic=name, partitions=items) for name, items in topics.items()],
        rack_id=config.client_rack,
    )
