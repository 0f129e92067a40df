"""What the controller last told this broker about the cluster: brokers, topics, leaders.

Filled by UpdateMetadata requests only, never by reading ZooKeeper: Metadata answers and leader checks must agree with
what the controller decided. One event loop owns it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.replication import LEADER_BEING_DELETED, UpdateMetadataRequest
from kbroker.protocol.primitives import ZERO_UUID

NO_LEADER = -1
LOOKED_AT_AT_ONCE = 500

Item = TypeVar("Item")
Made = TypeVar("Made")
PartitionState = UpdateMetadataRequest.UpdateMetadataPartitionState


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker and where each of its listeners is reached."""

    id: int
    rack: str | None
    endpoints: dict[str, tuple[str, int]]
    """Listener name to advertised (host, port)."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Leader and replicas of one partition as the controller decided them."""

    partition: int
    leader: int
    """A broker id, or -1 while no replica can lead."""
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    partition_epoch: int


@dataclass(slots=True)
class TopicInfo:
    """A topic's id and its partitions by number."""

    name: str
    topic_id: bytes
    """16 bytes; `ZERO_UUID` for topics made before topic ids."""
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)
    change: int = 0
    """Another number, never seen before, after each change."""


@dataclass(slots=True, eq=False)
class _Waiter:
    predicate: Callable[[MetadataCache], bool]
    future: asyncio.Future[bool]


class MetadataCache:
    """The cluster as this broker knows it; `update` is the only way in."""

    def __init__(self) -> None:
        self.controller_id: int | None = None
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.on_brokers_changed: Callable[[], None] = lambda: None
        """Called when a broker has come or gone, or has come back."""
        self.updates = 0
        """Grows with every update: a cheap way to see whether anything may have changed."""
        self.introduced = asyncio.Event()
        """Not set while a starting broker waits for its first word on the topics: "unknown topic" would be wrong."""
        self.introduced.set()
        self.is_over = False
        """Whether the broker stops."""
        self.broker_changes = 0
        """Grows whenever a broker comes, goes or moves."""
        self.descriptions: dict[tuple[int, str, bool], Any] = {}
        """What handlers keep of the topics between two requests."""
        self.under_way: set[str] = set()
        """Topics that are being made because somebody has asked about them: once, however many ask."""
        self.topics_refused = 0
        """Topics that were not made because ZooKeeper's list of all would be too long to be read."""
        self._changes = 0
        self._names: tuple[int, frozenset[str]] = (0, frozenset())
        """Those of the topics, as of an update."""
        self._topics_by_id: dict[bytes, TopicInfo] = {}
        self._waiters: list[_Waiter] = []

    @property
    def names(self) -> frozenset[str]:
        """The names of the topics: the same object as long as none comes or goes."""
        updates, names = self._names
        if updates != self.updates:
            if names != self.topics.keys():
                names = frozenset(self.topics)
            self._names = (self.updates, names)
        return names

    def topic_by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Return the topic that has this id, if it is known."""
        return self._topics_by_id.get(topic_id)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic that has this id, if it is known."""
        info = self._topics_by_id.get(topic_id)
        return None if info is None else info.name

    def knows(self, topic: str, partition: int) -> bool:
        """Whether there is such a partition in the cluster."""
        info = self.topics.get(topic)
        return info is not None and partition in info.partitions

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        """Return what is known about one partition."""
        info = self.topics.get(topic)
        return None if info is None else info.partitions.get(partition)

    def is_alive(self, broker_id: int) -> bool:
        """Whether the controller counts this broker as live."""
        return broker_id in self.brokers

    def endpoint(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Return host and port of a live broker's listener."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def endpoints_of(self, brokers: Iterable[int], listener: str, made: Callable[..., Made]) -> list[Made]:
        """What is `made` of where brokers are reached: of Produce and of Fetch, which have a struct each (KIP-951)."""
        found = ((each, self.endpoint(each, listener)) for each in sorted(brokers))
        return [
            made(node_id=each, host=place[0], port=place[1], rack=self.brokers[each].rack)
            for each, place in found
            if place
        ]

    def update(self, request: UpdateMetadataRequest, is_last: bool = True) -> list[tuple[str, int]]:
        """Take over the live brokers, merge the partitions, wake waiters; returns the partitions removed.

        The caller has checked broker epoch and controller epoch. Of an update in portions only the last one wakes.
        """
        self.controller_id = None if request.controller_id < 0 else request.controller_id
        former, self.brokers = self.brokers, {broker.id: _broker_info(broker) for broker in request.live_brokers}
        removed: list[tuple[str, int]] = []
        for name, topic_id, states in _topics_in(request):
            topic = self.topics.get(name)
            if topic is None:
                topic = self.topics[name] = TopicInfo(name, ZERO_UUID)
            removed += self._set_topic_id(topic, topic_id)
            self._changes += 1
            topic.change = self._changes
            removed += self._merge(topic, states)
        self.updates += 1
        self.broker_changes += former != self.brokers
        if is_last:
            self._wake()
        if former != self.brokers:
            self.on_brokers_changed()
        return removed

    def _set_topic_id(self, topic: TopicInfo, topic_id: bytes) -> list[tuple[str, int]]:
        """Take over the id; the partitions of another topic of that name, whose deletion nobody told, are removed."""
        if topic.topic_id == topic_id:
            return []
        removed = []
        if ZERO_UUID not in (topic.topic_id, topic_id):
            removed = [(topic.name, partition) for partition in topic.partitions]
            topic.partitions.clear()
        self._topics_by_id.pop(topic.topic_id, None)
        topic.topic_id = topic_id
        if topic_id != ZERO_UUID:
            self._topics_by_id[topic_id] = topic
        return removed

    def _merge(self, topic: TopicInfo, states: Sequence[PartitionState]) -> list[tuple[str, int]]:
        removed = []
        for state in states:
            if state.leader == LEADER_BEING_DELETED:
                if topic.partitions.pop(state.partition_index, None) is not None:
                    removed.append((topic.name, state.partition_index))
            else:
                topic.partitions[state.partition_index] = _partition_info(state)
        if not topic.partitions:
            del self.topics[topic.name]
            self._topics_by_id.pop(topic.topic_id, None)
        return removed

    def forget(self, names: Iterable[str]) -> list[tuple[str, int]]:
        """Take topics out that went unnoticed; returns the partitions removed."""
        removed = []
        for name in names:
            topic = self.topics.pop(name, None)
            if topic is not None:
                self._topics_by_id.pop(topic.topic_id, None)
                removed += [(name, partition) for partition in topic.partitions]
        if removed:
            self.updates += 1
            self._wake()
        return removed

    async def wait_for(self, predicate: Callable[[MetadataCache], bool], timeout: float) -> bool:
        """Wait until the predicate holds (tested now and after each update).

        False after `timeout` seconds, and once the broker stops.
        """
        if predicate(self):
            return True
        if timeout <= 0 or self.is_over:
            return False
        with self._waiting(lambda cache: cache.is_over or predicate(cache)) as holds:
            try:
                async with asyncio.timeout(timeout):
                    return await holds and not self.is_over
            except TimeoutError:
                return False

    async def wait_for_all(self, wanted: Iterable[Item], is_so: Callable[[Item], bool], timeout: float) -> list[Item]:
        """Wait until something has become so of each of these; return those of which it has not in time.

        At each update only the first that keeps the rest waiting is looked at: they may be thousands, and so may those
        who wait.
        """
        left = list(wanted)

        def nothing_is_left(_: MetadataCache) -> bool:
            while left and is_so(left[-1]):
                left.pop()
            return not left

        if await self.wait_for(nothing_is_left, timeout):
            return []
        late = []
        for number, each in enumerate(left):
            if not is_so(each):
                late.append(each)
            if number % LOOKED_AT_AT_ONCE == 0:
                await asyncio.sleep(0)
        return late

    def end(self) -> None:
        """The broker stops: whoever waits for an update hears at once that it has not come."""
        self.is_over = True
        self._wake()

    @contextmanager
    def _waiting(self, predicate: Callable[[MetadataCache], bool]) -> Iterator[asyncio.Future[bool]]:
        """Give what is done with the first update after which the predicate holds."""
        waiter = _Waiter(predicate, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            yield waiter.future
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    @asynccontextmanager
    async def while_reached(self, broker_id: int, listener: str) -> AsyncIterator[None]:
        """What a broker is asked in here is given up once it has left the cluster, or is reached elsewhere.

        One that hangs may never answer. Raises KafkaError BROKER_NOT_AVAILABLE.
        """
        address = self.endpoint(broker_id, listener)
        left = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} has left the cluster, or is elsewhere")
        if address is None:
            raise left
        limit, is_over = asyncio.timeout(None), False

        def gone(done: asyncio.Future[bool]) -> None:
            if not is_over:
                limit.reschedule(asyncio.get_running_loop().time())

        with self._waiting(lambda cache: cache.endpoint(broker_id, listener) != address) as moved:
            moved.add_done_callback(gone)
            try:
                async with limit:
                    yield
            except TimeoutError:
                if limit.expired():
                    raise left from None
                raise
            finally:
                is_over = True

    async def hear_of_topics(self, timeout: float) -> None:
        """Until the controller has told of topics, or for `timeout` seconds, nobody hears that there are none."""
        await self.wait_for(lambda cache: bool(cache.topics), timeout)
        self.introduced.set()

    def _wake(self) -> None:
        still_waiting = []
        for waiter in self._waiters:
            if waiter.future.done():
                continue
            try:
                satisfied = waiter.predicate(self)
            except Exception as error:
                waiter.future.set_exception(error)
                continue
            if satisfied:
                waiter.future.set_result(True)
            else:
                still_waiting.append(waiter)
        self._waiters = still_waiting


def _topics_in(request: UpdateMetadataRequest) -> Iterator[tuple[str, bytes, Sequence[PartitionState]]]:
    """Yield (name, topic id, partitions); versions below 5 list the partitions without grouping them."""
    for topic in request.topic_states:
        yield topic.topic_name, bytes(topic.topic_id), topic.partition_states
    for state in request.ungrouped_partition_states:
        yield state.topic_name, ZERO_UUID, [state]


def in_portions(request: UpdateMetadataRequest, size: int) -> Iterator[tuple[UpdateMetadataRequest, bool]]:
    """Cut an update into several, of `size` partitions or a few more, each with whether it is the last one."""
    of_topic = UpdateMetadataRequest.UpdateMetadataTopicState
    states, taken = [], 0
    for topic in request.topic_states:
        for start in range(0, len(topic.partition_states), size):
            portion = topic.partition_states[start : start + size]
            states.append(of_topic(topic_name=topic.topic_name, topic_id=topic.topic_id, partition_states=portion))
            taken += len(portion)
            if taken >= size:
                yield _portion(request, topic_states=states), False
                states, taken = [], 0
    ungrouped = request.ungrouped_partition_states
    for start in range(0, len(ungrouped), size):
        yield _portion(request, ungrouped_partition_states=ungrouped[start : start + size]), False
    yield _portion(request, topic_states=states), True


def _portion(request: UpdateMetadataRequest, **states: Any) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=request.controller_id,
        is_kraft_controller=request.is_kraft_controller,
        type=request.type,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        live_brokers=request.live_brokers,
        **states,
    )


def _broker_info(broker: UpdateMetadataRequest.UpdateMetadataBroker) -> BrokerInfo:
    endpoints = {endpoint.listener: (endpoint.host, endpoint.port) for endpoint in broker.endpoints}
    return BrokerInfo(broker.id, broker.rack, endpoints)


def _partition_info(state: PartitionState) -> PartitionInfo:
    return PartitionInfo(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        tuple(state.offline_replicas),
        state.zk_version,
    )
