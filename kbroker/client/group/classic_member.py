"""A member of a classic consumer group, as it sees itself: JoinGroup, SyncGroup, heartbeats. Pure: no clock, no socket.

Events are methods that take `now` (ms) and return instructions.

    OUT --subscribe--> PREPARING --given up--> JOINING --answer--> SHARING (leader) --> SYNCING --answer--> STABLE
                        ^   ^                     |  ^                                     |                  |
                        |   +---- session lost ---+  +------------- rebalance began -------+                  |
                        +--------------------- rebalance began, subscription changed, session lost -----------+

    STALE: the application stayed away from poll too long; the group was left until it comes again.

What the application has must be given up before JoinGroup (eager), or after the answer that takes it away
(cooperative, KIP-429): that is `work`, done inside poll, so that nothing changes hands behind the application's back.
Work that has begun is ended before JoinGroup: only then it is known what the member has, to give up or to name there.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from kbroker.client.group.assignors import Assignor, subscription_for
from kbroker.client.group.events import (
    NEVER,
    Fail,
    FindCoordinator,
    GiveUp,
    Identity,
    Instruction,
    MemberSettings,
    Send,
    ShareOut,
    TakeOver,
    Work,
    may_own,
    owned_after,
)
from kbroker.client.group.subscriptions import decode_assignment, decode_subscription, encode_subscription
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import COORDINATOR_MOVED, ErrorCode, MalformedMessage
from kbroker.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kbroker.protocol.schema import Message

PROTOCOL_TYPE = "consumer"
EVICTED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The group has gone on without this member."""
PASSING = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT}
)


class State(enum.Enum):
    """See the module's drawing."""

    OUT = "out"
    PREPARING = "preparing"
    JOINING = "joining"
    SHARING = "sharing"
    SYNCING = "syncing"
    STABLE = "stable"
    STALE = "stale"
    FAILED = "failed"


BEATING = frozenset({State.PREPARING, State.SHARING, State.STABLE})
"""States with heartbeats; in the others a request waits at the coordinator, which counts as one."""
REBALANCING = frozenset({State.JOINING, State.SHARING, State.SYNCING})
OUTSIDE = frozenset({State.OUT, State.STALE, State.FAILED})


class ClassicMember:
    """One membership. `check()` holds its invariants."""

    def __init__(self, settings: MemberSettings, assignors: Sequence[Assignor]) -> None:
        self.settings = settings
        self.assignors = {assignor.name: assignor for assignor in assignors}
        self.is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        """Whether partitions are kept during a rebalance: only if every assignor that may win allows it."""
        self.state = State.OUT
        self.topics: tuple[str, ...] = ()
        self.owned: tuple[TopicPartition, ...] = ()
        """What the application has, sorted; while it takes over all that it had and all that it gets."""
        self.generation = -1
        self.member_id = ""
        self.is_leader = False
        self._protocol: str | None = None
        self._assigned: tuple[TopicPartition, ...] | None = None
        """Answered, but the application has not begun to go along yet."""
        self._under_way: Work | None = None
        """What the application goes along with at this moment."""
        self._last: tuple[TopicPartition, ...] = ()
        self._last_generation = -1
        """What the application took over last, and in which generation."""
        self._reason = ""
        """Why this member joins again, for the coordinator's log (KIP-800)."""
        self._again = ""
        """Why another rebalance must follow the one under way."""
        self._in_flight: Message | None = None
        self._heartbeat: HeartbeatRequest | None = None
        self._has_coordinator = False
        self._is_seeking = False
        self._retry_at = 0
        self._heartbeat_at = NEVER
        self._session_until = NEVER
        self._poll_until = NEVER
        self._out: list[Instruction] = []

    @property
    def identity(self) -> Identity:
        """As which it commits: as nobody unless it has a generation."""
        return Identity(self.generation, self.member_id) if self.generation >= 0 else Identity()

    @property
    def is_stale(self) -> bool:
        """Whether it has left because the application did not poll."""
        return self.state is State.STALE

    @property
    def deadline(self) -> int:
        """When `tick` is due."""
        if self.state in OUTSIDE:
            return NEVER
        times = [self._poll_until]
        if self.state is State.JOINING and self._in_flight is None and self._has_coordinator:
            times.append(self._retry_at)
        if self._beats:
            times += [self._session_until, NEVER if self._heartbeat else self._heartbeat_at]
        return min(times)

    @property
    def work(self) -> Work | None:
        """What the application has to go along with now."""
        if self.state is State.PREPARING:
            return GiveUp(self._to_give_up(), self.generation < 0)
        if self.state is State.FAILED and self.owned:
            return GiveUp(self.owned, lost=True)
        if self.state is State.STABLE and self._assigned is not None:
            had, gets = set(self.owned), set(self._assigned)
            return TakeOver(self._assigned, tuple(sorted(gets - had)), tuple(sorted(had - gets)))
        return None

    @property
    def _beats(self) -> bool:
        return self.state in BEATING and self.generation >= 0 and self._has_coordinator

    def _to_give_up(self) -> tuple[TopicPartition, ...]:
        if self.generation < 0 or not self.is_cooperative:
            return self.owned
        return tuple(key for key in self.owned if key.topic not in self.topics)

    # --- events -----------------------------------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...], now: int) -> list[Instruction]:
        """The wanted topics are these now; outside of the group, join it."""
        if self.state is State.OUT:
            self.topics = topics
            self._poll_until = now + self.settings.max_poll_interval_ms
            self._prepare("", now)
        elif set(topics) != set(self.topics):
            self.topics = topics
            return self.request_rejoin("the subscription has changed", now)
        return self._take()

    def request_rejoin(self, reason: str, now: int) -> list[Instruction]:
        """Have the group rebalance."""
        if self.state is State.STABLE:
            self._prepare(reason, now)
        elif self.state in REBALANCING:
            self._again = reason
        return self._take()

    def coordinator_found(self, now: int) -> list[Instruction]:
        """Requests can be sent (again)."""
        self._is_seeking, self._has_coordinator = False, True
        self._heartbeat = None
        self._heartbeat_at, self._session_until = now, now + self.settings.session_timeout_ms
        self._join_if_ready(now)
        return self._take()

    def answered(self, request: Message, answer: Any, now: int) -> list[Instruction]:
        """An answer has come; those to requests given up since are ignored."""
        if request is self._heartbeat:
            self._heartbeat = None
            self._heartbeat_answered(answer, now)
        elif request is self._in_flight:
            self._in_flight = None
            if isinstance(answer, JoinGroupResponse):
                self._join_answered(answer, now)
            else:
                self._sync_answered(answer, now)
        return self._take()

    def failed(self, request: Message, now: int) -> list[Instruction]:
        """No answer will come: look for the coordinator, and join again if this was about joining."""
        if request is self._heartbeat:
            self._heartbeat = None
            self._lose_coordinator()
        elif request is self._in_flight:
            self._in_flight = None
            self._lose_coordinator()
            self._join_again_later(now)
        return self._take()

    def shared_out(self, assignments: Mapping[str, bytes], now: int) -> list[Instruction]:
        """The leader has shared the partitions out: member id -> its assignment's blob."""
        if self.state is State.SHARING:
            self._sync([SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=blob)
                        for member, blob in assignments.items()])  # fmt: skip
        return self._take()

    def sharing_failed(self, now: int) -> list[Instruction]:
        """The leader could not share out (no metadata came): try again."""
        if self.state is State.SHARING:
            self._join_again_later(now)
        return self._take()

    def polling(self, is_polling: bool, now: int) -> list[Instruction]:
        """The application has called poll, or come back from it."""
        self._poll_until = NEVER if is_polling else now + self.settings.max_poll_interval_ms
        if is_polling and self.state is State.STALE:
            self._prepare("the application polls again", now)
        return self._take()

    def work_begun(self, work: Work) -> None:
        """The application goes along, until `work_done`."""
        self._under_way = work
        if isinstance(work, TakeOver):
            self._assigned = None
            self._last, self._last_generation = work.partitions, self.generation
            self.owned = may_own(self.owned, work)

    def work_done(self, work: Work, now: int) -> list[Instruction]:
        """The application has gone along."""
        if work is not self._under_way:
            return self._take()  # the membership it belonged to has ended
        self._under_way = None
        self.owned = owned_after(self.owned, work)
        if self.state is State.PREPARING:
            self._join_if_free(now)
        elif self.state is State.STABLE and isinstance(work, TakeOver) and work.revoked and self.is_cooperative:
            self._prepare("need to revoke partitions and re-join", now)
        return self._take()

    def commit_refused(self, code: ErrorCode, identity: Identity, now: int) -> list[Instruction]:
        """A commit was answered with an error: it may tell sooner than a heartbeat how things stand."""
        if identity == self.identity and self.generation >= 0:
            if code in EVICTED:
                self._reset(code is ErrorCode.UNKNOWN_MEMBER_ID, f"a commit was answered {code.name}", now)
            elif code is ErrorCode.REBALANCE_IN_PROGRESS:
                return self.request_rejoin("a commit met a rebalance", now)
        return self._take()

    def leave(self, reason: str, now: int) -> list[Instruction]:
        """End the membership. A static member says nothing: it may be back before its session ends.

        Nothing is looked for any more: whoever sends the farewell finds the coordinator.
        """
        if self.state not in OUTSIDE:
            self._say_goodbye(reason)
        self._is_seeking = False
        self.state, self.owned, self.topics, self._under_way = State.OUT, (), (), None
        self._forget(with_member_id=True)
        return self._take()

    def fail(self, code: ErrorCode, message: str) -> list[Instruction]:
        """End the membership for good."""
        self._fail(code, message)
        return self._take()

    def tick(self, now: int) -> list[Instruction]:
        """Do what is due."""
        if self.state not in OUTSIDE and now >= self._poll_until:
            self._say_goodbye("the application has not polled for max_poll_interval_ms")
            self.state = State.STALE
            self._forget(with_member_id=True)
        if self._beats and now >= self._session_until:
            self._lose_coordinator()
        if self._beats and self._heartbeat is None and now >= self._heartbeat_at:
            self._heartbeat = HeartbeatRequest(
                group_id=self.settings.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.settings.instance_id,
            )
            self._heartbeat_at = now + self.settings.heartbeat_interval_ms
            self._out.append(Send(self._heartbeat))
        self._join_if_ready(now)
        return self._take()

    # --- answers ----------------------------------------------------------------------------------------------

    def _heartbeat_answered(self, answer: HeartbeatResponse, now: int) -> None:
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._session_until = now + self.settings.session_timeout_ms
        if code is ErrorCode.REBALANCE_IN_PROGRESS and self.state is State.STABLE:
            self._prepare("", now)
        elif code in COORDINATOR_MOVED:
            self._lose_coordinator()
        elif code in EVICTED:
            self._reset(code is ErrorCode.UNKNOWN_MEMBER_ID, f"a heartbeat was answered {code.name}", now)
        elif code is not ErrorCode.NONE and code not in PASSING:
            self._fail_on(code)

    def _join_answered(self, answer: JoinGroupResponse, now: int) -> None:
        code = answer.error_code
        if code is ErrorCode.NONE:
            self._joined(answer, now)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self._retry_at = answer.member_id, now
            self._join_if_ready(now)
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._reset(True, "JoinGroup was answered UNKNOWN_MEMBER_ID", now)
        elif code in COORDINATOR_MOVED or code in PASSING:
            if code in COORDINATOR_MOVED:
                self._lose_coordinator()
            self._join_again_later(now)
        else:
            self._fail_on(code)

    def _joined(self, answer: JoinGroupResponse, now: int) -> None:
        self.generation, self.member_id = answer.generation_id, answer.member_id
        self._protocol = answer.protocol_name
        self._heartbeat_at = now + self.settings.heartbeat_interval_ms
        self._session_until = now + self.settings.session_timeout_ms
        if self._protocol not in self.assignors:
            self._fail_on(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        self.is_leader = answer.leader == answer.member_id
        if not self.is_leader or answer.skip_assignment:
            self._sync([])
            return
        try:
            members = {
                item.member_id: decode_subscription(bytes(item.metadata), item.group_instance_id)
                for item in answer.members
            }
        except MalformedMessage as error:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"a member's subscription cannot be read: {error}")
            return
        self.state = State.SHARING
        self._out.append(ShareOut(self._protocol, members))

    def _sync_answered(self, answer: SyncGroupResponse, now: int) -> None:
        code = answer.error_code
        if code is ErrorCode.NONE:
            self._synced(bytes(answer.assignment), now)
        elif code in EVICTED:
            self._reset(code is ErrorCode.UNKNOWN_MEMBER_ID, f"SyncGroup was answered {code.name}", now)
        elif code in PASSING:
            self._retry_at = now
            self._prepare("", now)
        elif code in COORDINATOR_MOVED:
            self._lose_coordinator()
            self._join_again_later(now)
        else:
            self._fail_on(code)

    def _synced(self, blob: bytes, now: int) -> None:
        self.state, self._reason = State.STABLE, ""
        self._heartbeat_at = now + self.settings.heartbeat_interval_ms
        self._session_until = now + self.settings.session_timeout_ms
        try:
            assigned = decode_assignment(blob)
        except MalformedMessage as error:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the assignment cannot be read: {error}")
            return
        if any(key.topic not in self.topics for key in assigned):
            self._again = self._again or "the assignment does not match the subscription"
            self._retry_at = now + self.settings.retry_backoff_ms
        self._assigned = assigned
        if self._again:
            self._prepare(self._again, now)

    def _fail_on(self, code: ErrorCode) -> None:
        self._fail(code, f"group {self.settings.group_id}, member {self.member_id or 'without id'}")

    def _fail(self, code: ErrorCode, message: str) -> None:
        self.state = State.FAILED
        self._forget(with_member_id=True)
        self._out.append(Fail(code, message))

    # --- steps ------------------------------------------------------------------------------------------------

    def _prepare(self, reason: str, now: int) -> None:
        """Before JoinGroup the application may have something to end, or to give up."""
        self.state, self._reason, self._again = State.PREPARING, reason or self._reason, ""
        self._assigned = None
        self._join_if_free(now)

    def _join_if_free(self, now: int) -> None:
        if self._under_way is None and not self._to_give_up():
            self.state = State.JOINING
            self._join_if_ready(now)

    def _join_if_ready(self, now: int) -> None:
        if self.state is not State.JOINING or self._in_flight is not None or now < self._retry_at:
            self._seek()
            return
        if self._seek():
            return
        settings = self.settings
        self._heartbeat, self._again = None, ""
        self._in_flight = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=self._subscription(assignor))
                for name, assignor in self.assignors.items()
            ],
            reason=self._reason or None,
        )
        self._out.append(Send(self._in_flight))

    def _subscription(self, assignor: Assignor) -> bytes:
        generation, rack = self._last_generation, self.settings.rack
        said = subscription_for(assignor, self.topics, self.owned, generation, rack, self._last)
        return encode_subscription(said)

    def _sync(self, assignments: list[SyncGroupRequest.SyncGroupRequestAssignment]) -> None:
        self.state = State.SYNCING
        self._in_flight = SyncGroupRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=assignments,
        )
        self._out.append(Send(self._in_flight))

    def _join_again_later(self, now: int) -> None:
        self.state, self._in_flight = State.JOINING, None
        self._retry_at = now + self.settings.retry_backoff_ms
        self._seek()

    def _reset(self, with_member_id: bool, reason: str, now: int) -> None:
        """The group has gone on without this member: what it has is lost."""
        self._forget(with_member_id)
        self._retry_at = now
        self._prepare(reason, now)

    def _forget(self, with_member_id: bool) -> None:
        self.generation, self._in_flight, self._heartbeat = -1, None, None
        self._assigned, self.is_leader, self._reason, self._again = None, False, "", ""
        if with_member_id:
            self.member_id = ""

    def _lose_coordinator(self) -> None:
        self._has_coordinator = False
        self._seek()

    def _seek(self) -> bool:
        """Have the coordinator looked for; True as long as it is not known."""
        if self._has_coordinator or self.state in OUTSIDE:
            return not self._has_coordinator
        if not self._is_seeking:
            self._is_seeking = True
            self._out.append(FindCoordinator())
        return True

    def _say_goodbye(self, reason: str) -> None:
        if not self.member_id or self.settings.instance_id is not None:
            return
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, reason=reason)
        self._out.append(Send(LeaveGroupRequest(group_id=self.settings.group_id, members=[identity])))

    def _take(self) -> list[Instruction]:
        out, self._out = self._out, []
        return out

    def check(self) -> None:
        """Assert the invariants."""
        assert self._assigned is None or self.state is State.STABLE
        assert self.state is not State.STABLE or (self.generation >= 0 and self.member_id)
        assert (self._in_flight is None) or self.state in (State.JOINING, State.SYNCING)
        assert self.state is not State.SYNCING or self._in_flight is not None
        assert self.state not in REBALANCING or self._under_way is None
        assert self.state not in REBALANCING or not self.owned or (self.is_cooperative and self.generation >= 0)
        assert self.generation < 0 or self.member_id
