"""Where partitions begin: at their group's commit, the beginning, the end, a time. And partitions that come later.

One request at a time for each partition; whoever seeks meanwhile has the answer dropped. What a leader refuses for a
while is asked again, what it refuses for good is raised by poll.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from kbroker.client.assignment import Assignment
from kbroker.client.background import Background
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import Cluster
from kbroker.client.errors import error_for
from kbroker.client.offset_lookup import ask_leader
from kbroker.client.partition_state import COMMITTED, NOWHERE, RESETS, PartitionState
from kbroker.client.types import EARLIEST, LATEST, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.primitives import ZERO_UUID

Committed = Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]


class Asked(NamedTuple):
    """What is asked about one partition; the answer counts as long as the state has not moved."""

    state: PartitionState
    generation: int
    offset: int
    leader_epoch: int

    @property
    def still_holds(self) -> bool:
        """Whether the partition is still read from there."""
        return self.state.generation == self.generation


Asking = dict[TopicPartition, Asked]


def ask_about(states: Iterable[PartitionState]) -> Asking:
    """Note what is asked, and that it is."""
    asked = {}
    for state in list(states):
        state.fetching(True)
        asked[state.key] = Asked(state, state.generation, state.fetch_offset, state.leader_epoch)
    return asked


def answered(asked: Asking) -> None:
    """Note that nothing is being asked any more."""
    for one in asked.values():
        if one.still_holds:
            one.state.fetching(False)


class Places:
    """Lives on the loop of its consumer."""

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, assignment: Assignment, background: Background
    ) -> None:
        self.topics: tuple[str, ...] = ()
        """Those subscribed to without a group: partitions that they get later are read too."""
        self.pattern: re.Pattern[str] | None = None
        """What made these topics match: others that do are read too."""
        self.committed: Committed | None = None
        """Asks for a group's committed offsets."""
        self._config = config
        self._cluster = cluster
        self._assignment = assignment
        self._background = background
        self._former_ids: set[bytes] = set()
        """Of topics that were made again: a broker that is cut off from the others may tell of one yet."""
        self._answered = asyncio.Event()
        cluster.refreshed.append(self._see_metadata)

    # --- partitions that come later ---------------------------------------------------------------------------

    def follow(self, topics: Iterable[str] = (), pattern: re.Pattern[str] | None = None) -> None:
        """Read what these topics get later, and topics that match; without arguments nothing more."""
        self.topics, self.pattern = tuple(topics), pattern
        self._background.wants_all_topics = pattern is not None
        self._see_metadata()

    def _see_metadata(self) -> None:
        """See to topics that were made again, and read what followed topics have got from its beginning."""
        known_topics = self._cluster.metadata.topics
        if self.pattern is not None:
            self.topics = tuple(
                name for name, topic in known_topics.items() if not topic.is_internal and self.pattern.match(name)
            )
        states = self._assignment.states
        for state in states.values():
            self._begin_anew_if_made_again(state)
        for name in self.topics:
            known = known_topics.get(name)
            if known is None:
                continue
            for index in known.partitions:
                key = TopicPartition(name, index)
                if key not in states:
                    self._assignment.begin(key, EARLIEST)
        self._background.wake()

    def _begin_anew_if_made_again(self, state: PartitionState) -> None:
        """An offset says nothing of another topic, though it has the same name: begin as where a partition is new.

        Else its log would be taken for a truncated one, and what lies before its present end be passed over. Who has
        assigned partitions by hand, and has no group, minds their offsets alone.
        """
        topic_id = self._topic_id(state)
        if topic_id == ZERO_UUID or topic_id in self._former_ids:
            return
        if state.topic_id not in (ZERO_UUID, topic_id):
            self._former_ids.add(state.topic_id)
            if state.key.topic in self.topics:
                self._assignment.move(state, None, EARLIEST)
            elif self.committed is not None:
                self._assignment.move(state, None, self._place_anew())
        state.topic_id = topic_id

    def _place_anew(self) -> int:
        """Return where a group begins with a topic made again, without passing anything over.

        An automatic commit of the former topic's position may have come when the present one was there already.
        """
        is_from_beginning = RESETS[self._config.auto_offset_reset] == EARLIEST
        return EARLIEST if is_from_beginning and self._config.enable_auto_commit else COMMITTED

    def _topic_id(self, state: PartitionState) -> bytes:
        known = self._cluster.metadata.topics.get(state.key.topic)
        return ZERO_UUID if known is None else known.topic_id

    # --- looking places up ------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Ask for what is not known, each leader at once."""
        lost = self._background.lost
        of_group: list[PartitionState] = []
        per_leader: dict[int, list[PartitionState]] = defaultdict(list)
        for state in self._assignment.unplaced:
            if state.is_fetching or state.problem is not None or state.reset_to is None or state.key in lost:
                continue
            if state.reset_to == NOWHERE:
                self._background.arrived.set()  # polling says so, unless a seek comes first
            elif state.reset_to == COMMITTED:
                state.topic_id = self._topic_id(state)
                of_group.append(state)
            elif (known := self._cluster.metadata.leader(*state.key)) is not None:
                state.topic_id = self._topic_id(state)
                per_leader[known.leader].append(state)
            else:
                lost.add(state.key)
        if of_group and self.committed is not None:
            self._background.spawn(self._ask_group(self.committed, ask_about(of_group)))
        for leader, states in per_leader.items():
            self._background.spawn(self._ask_leader(leader, ask_about(states)))

    async def _ask_group(self, committed: Committed, asked: Asking) -> None:
        """Move partitions to where their group was, or to where auto_offset_reset says."""
        try:
            for key, found in (await committed(asked)).items():
                if not asked[key].still_holds:
                    continue
                if found is not None:
                    asked[key].state.move(found.offset, epoch=found.leader_epoch)
                else:
                    asked[key].state.move(None, RESETS[self._config.auto_offset_reset])
        except OSError:
            self._background.later()
        except KafkaError as error:
            if not error.code.retriable:
                self._background.fail(error)
            self._background.later()
        else:
            self._background.wake()
        finally:
            self._done(asked)

    async def _ask_leader(self, leader: int, asked: Asking) -> None:
        wanted = {key: one.state.reset_to for key, one in asked.items() if one.state.reset_to is not None}
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        try:
            refused = await ask_leader(self._cluster, leader, wanted, self._config.read_committed, found)
        except (OSError, KafkaError) as error:
            refused = {}
            self._background.lost |= wanted.keys()
            if isinstance(error, KafkaError) and not error.code.retriable:
                self._background.fail(error)
        finally:
            self._done(asked)
        for key, item in found.items():
            if asked[key].still_holds:
                if item.offset >= 0:
                    asked[key].state.move(item.offset, epoch=item.leader_epoch)
                else:
                    asked[key].state.move(None, LATEST)  # nothing is so young
        for key in wanted.keys() - found.keys():
            if key not in refused or refused[key].retriable:
                self._background.lost.add(key)
            elif asked[key].still_holds:
                asked[key].state.stop(refused[key])
                self._background.arrived.set()
        self._answered.set()
        self._background.wake()

    def _done(self, asked: Asking) -> None:
        answered(asked)
        self._answered.set()

    async def placed(self, states: Iterable[PartitionState]) -> None:
        """Wait until these partitions have a position, or none to be looked up; raises what stands in the way."""
        waiting = list(states)
        try:
            async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                while waiting := [state for state in waiting if _is_sought(state)]:
                    if self._background.problems:
                        raise self._background.problems.popleft()
                    for state in waiting:
                        if state.problem is not None:
                            raise state.take_problem()
                    self._answered.clear()
                    self._background.wake()
                    await self._answered.wait()
        except TimeoutError:
            names = ", ".join(str(state.key) for state in waiting[:3])
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, f"no offsets found of {names}") from None

    def refuse_nowhere(self) -> None:
        """Raise for a partition that has no position to begin from, once."""
        for state in self._assignment.unplaced:
            if state.reset_to == NOWHERE:
                state.reset_to = None
                topic, partition = state.key
                text = "there is no position to begin from, and auto_offset_reset is none"
                raise error_for(ErrorCode.OFFSET_OUT_OF_RANGE, text, topic=topic, partition=partition)


def _is_sought(state: PartitionState) -> bool:
    return state.offset < 0 and state.reset_to not in (None, NOWHERE) and state.is_read
