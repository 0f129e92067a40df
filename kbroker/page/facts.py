"""What views show of a cluster, asked once for all who look within a few seconds."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from kbroker.client.admin import Admin
from kbroker.client.types import (
    EARLIEST,
    LATEST,
    GroupListing,
    LogDirDescription,
    ReplicaSize,
    TopicDescription,
    TopicPartition,
)
from kbroker.page.replica_map import Moves, Placement, placements_of
from kbroker.protocol.errors import ErrorCode, KafkaError

S = TypeVar("S")
T = TypeVar("T")
SHORT_S = 2.0
LONG_S = 10.0
MEANWHILE_S = 20.0
BROKER_LIMIT_S = 5.0
"""How long one broker may take for its part of an answer."""
AT_ONCE = 16


class Remembered(Generic[T]):
    """An answer, or a failure, that is kept for a while; who asks meanwhile waits for the same one."""

    def __init__(self, ask: Callable[[], Awaitable[T]], seconds: float, meanwhile_s: float = 0.0) -> None:
        """`meanwhile_s`: so much longer an answer is shown while a newer one is on its way."""
        self._ask = ask
        self._seconds = seconds
        self._meanwhile_s = meanwhile_s
        self._asked: asyncio.Future[T] | None = None
        self._newer: asyncio.Future[T] | None = None
        """What is on its way while `_asked` is still shown."""
        self._answered_at = 0.0

    async def get(self) -> T:
        """Return the answer; who no longer waits for it does not end the question."""
        if self._asked is None or self._is_old(self._asked):
            will_do = self._asked is not None and self._will_do(self._asked)
            if self._newer is None:
                self._newer = asyncio.ensure_future(self._ask())
                self._newer.add_done_callback(self._note)
            if not will_do:
                self._asked, self._newer = self._newer, None
        assert self._asked is not None
        return await asyncio.shield(self._asked)

    async def fresh(self) -> T:
        """Return the answer while it is kept, else ask for oneself alone: who comes then is told nothing older."""
        if self._asked is not None and self._asked.done() and not self._is_old(self._asked):
            return self._asked.result()
        return await self._ask()

    def forget(self) -> None:
        """Ask anew the next time: something was changed."""
        self._asked = self._newer = None

    def _will_do(self, asked: asyncio.Future[T]) -> bool:
        is_answer = not asked.cancelled() and asked.exception() is None
        return is_answer and time.monotonic() < self._answered_at + self._seconds + self._meanwhile_s

    def _is_old(self, asked: asyncio.Future[T]) -> bool:
        if not asked.done():
            return False
        is_failure = asked.cancelled() or asked.exception() is not None
        seconds = min(self._seconds, SHORT_S) if is_failure else self._seconds
        return asked.cancelled() or time.monotonic() >= self._answered_at + seconds

    def _note(self, asked: asyncio.Future[T]) -> None:
        if asked is self._newer:
            self._asked, self._newer = asked, None
        if asked is self._asked:
            self._answered_at = time.monotonic()
        if not asked.cancelled():
            asked.exception()  # it was seen, also where nobody waits any more


class Elsewhere(Protocol):
    """Who has facts of his own, on a loop of his own."""

    async def ask(self, question: Callable[[Facts], Coroutine[Any, Any, T]]) -> T:
        """Ask these."""


@dataclass(frozen=True, slots=True)
class Told(Generic[T]):
    """An answer, or in a line why there is none."""

    value: T | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Disks:
    """The log directories of the brokers that answered, and why others did not."""

    directories: tuple[LogDirDescription, ...]
    problems: Mapping[int, str]
    at: float = 0.0
    """When they were asked, by time.monotonic."""
    answered: frozenset[int] = field(init=False, repr=False)
    """The brokers that have told."""
    by_topic: Mapping[str, list[tuple[int, ReplicaSize]]] = field(init=False, repr=False)
    """Topic -> (broker, copy): views look for one topic among very many."""

    def __post_init__(self) -> None:
        by_topic: dict[str, list[tuple[int, ReplicaSize]]] = defaultdict(list)
        for directory in self.directories:
            for replica in directory.replicas:
                by_topic[replica.topic].append((directory.broker_id, replica))
        object.__setattr__(self, "answered", frozenset(directory.broker_id for directory in self.directories))
        object.__setattr__(self, "by_topic", dict(by_topic))

    def sizes(self) -> dict[tuple[str, int, int | None], int]:
        """Return (topic, partition, broker) -> bytes of each copy."""
        return {
            (replica.topic, replica.partition, directory.broker_id): replica.size
            for directory in self.directories
            for replica in directory.replicas
            if not replica.is_future
        }

    def bytes_of_topic(self, topic: str) -> int | None:
        """Return how much a topic takes, with all its copies; None where nobody tells of it."""
        copies = self.by_topic.get(topic)
        return None if copies is None else sum(replica.size for _, replica in copies)

    def knows_all_of(self, topic: TopicDescription) -> bool:
        """Whether all brokers with a copy of it have answered."""
        return all(self.answered.issuperset(partition.replicas) for partition in topic.partitions)

    def replicas_of(self, topic: str) -> dict[tuple[int, int], tuple[int, int]]:
        """Return (partition, broker) -> (bytes, records behind its leader)."""
        return {
            (replica.partition, broker): (replica.size, replica.offset_lag)
            for broker, replica in self.by_topic.get(topic, ())
            if not replica.is_future
        }


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of the brokers that answered, and why others did not."""

    groups: Mapping[str, GroupListing]
    problems: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Health:
    """How many partitions are as they should be."""

    partitions: int
    under_replicated: int
    offline: int

    @property
    def is_well(self) -> bool:
        """Whether all are."""
        return not self.under_replicated and not self.offline


async def _limited(ask: Callable[[S], Awaitable[T]], what: S) -> T:
    """Ask, and wait so long; a task that is cancelled before it begins has not asked."""
    return await asyncio.wait_for(ask(what), BROKER_LIMIT_S)


class Facts:
    """Asks a cluster; what is asked of all of it has someone else do where `beside` says whom."""

    def __init__(self, admin: Admin, beside: Elsewhere | None = None) -> None:
        self.admin = admin
        self._asker = asker = beside or self
        self.cluster = Remembered(admin.describe_cluster, SHORT_S)
        self.topics = Remembered(lambda: asker.ask(Facts._topics), SHORT_S)
        self.disks = Remembered(lambda: asker.ask(Facts._disks), LONG_S, MEANWHILE_S)
        self.versions = Remembered(self._versions, LONG_S, MEANWHILE_S)
        self.moves = Remembered(admin.list_reassignments, SHORT_S)
        self.groups = Remembered(lambda: asker.ask(Facts._groups), SHORT_S)

    async def ask(self, question: Callable[[Facts], Coroutine[Any, Any, T]]) -> T:
        """Ask here."""
        return await question(self)

    async def _topics(self) -> dict[str, TopicDescription]:
        return await self.admin.describe_topics()

    async def topic(self, name: str) -> TopicDescription:
        """Describe a topic; raises UnknownTopicOrPartitionError."""
        return (await self.admin.describe_topics([name]))[name]

    def forget_topics(self) -> None:
        """Ask anew for what a topic that was made, changed or deleted has changed."""
        for remembered in (self.topics, self.disks, self.moves):
            remembered.forget()

    async def _disks(self) -> Disks:
        at = time.monotonic()
        answers, problems = await self._of_each_broker(lambda broker: self.admin.describe_log_dirs([broker]))
        directories = tuple(directory for answer in answers for directory in answer)
        return await asyncio.to_thread(Disks, directories, problems, at)

    async def _groups(self) -> Groups:
        answers, problems = await self._of_each_broker(lambda broker: self.admin.list_groups(brokers=[broker]))
        return Groups({name: group for answer in answers for name, group in answer.items()}, problems)

    async def _versions(self) -> dict[int, str]:
        answers, _ = await self._of_each_broker(self._version)
        return dict(answers)

    async def _version(self, broker: int) -> tuple[int, str]:
        return broker, await self.admin.describe_software(broker)

    async def _of_each_broker(self, ask: Callable[[int], Awaitable[T]]) -> tuple[list[T], dict[int, str]]:
        """Ask all brokers; one that does not answer costs only its own part."""
        brokers = [broker.id for broker in (await self.cluster.get()).brokers]
        told_by = await asyncio.gather(*(_limited(ask, broker) for broker in brokers), return_exceptions=True)
        answers: list[T] = []
        problems: dict[int, str] = {}
        for broker, answer in zip(brokers, told_by, strict=True):
            if isinstance(answer, OSError | KafkaError):
                problems[broker] = reason(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                answers.append(answer)
        return answers, problems

    async def offsets(
        self, partitions: Iterable[TopicPartition], topics: Mapping[str, TopicDescription]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end of partitions; without those whose leader does not answer.

        Who describes all topics is asked: he alone hears of it when another broker leads a partition.
        """
        keys = list(partitions)
        return await self._asker.ask(lambda facts: facts._of_leaders(keys, topics, facts._offsets))

    async def offsets_in(self, topic: TopicDescription) -> dict[TopicPartition, tuple[int, int]]:
        """Return those of a topic that `topic` has just described."""
        return await self._of_leaders(led(topic), {topic.name: topic}, self._offsets)

    async def ends(self, topics: Mapping[str, TopicDescription]) -> dict[TopicPartition, int]:
        """Return where the partitions of topics end; without those whose leader does not answer."""
        return await self._of_leaders([key for topic in topics.values() for key in led(topic)], topics, self._ends)

    async def _of_leaders(
        self,
        partitions: Iterable[TopicPartition],
        described: Mapping[str, TopicDescription],
        ask: Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, T]]],
    ) -> dict[TopicPartition, T]:
        keys = list(partitions)
        topics = [described[name] for name in {key.topic for key in keys} if name in described]
        leaders = {
            TopicPartition(topic.name, each.partition): each.leader for topic in topics for each in topic.partitions
        }
        per_leader: dict[int | None, list[TopicPartition]] = defaultdict(list)
        for key in keys:
            per_leader[leaders.get(key)].append(key)
        asked = (_limited(ask, some) for some in per_leader.values())
        found: dict[TopicPartition, T] = {}
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, dict):
                found |= answer
            elif not isinstance(answer, OSError | KafkaError):
                raise answer
        return found

    async def _ends(self, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
        last = await self.admin.list_offsets(dict.fromkeys(keys, LATEST))
        return {key: last[key].offset for key in keys}

    async def _offsets(self, keys: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        first, last = await asyncio.gather(self.admin.list_offsets(dict.fromkeys(keys, EARLIEST)), self._ends(keys))
        return {key: (first[key].offset, last[key]) for key in keys}


def whole_sum(numbers: Iterable[int | None]) -> int | None:
    """Add numbers up; None where one is not known, as a part of a sum is not the sum."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def health_of(topic: TopicDescription, moves: Moves) -> Health:
    """Count a topic's partitions by how they are."""
    return health_in(placements_of((topic,), moves).items())


def health_in(placements: Iterable[tuple[Placement, int]]) -> Health:
    """Count partitions by how they are: of each placement, how many.

    A replica that is just being added is not missed.
    """
    total = under_replicated = offline = 0
    for (leader, replicas, isr, adding), count in placements:
        total += count
        if leader is None:
            offline += count
        elif len(isr) < len(replicas) and set(replicas).difference(isr, adding):
            under_replicated += count
    return Health(total, under_replicated, offline)


def led(topic: TopicDescription) -> list[TopicPartition]:
    """Return a topic's partitions that have a leader."""
    return [TopicPartition(topic.name, each.partition) for each in topic.partitions if each.leader is not None]


async def told(asked: Awaitable[T]) -> Told[T]:
    """Wait for an answer; a refusal becomes a line of text."""
    try:
        return Told(await asyncio.wait_for(asked, 2 * BROKER_LIMIT_S))
    except (KafkaError, OSError) as error:
        return Told(None, reason(error))


def reason(error: BaseException) -> str:
    """Say in a line what went wrong."""
    if isinstance(error, KafkaError):
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return error.message or "this cluster has no such thing"
        return f"{error.code.name}: {error.message}" if error.message else str(error.code.name)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
