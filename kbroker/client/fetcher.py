"""Fetches ahead: keeps some answers of each partition in memory, so that decoding never waits for the network.

One request at a time per leader, for all of its partitions that have room. No more is asked for while answers of
`prefetch_bytes` are in memory; at most one answer per leader is under way beyond that. (Two requests at a time, over
two connections, brought nothing where there was a backlog, measured on two busy processors.)

A leader keeps a request for which it has too little for up to `fetch_max_wait_ms`, and what has no room yet would wait
with it: so a request may wait only when it asks for all partitions of its leader. Partitions with little to read rest
then for as long; what others' records left no room for in an answer is not among them.

A new leader is first asked whether it has what was read up to here (KIP-320): if not, the log was truncated.

Nothing that happens to one answer or one partition ends this: what is unexpected is raised by poll, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping

from kbroker.client.assignment import Assignment
from kbroker.client.background import Background
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import DATA, Cluster
from kbroker.client.errors import error_for
from kbroker.client.metadata import PartitionMetadata
from kbroker.client.offset_lookup import EpochEnd, ask_for_epochs
from kbroker.client.partition_state import RESETS, Answer, Chunk, PartitionState
from kbroker.client.places import Asked, Asking, Places, answered, ask_about
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.protocol.records.control import AbortedTransactions

log = logging.getLogger(__name__)

NEWEST_FETCH = 12
"""The last version that names topics by name: a topic made again under its name is then read on."""


class Fetcher:
    """Lives on the loop of its consumer."""

    def __init__(self, config: ConsumerConfig, cluster: Cluster, assignment: Assignment) -> None:
        self.config = config
        self.cluster = cluster
        self.assignment = assignment
        self.background = Background(config, cluster, self._plan)
        self.places = Places(config, cluster, assignment, self.background)
        self.fetches = self.fetched_bytes = 0
        """Answers so far, and the bytes of records in them."""
        self._busy: set[int] = set()
        self._loop = asyncio.get_running_loop()

    def _plan(self) -> None:
        self.places.plan()
        self._fetch_all()

    # --- what is asked ----------------------------------------------------------------------------------------

    def _fetch_all(self) -> None:
        """Ask each leader that is not busy."""
        has_room = self._has_room()
        now = self._loop.time()
        per_leader: dict[int, list[PartitionState]] = defaultdict(list)
        unchecked: dict[int, list[PartitionState]] = defaultdict(list)
        for state in self.assignment.hungry:
            if state.key in self.background.lost:
                continue
            known = self.cluster.metadata.leader(*state.key)
            if known is None:
                self.background.lost.add(state.key)
            elif not self._is_checked(state, known):
                unchecked[known.leader].append(state)
            elif has_room:
                source = self._source(state, known, now)
                if source not in self._busy:
                    per_leader[source].append(state)
        for leader, states in unchecked.items():
            self.background.spawn(self._check_positions(leader, ask_about(states)))
        full = self._full_leaders(now) if per_leader else set()
        for leader, states in per_leader.items():
            may_wait = leader not in full
            chosen = states if may_wait else [state for state in states if state.rests_until <= now]
            if chosen:
                self._busy.add(leader)
                self.background.spawn(self._fetch(leader, ask_about(chosen), may_wait))

    def _source(self, state: PartitionState, known: PartitionMetadata, now: float) -> int:
        return state.source(known.leader, known.leader_epoch, self.cluster.metadata.nodes, now)

    def _full_leaders(self, now: float) -> set[int]:
        """Return who has partitions for which there is no room yet."""
        leaders = ((state, self.cluster.metadata.leader(*state.key)) for state in self.assignment.full)
        return {self._source(state, known, now) for state, known in leaders if known is not None}

    def _has_room(self) -> bool:
        """Whether more may be fetched; what waits in paused partitions makes way for others."""
        limit = self.config.prefetch_bytes
        if self.assignment.buffered_bytes >= limit:
            for state in self.assignment.paused:
                if state.chunks:
                    state.fetch_again()
        return self.assignment.buffered_bytes < limit

    # --- leaders that are new ---------------------------------------------------------------------------------

    def _is_checked(self, state: PartitionState, known: PartitionMetadata) -> bool:
        """Whether the leader is known to have what was read before; nothing can be asked where no epoch is known."""
        if state.leader_epoch == known.leader_epoch:
            return True
        if known.leader_epoch >= 0 and state.epoch_before(state.fetch_offset) >= 0:
            return False
        state.leader_epoch = known.leader_epoch
        return True

    async def _check_positions(self, leader: int, asked: Asking) -> None:
        """Ask a leader where the epochs end that were read last, and see whether its log is another than was read."""
        try:
            wanted = {key: one.state.epoch_before(one.offset) for key, one in asked.items() if one.still_holds}
            ends = await ask_for_epochs(self.cluster, leader, wanted)
            self.background.lost |= wanted.keys() - ends.keys()
            for key, end in ends.items():
                if not asked[key].still_holds:
                    continue
                state = asked[key].state
                if end.error is ErrorCode.NONE:
                    self._compare(state, end)
                elif end.error.retriable:
                    self.background.lost.add(key)
                else:
                    self._stop(state, error_for(end.error, topic=key.topic, partition=key.partition, broker=leader))
        except (OSError, KafkaError) as error:
            log.info("broker %d does not say where leader epochs end: %s", leader, error)
            self.background.lost |= asked.keys()
        finally:
            answered(asked)
        self.background.wake()

    def _compare(self, state: PartitionState, end: EpochEnd) -> None:
        """Go on behind what both have; what was delivered and is gone is an error unless auto_offset_reset allows."""
        if end.offset >= state.fetch_offset:
            state.leader_epoch = end.asked_leader_epoch
            return
        self.assignment.give_back([state.key])
        delivered, key = state.offset, state.key
        if 0 <= delivered <= end.offset:
            state.go_back(delivered)  # only what was fetched ahead is gone
            return
        gone = f"the log was truncated: offset {delivered - 1} of leader epoch {state.epoch_before(delivered)} is gone"
        where = f"it agrees up to offset {end.offset}" if end.offset >= 0 else "it has nothing of that epoch"
        if self.config.auto_offset_reset == "none":
            text = f"{gone}, {where}, and auto_offset_reset is none: seek"
            error = error_for(ErrorCode.OFFSET_OUT_OF_RANGE, text, topic=key.topic, partition=key.partition)
            state.go_back(delivered)
            self._stop(state, error)
        elif end.offset >= 0:
            log.warning("%s: %s; reading goes on at offset %d", key, gone, end.offset)
            state.move(end.offset, epoch=end.epoch)
        else:
            log.warning("%s: %s, %s", key, gone, where)
            state.move(None, RESETS[self.config.auto_offset_reset])

    # --- what is answered -------------------------------------------------------------------------------------

    async def _fetch(self, leader: int, asked: Asking, may_wait: bool) -> None:
        """One request and its answer."""
        try:
            connection = await self.cluster.connection(leader, DATA)
            timeout = (self.config.fetch_max_wait_ms + self.config.request_timeout_ms) / 1000
            version = connection.version_for(FetchRequest, NEWEST_FETCH)
            answer = await connection.request(fetch_request(self.config, asked, may_wait), version, timeout=timeout)
            self._take_all(answer, asked, leader)
        except (OSError, KafkaError) as error:
            log.info("a fetch from broker %d failed: %s", leader, error)
            self.background.lost |= asked.keys()
            for one in asked.values():
                one.state.replica = -1
        finally:
            self._busy.discard(leader)
            answered(asked)
        self.background.plan()  # what is asked next is on its way before what has come is decoded
        self.background.arrived.set()
        self.background.wake()

    def _take_all(self, answer: FetchResponse, asked: Asking, leader: int) -> None:
        """Keep each partition's records; what cannot be kept of one is its own problem."""
        size = sum(len(item.records or b"") for topic in answer.responses for item in topic.partitions)
        self.fetches += 1
        self.fetched_bytes += size
        whole = Answer(size)
        for topic in answer.responses:
            for item in topic.partitions:
                one = asked.get(TopicPartition(topic.topic, item.partition_index))
                if one is None or not one.still_holds:
                    continue
                try:
                    if self._take(one, item, leader, whole):
                        self.background.lost.add(one.state.key)
                except Exception as error:
                    log.exception("%s: an answer of broker %d was not understood", one.state.key, leader)
                    self._stop(one.state, error)

    def _take(self, asked: Asked, item: FetchResponse.PartitionData, leader: int, answer: Answer) -> bool:
        """Keep one partition's records; True when its leader must be looked up again."""
        state, code = asked.state, item.error_code
        is_follower = (state.replica, state.replica_epoch) == (leader, asked.leader_epoch)
        follower_in = asked.leader_epoch if is_follower else None
        if item.preferred_read_replica >= 0:
            until = self._loop.time() + self.config.metadata_max_age_ms / 1000
            state.prefer(item.preferred_read_replica, asked.leader_epoch, until)
        elif code is not ErrorCode.NONE and is_follower:
            if code is ErrorCode.CORRUPT_MESSAGE:
                state.distrust(follower_in)
            state.replica = -1  # the follower may be behind, or none any more: ask the leader before believing it
            return code.refreshes_metadata
        if code is not ErrorCode.NONE:
            return self._refused(state, item, leader)
        read_committed = self.config.read_committed
        state.end_offset = item.last_stable_offset if read_committed else item.high_watermark
        size = len(item.records or b"")
        was_left_out = not size and answer.size > 0 and state.fetch_offset < state.end_offset
        is_little = size < max(1, self.config.fetch_min_bytes) and not was_left_out
        state.rests_until = self._loop.time() + self.config.fetch_max_wait_ms / 1000 if is_little else 0.0
        if not size:
            return False
        aborted = None
        if read_committed:
            pairs = ((one.producer_id, one.first_offset) for one in item.aborted_transactions or ())
            aborted = AbortedTransactions(pairs)
        state.add(Chunk(item.records, aborted, answer, follower_in), item.high_watermark)
        return False

    def _refused(self, state: PartitionState, item: FetchResponse.PartitionData, leader: int) -> bool:
        """Deal with an error; True when the leader must be looked up again."""
        code, key = item.error_code, state.key
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._reset(state)
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

    def _reset(self, state: PartitionState) -> None:
        """The wanted offset does not exist (any more): deliver what is there, then do as auto_offset_reset says."""
        if state.chunks:
            state.out_of_range()
            return
        if self.config.auto_offset_reset != "none":
            state.move(None, RESETS[self.config.auto_offset_reset])
            return
        topic, partition = state.key
        text = f"offset {state.fetch_offset} does not exist, and auto_offset_reset is none"
        self._stop(state, error_for(ErrorCode.OFFSET_OUT_OF_RANGE, text, topic=topic, partition=partition))

    def _stop(self, state: PartitionState, problem: Exception) -> None:
        """Fetch no more of a partition until polling has said why, or a seek leads elsewhere."""
        state.stop(problem)
        self.background.arrived.set()

    async def close(self) -> None:
        """Stop all tasks."""
        await self.background.close()
        self.assignment.drop(self.assignment.states)


def fetch_request(config: ConsumerConfig, wanted: Mapping[TopicPartition, Asked], may_wait: bool) -> FetchRequest:
    """Return a request without a session; `may_wait`: until there is enough to read."""
    topics: dict[str, list[FetchRequest.FetchPartition]] = {}
    rack = config.client_rack
    for key, asked in wanted.items():
        if asked.leader_epoch == asked.state.distrusted_in:
            rack = ""  # or the leader names the same follower again, and gives no records
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
        rack_id=rack,
    )
