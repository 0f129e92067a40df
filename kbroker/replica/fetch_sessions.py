"""Fetch sessions (KIP-227): the broker remembers what a client fetches, both sides then speak of changes only. Pure.

    request (session id, epoch)     meaning
    (any, 0)                        close that session; full answer, and a new session if there is room
    (any, -1)                       close that session; full answer, no session
    (id, 1, 2, 3, …)                incremental: new and changed partitions, forgotten ones; only changes are answered

One loop owns the sessions. A client that loses an answer starts again with epoch 0: what was sent needs no receipt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.protocol.primitives import ZERO_UUID

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = (1 << 31) - 1
EVICTION_MS = 120_000
"""A session unused for so long may be evicted by any other; one that is older may be evicted by a more valuable one."""
MOST_UNKNOWN = 100
"""So many partitions that do not exist may be part of a session: a topic may be on its way. Nobody needs more, and what
exists is bounded by the cluster."""
MOST_OF_CONSUMERS = 300_000
"""Partitions in the sessions of all consumers together. What one has left behind is kept for a while, and each of its
partitions takes 250 bytes, and time whenever garbage is looked for."""
MOST_OF_A_FOLLOWER = 300_000
"""Partitions in the sessions of one broker, and"""
MOST_SESSIONS_OF_A_FOLLOWER = 64
"""how many these are: its fetchers have one each, and one that starts again leaves some behind. More than that is none
of a broker, whatever it says that it is."""
FIRST_TOPIC_ID_VERSION = 13
NEVER_SEEN = -1

PartitionKey = tuple[str | bytes, int]
"""(topic name or topic id, partition): by what the request names the topic."""


Wanted = dict[PartitionKey, "FetchTarget"]
"""What a request names; a partition that is named twice is fetched once, as the last entry says."""


class KnownTopics(Protocol):
    """What exists."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic."""

    def knows(self, topic: str, partition: int) -> bool:
        """Whether there is such a partition."""


class FetchTarget:
    """One partition that a client fetches: where it is, and what it was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "hosted",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "read_changes",
        "read_end_offset",
        "seen_changes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str | None, topic_id: bytes, wanted: FetchRequest.FetchPartition) -> None:
        self.topic = topic
        """None while the topic id is not known here."""
        self.topic_id = topic_id
        self.partition: int = wanted.partition
        self.hosted: Any = None
        """The reader's own note: which hosted partition this is."""
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.update(wanted)

    def update(self, wanted: FetchRequest.FetchPartition) -> None:
        """Take over what the client asks for now."""
        self.fetch_offset: int = wanted.fetch_offset
        self.max_bytes: int = wanted.partition_max_bytes
        self.current_leader_epoch: int = wanted.current_leader_epoch
        self.last_fetched_epoch: int = wanted.last_fetched_epoch
        self.log_start_offset: int = wanted.log_start_offset
        self.seen_changes = NEVER_SEEN
        """The hosted partition's change counter when there was nothing to send; equal to it: still nothing."""
        self.read_changes = NEVER_SEEN
        """The same when the partition was last read, whatever there was, and has become of it."""
        self.read_end_offset = -1
        """The log end offset at that time."""

    def take_place_of(self, former: FetchTarget) -> None:
        """Take over what the client was told of the partition."""
        self.sent_high_watermark = former.sent_high_watermark
        self.sent_log_start_offset = former.sent_log_start_offset

    @property
    def key(self) -> PartitionKey:
        """By what the client names the partition."""
        return (self.topic_id if self.topic_id != ZERO_UUID else self.topic or "", self.partition)

    def keep_for_later(self, answer: FetchResponse.PartitionData) -> None:
        """The answer is not sent now; if it has offsets that are news, the partition is looked at again."""
        if answer.high_watermark != self.sent_high_watermark or answer.log_start_offset != self.sent_log_start_offset:
            self.seen_changes = NEVER_SEEN

    def was_not_told(self) -> None:
        """What was noted as sent was not: all that there is is news."""
        self.sent_high_watermark = self.sent_log_start_offset = self.seen_changes = NEVER_SEEN

    def note_sent(self, answer: FetchResponse.PartitionData) -> bool:
        """Remember what an answer tells the client; False when it tells nothing new and may be left out."""
        news = (
            (answer.records is not None and len(answer.records) > 0)
            or answer.high_watermark != self.sent_high_watermark
            or answer.log_start_offset != self.sent_log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch.epoch >= 0
        )
        self.sent_high_watermark = answer.high_watermark
        self.sent_log_start_offset = answer.log_start_offset
        if answer.error_code != ErrorCode.NONE:
            self.sent_high_watermark = -1  # so that the partition is sent again once the error is gone
            return True
        return news


class FetchSession:
    """The partitions of one client, in the order in which they are served."""

    __slots__ = (
        "created_ms",
        "epoch",
        "follower",
        "id",
        "last_used_ms",
        "noted_ms",
        "rules_version",
        "targets",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, follower: int | None, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.epoch = 1
        """The epoch of the next request."""
        self.follower = follower
        """The broker that fetches; None: a consumer does."""
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.noted_ms = now_ms
        """When the leader last noted that the follower is still there, for idle partitions too."""
        self.rules_version = -1
        """Of the access rules by which its targets were last read."""
        self.targets: dict[PartitionKey, FetchTarget] = {}

    def value(self) -> tuple[bool, int, int]:
        """Order of eviction: consumers before followers, small ones first."""
        return (self.follower is not None, len(self.targets), self.id)


class FetchContext:
    """One request seen through its session: what to read, and what of the result to send."""

    __slots__ = ("incremental", "session", "session_id", "targets")

    def __init__(
        self, targets: Iterable[FetchTarget], session: FetchSession | None = None, incremental: bool = False
    ) -> None:
        self.targets = list(targets)
        self.session = session
        self.incremental = incremental
        """Only changes are sent."""
        self.session_id = NO_SESSION if session is None else session.id

    def select(
        self, answers: list[tuple[FetchTarget, FetchResponse.PartitionData]]
    ) -> list[tuple[FetchTarget, FetchResponse.PartitionData]]:
        """Return what of the answers to send, and remember it. Partitions with records move to the end (fairness)."""
        if self.session is None:
            return answers
        selected = [(target, answer) for target, answer in answers if target.note_sent(answer)]
        if not self.incremental:
            return answers
        targets = self.session.targets
        for target, answer in selected:
            if answer.records and targets.pop(target.key, None) is not None:
                targets[target.key] = target
        return selected


class FetchSessions:
    """All sessions of a broker.

    `next_id` gives a random positive int32 for a new session.
    """

    def __init__(self, slots: int, next_id: Callable[[], int]) -> None:
        self.slots = slots
        self.sessions: dict[int, FetchSession] = {}
        """In order of last use, the least recent first."""
        self._held: Counter[int | None] = Counter()
        """Partitions in the sessions of each follower, and in those of all consumers together (None)."""
        self.evictions = 0
        """Sessions that went as others needed their place."""
        self._next_id = next_id

    @property
    def partition_count(self) -> int:
        """How many partitions all sessions have."""
        return sum(list(self._held.values()))

    def open(
        self,
        request: FetchRequest,
        version: int,
        follower: int | None,
        now_ms: int,
        topics: KnownTopics,
        wanted: Wanted | None = None,
    ) -> FetchContext:
        """Return the context of one request; raises KafkaError 70, 71 or 106.

        `follower`: the live broker that sends it, None for all others.
        `wanted` holds the request's targets where there are so many that they were gathered before, in turns.
        """
        epoch = request.session_epoch
        if epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._incremental(request, version, now_ms, topics, wanted)
        self._close(request.session_id)
        is_alone = epoch == FINAL_EPOCH or version < 7
        if wanted is None:
            targets = list(targets_of(request, version, topics))
            if is_alone and len(targets) == 1:
                return FetchContext(targets)
            wanted = {target.key: target for target in targets}
        if is_alone:
            return FetchContext(wanted.values())
        return self._full(wanted, follower, version >= FIRST_TOPIC_ID_VERSION, now_ms, topics)

    def _full(
        self,
        wanted: dict[PartitionKey, FetchTarget],
        follower: int | None,
        uses_topic_ids: bool,
        now_ms: int,
        topics: KnownTopics,
    ) -> FetchContext:
        if _are_many_unknown(wanted.values(), topics) or not self._make_room(follower, len(wanted), now_ms):
            return FetchContext(wanted.values())
        session_id = self._next_id()
        while session_id in self.sessions or session_id <= 0:
            session_id = self._next_id()
        session = FetchSession(session_id, follower, uses_topic_ids, now_ms)
        session.targets = wanted
        self._keep(session)
        return FetchContext(wanted.values(), session)

    def _incremental(
        self, request: FetchRequest, version: int, now_ms: int, topics: KnownTopics, wanted: Wanted | None
    ) -> FetchContext:
        session = self.sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= FIRST_TOPIC_ID_VERSION):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._close(session.id)
        added = _added(session, wanted) if wanted else _told(session, _wanted(request, version, topics))
        for key in _forgotten(request, version):
            session.targets.pop(key, None)
        if not session.targets:
            return FetchContext(())
        if _is_any_unknown(added, topics) and _are_many_unknown(session.targets.values(), topics):
            return FetchContext(session.targets.values())
        if added and not self._has_room(session.follower, len(session.targets)):
            return FetchContext(session.targets.values())
        self._keep(session)
        session.last_used_ms = now_ms
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        return FetchContext(session.targets.values(), session, incremental=True)

    def withheld(self, context: FetchContext, answer: FetchResponse) -> None:
        """An answer goes out without its partitions: the client does not learn what they hold, nor of a new session."""
        session = context.session
        if session is None:
            return
        if not context.incremental and self.sessions.get(session.id) is session:
            self._close(session.id)
        for topic in answer.responses:
            for partition in topic.partitions:
                key = topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic
                target = session.targets.get((key, partition.partition_index))
                if target is not None:
                    target.was_not_told()

    def _make_room(self, follower: int | None, size: int, now_ms: int) -> bool:
        """Evict at most one session of others; False when there is no room for a new one."""
        if follower is not None:
            self._end_former(follower, size)
        if len(self.sessions) < self.slots and self._has_room(follower, size):
            return True
        if not self.sessions:
            return False
        oldest = next(iter(self.sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS and self._has_room(follower, size, oldest):
            self._evict(oldest.id)
            return True
        evictable = [
            session
            for session in self.sessions.values()
            if now_ms - session.created_ms > EVICTION_MS or (follower is not None and session.follower is None)
        ]
        least = min(evictable, key=FetchSession.value, default=None)
        if (
            least is None
            or least.value()[:2] >= (follower is not None, size)
            or not self._has_room(follower, size, least)
        ):
            return False
        self._evict(least.id)
        return True

    def _end_former(self, follower: int, size: int) -> None:
        """End sessions of a follower, those used least recently, until another one of this size is not too much."""
        its = [session for session in self.sessions.values() if session.follower == follower]
        while its and (len(its) >= MOST_SESSIONS_OF_A_FOLLOWER or not self._has_room(follower, size)):
            self._evict(its.pop(0).id)

    def _has_room(self, follower: int | None, size: int, without: FetchSession | None = None) -> bool:
        """Whether so many partitions more may be kept, when a session goes."""
        if without is not None and without.follower == follower:
            size -= len(without.targets)
        return self._held[follower] + size <= (MOST_OF_CONSUMERS if follower is None else MOST_OF_A_FOLLOWER)

    def _keep(self, session: FetchSession) -> None:
        """Keep it, as the one that was used last."""
        self.sessions[session.id] = session
        self._held[session.follower] += len(session.targets)

    def _evict(self, session_id: int) -> None:
        self.evictions += 1
        self._close(session_id)

    def _close(self, session_id: int) -> None:
        """Forget a session, if it is there: before its partitions become others, or for good."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            self._held[session.follower] -= len(session.targets)


Named = tuple[str | None, bytes, FetchRequest.FetchPartition]
"""A topic's name, None while its id is not known here; its id; what is wanted of a partition."""


def _told(session: FetchSession, wanted: Iterable[Named]) -> list[FetchTarget]:
    """Note in a session what its client wants now; returns what is new in it."""
    added = []
    for topic_name, topic_id, partition in wanted:
        key = (topic_id if topic_id != ZERO_UUID else topic_name or "", partition.partition)
        known = session.targets.get(key)
        if known is None:
            session.targets[key] = target = FetchTarget(topic_name, topic_id, partition)
            added.append(target)
        else:
            known.update(partition)
    return added


def _added(session: FetchSession, wanted: Wanted) -> list[FetchTarget]:
    """Do the same with targets that are made already."""
    added = []
    for key, target in wanted.items():
        known = session.targets.get(key)
        if known is None:
            added.append(target)
        else:
            target.take_place_of(known)
        session.targets[key] = target
    return added


def _unknown(targets: Iterable[FetchTarget], topics: KnownTopics) -> Iterator[FetchTarget]:
    return (target for target in targets if target.topic is None or not topics.knows(target.topic, target.partition))


def _is_any_unknown(targets: Iterable[FetchTarget], topics: KnownTopics) -> bool:
    return next(_unknown(targets, topics), None) is not None


def _are_many_unknown(targets: Iterable[FetchTarget], topics: KnownTopics) -> bool:
    return next(islice(_unknown(targets, topics), MOST_UNKNOWN, None), None) is not None


def _wanted(request: FetchRequest, version: int, topics: KnownTopics) -> Iterator[Named]:
    by_id = version >= FIRST_TOPIC_ID_VERSION
    for topic in request.topics:
        topic_id = bytes(topic.topic_id) if by_id else ZERO_UUID
        name = topics.name_of(topic_id) if by_id else topic.topic
        for wanted in topic.partitions:
            yield name, topic_id, wanted


def targets_of(request: FetchRequest, version: int, topics: KnownTopics) -> Iterator[FetchTarget]:
    """Make the targets that a request names."""
    return (FetchTarget(*wanted) for wanted in _wanted(request, version, topics))


def _forgotten(request: FetchRequest, version: int) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        name = bytes(topic.topic_id) if version >= FIRST_TOPIC_ID_VERSION else topic.topic
        for partition in topic.partitions:
            yield (name, partition)
