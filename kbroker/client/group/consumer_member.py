"""A member of a group of the newer protocol (KIP-848), as it sees itself: one request, the coordinator assigns.

Pure: events are methods that take `now` (ms) and return instructions.

    OUT --subscribe--> JOINING --answer--> STABLE, reconciling as `work` whenever an assignment comes
                          ^                   |
                          +-- given up -- FENCED: the group has gone on without this member
                          +---- poll ---- STALE: the application stayed away from poll too long

A heartbeat says only what has changed since the last one; after an error everything is said again, what is owned
included: only then the coordinator believes a member that has not heard of its new epoch, and repeats the assignment.
An assignment is acknowledged by naming what is owned, as soon as the application has gone along, never while it does:
the coordinator would give to others what the application has just begun with.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from kbroker.client.group.events import (
    NEVER,
    Fail,
    FindCoordinator,
    GiveUp,
    Identity,
    Instruction,
    MemberSettings,
    Send,
    TakeOver,
    Work,
    may_own,
    owned_after,
)
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import COORDINATOR_MOVED, ErrorCode
from kbroker.protocol.grouping import by_topic
from kbroker.protocol.messages.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kbroker.protocol.schema import Message

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
FIRST_HEARTBEAT_MS = 5_000
"""Until the coordinator says its interval."""
FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
PASSING = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT})
OLD_CLUSTER = "the cluster does not know this group protocol: use group_protocol='classic'"


class State(enum.Enum):
    """See the module's drawing."""

    OUT = "out"
    JOINING = "joining"
    STABLE = "stable"
    FENCED = "fenced"
    STALE = "stale"
    FAILED = "failed"


BEATING = frozenset({State.JOINING, State.STABLE})


class ConsumerMember:
    """One membership; `check()` holds its invariants."""

    def __init__(self, settings: MemberSettings, member_id: str) -> None:
        self.settings = settings
        self.state = State.OUT
        self.topics: tuple[str, ...] = ()
        self.owned: tuple[TopicPartition, ...] = ()
        """What the application has, sorted; while it takes over all that it had and all that it gets."""
        self._under_way: Work | None = None
        """What the application goes along with at this moment."""
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self._names: Mapping[bytes, str] = {}
        self._target: dict[bytes, tuple[int, ...]] | None = None
        """By topic id; None before the first."""
        self._must_acknowledge = False
        self._said_topics: tuple[str, ...] | None = None
        self._heartbeat: ConsumerGroupHeartbeatRequest | None = None
        self._interval_ms = FIRST_HEARTBEAT_MS
        self._heartbeat_at = NEVER
        self._has_joined = False
        """Whether the coordinator may have heard of this membership."""
        self._has_coordinator = False
        self._is_seeking = False
        self._poll_until = NEVER
        self._out: list[Instruction] = []

    @property
    def identity(self) -> Identity:
        """As which it commits."""
        return Identity(self.epoch, self.member_id) if self.epoch > 0 else Identity()

    @property
    def is_stale(self) -> bool:
        """Whether it has left because the application did not poll."""
        return self.state is State.STALE

    @property
    def deadline(self) -> int:
        """When `tick` is due."""
        if self.state not in BEATING:
            return NEVER
        beats = self._has_coordinator and self._heartbeat is None
        return min(self._poll_until, self._heartbeat_at if beats else NEVER)

    @property
    def work(self) -> Work | None:
        """What the application has to go along with now."""
        if self.state in (State.FENCED, State.FAILED):
            return GiveUp(self.owned, lost=True) if self.owned else None
        wanted = self._wanted()
        if self.state is not State.STABLE or self._under_way is not None or wanted is None or wanted == self.owned:
            return None
        had, gets = set(self.owned), set(wanted)
        return TakeOver(wanted, tuple(sorted(gets - had)), tuple(sorted(had - gets)))

    def _wanted(self) -> tuple[TopicPartition, ...] | None:
        """Return the target as far as the topics' names are known."""
        if self._target is None:
            return None
        known = ((self._names[topic], partitions) for topic, partitions in self._target.items() if topic in self._names)
        return tuple(sorted(TopicPartition(name, number) for name, partitions in known for number in partitions))

    @property
    def unknown_topics(self) -> bool:
        """Whether something is assigned whose topic's name must be looked up."""
        return any(topic not in self._names for topic in self._target or ())

    # --- events -----------------------------------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...], now: int) -> list[Instruction]:
        """The wanted topics are these now; outside of the group, join it."""
        self.topics = tuple(sorted(topics))
        if self.state is State.OUT:
            self._poll_until = now + self.settings.max_poll_interval_ms
            self._join(now)
        elif self.state is State.STABLE and self.topics != self._said_topics:
            self._hurry(now)
        return self._take()

    def learn_topics(self, names: Mapping[bytes, str], now: int) -> list[Instruction]:
        """Take over the topics' names by id."""
        self._names = names
        self._acknowledge_if_same(now)
        return self._take()

    def coordinator_found(self, now: int) -> list[Instruction]:
        """Requests can be sent (again)."""
        self._is_seeking, self._has_coordinator = False, True
        self._heartbeat = None
        self._hurry(now)
        return self._take()

    def answered(self, request: Message, answer: Any, now: int) -> list[Instruction]:
        """An answer has come; those to requests given up since are ignored."""
        if request is self._heartbeat:
            self._heartbeat = None
            if answer.error_code is ErrorCode.NONE:
                self._heard(answer, now)
            else:
                self._refused(answer, now)
        return self._take()

    def failed(self, request: Message, now: int) -> list[Instruction]:
        """No answer will come."""
        if request is self._heartbeat:
            self._heartbeat = None
            self._say_all_again()
            self._lose_coordinator()
        return self._take()

    def polling(self, is_polling: bool, now: int) -> list[Instruction]:
        """The application has called poll, or come back from it."""
        self._poll_until = NEVER if is_polling else now + self.settings.max_poll_interval_ms
        if is_polling and self.state is State.STALE:
            self._fence(now)
        return self._take()

    def work_begun(self, work: Work) -> None:
        """The application goes along, until `work_done`."""
        self._under_way, self.owned = work, may_own(self.owned, work)

    def work_done(self, work: Work, now: int) -> list[Instruction]:
        """The application has gone along."""
        if work is not self._under_way:
            return self._take()  # the membership it belonged to has ended
        self._under_way, self.owned = None, owned_after(self.owned, work)
        if self.state is State.FENCED:
            self._join_if_free(now)
        elif self.state is State.STABLE:
            self._must_acknowledge = True
            self._hurry(now)
        return self._take()

    def commit_refused(self, code: ErrorCode, identity: Identity, now: int) -> list[Instruction]:
        """A commit was answered with an error: the next heartbeat tells how things stand."""
        if identity == self.identity and self.state is State.STABLE:
            self._hurry(now)
        return self._take()

    def leave(self, reason: str, now: int) -> list[Instruction]:
        """End the membership; a static member may come back before its session ends.

        Nothing is looked for any more: whoever sends the farewell finds the coordinator.
        """
        if self.state in BEATING and self._has_joined:
            self._say_goodbye()  # also while it joins: the coordinator may have heard that already
        self._is_seeking = False
        self.state, self.owned, self.topics, self._under_way = State.OUT, (), (), None
        self._forget()
        return self._take()

    def fail(self, code: ErrorCode, message: str) -> list[Instruction]:
        """End the membership for good."""
        self._fail(code, message)
        return self._take()

    def tick(self, now: int) -> list[Instruction]:
        """Do what is due."""
        if self.state in BEATING and now >= self._poll_until:
            if self._has_coordinator:  # one said later might come behind the next join
                self._say_goodbye()
            self.state = State.STALE
            self._forget()
        self._beat_if_due(now)
        return self._take()

    # --- answers ----------------------------------------------------------------------------------------------

    def _heard(self, answer: ConsumerGroupHeartbeatResponse, now: int) -> None:
        self.state, self.epoch = State.STABLE, answer.member_epoch
        self.member_id = answer.member_id or self.member_id
        self._interval_ms = answer.heartbeat_interval_ms
        self._heartbeat_at = now + self._interval_ms
        if answer.assignment is not None:
            self._target = {item.topic_id: tuple(item.partitions) for item in answer.assignment.topic_partitions}
            self._must_acknowledge = True
        self._acknowledge_if_same(now)
        if self.topics != self._said_topics:
            self._hurry(now)

    def _acknowledge_if_same(self, now: int) -> None:
        """An assignment that changes nothing needs no application to go along."""
        if self.state is State.STABLE and self._may_acknowledge:
            self._hurry(now)

    @property
    def _may_acknowledge(self) -> bool:
        return self._must_acknowledge and self._under_way is None and self._wanted() == self.owned

    def _refused(self, answer: ConsumerGroupHeartbeatResponse, now: int) -> None:
        code = answer.error_code
        self._say_all_again()
        self._heartbeat_at = now + self.settings.retry_backoff_ms
        if code in COORDINATOR_MOVED:
            self._lose_coordinator()
        elif code in FENCED:
            self._fence(now)
        elif code not in PASSING:
            self._fail(code, answer.error_message or f"group {self.settings.group_id}, member {self.member_id}")

    # --- steps ------------------------------------------------------------------------------------------------

    def _join(self, now: int) -> None:
        self.state, self.epoch = State.JOINING, JOIN_EPOCH
        self._hurry(now)

    def _fence(self, now: int) -> None:
        """What the member has is lost; once that is given up it joins anew."""
        self.state = State.FENCED
        self._forget()
        self._join_if_free(now)

    def _join_if_free(self, now: int) -> None:
        if not self.owned:
            self._join(now)

    def _hurry(self, now: int) -> None:
        """The next heartbeat has something to say."""
        self._heartbeat_at = now
        self._beat_if_due(now)

    def _beat_if_due(self, now: int) -> None:
        if self.state not in BEATING or self._heartbeat is not None:
            return
        if not self._has_coordinator:
            if not self._is_seeking:
                self._is_seeking = True
                self._out.append(FindCoordinator())
        elif now >= self._heartbeat_at:
            self._heartbeat = self._request()
            self._heartbeat_at = now + self._interval_ms
            self._out.append(Send(self._heartbeat))

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        settings, joins = self.settings, self.state is State.JOINING
        says_all = joins or self._said_topics is None
        says_topics = says_all or self.topics != self._said_topics
        acknowledges = self._may_acknowledge
        self._said_topics, self._has_joined = self.topics, True
        if acknowledges:
            self._must_acknowledge = False
        return ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=settings.instance_id,
            rack_id=(settings.rack or None) if says_all else None,
            rebalance_timeout_ms=settings.max_poll_interval_ms if says_all else -1,
            subscribed_topic_names=list(self.topics) if says_topics else None,
            server_assignor=settings.server_assignor if says_all else None,
            topic_partitions=self._owned_by_id() if says_all or acknowledges else None,
        )

    def _owned_by_id(self) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        ids = {name: topic for topic, name in self._names.items()}
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=ids[name], partitions=partitions)
            for name, partitions in by_topic(self.owned).items()
            if name in ids
        ]

    def _fail(self, code: ErrorCode, message: str) -> None:
        self.state = State.FAILED
        self._forget()
        self._out.append(Fail(code, OLD_CLUSTER if code is ErrorCode.UNSUPPORTED_VERSION else message))

    def _say_goodbye(self) -> None:
        epoch = LEAVE_EPOCH if self.settings.instance_id is None else STATIC_LEAVE_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.settings.instance_id,
        )
        self._out.append(Send(request))

    def _say_all_again(self) -> None:
        self._said_topics = None
        self._must_acknowledge = True

    def _forget(self) -> None:
        self.epoch, self._heartbeat, self._target = JOIN_EPOCH, None, None
        self._must_acknowledge, self._said_topics, self._has_joined = False, None, False

    def _lose_coordinator(self) -> None:
        self._has_coordinator = False
        if not self._is_seeking:
            self._is_seeking = True
            self._out.append(FindCoordinator())

    def _take(self) -> list[Instruction]:
        out, self._out = self._out, []
        return out

    def check(self) -> None:
        """Assert the invariants."""
        assert self._heartbeat is None or self.state in BEATING
        assert self._target is None or self.state is State.STABLE
        assert self.state is not State.JOINING or (self._under_way is None and not self.owned)
        assert (self.epoch > 0) == (self.state is State.STABLE)
