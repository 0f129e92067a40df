"""What every part of a group's state machine uses: its state, its deadlines, its answers, its record (pure).

group.py says what happens when; here is how a member is answered, and what is written of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from kbroker.coordinator.group_events import (
    AnswerJoin,
    AnswerSync,
    GroupSettings,
    Instruction,
    JoinAnswer,
    SyncAnswer,
    WriteGroup,
)
from kbroker.coordinator.group_offsets import CommittedOffset, GroupOffsets
from kbroker.coordinator.group_story import GroupStory
from kbroker.coordinator.member import NEVER, Member, Protocols
from kbroker.coordinator.membership import Membership
from kbroker.coordinator.offsets_records import group_key
from kbroker.coordinator.topic_log import Record
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.internal_topics import GroupMetadataValue


class GroupState(Enum):
    """The values are the names on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


@dataclass(frozen=True, slots=True)
class AssignmentWrite:
    """The leader's assignment on its way into the log."""

    generation_id: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticMemberWrite:
    """A static member that came back under a new id, on its way into the log; and what to restore if that fails."""

    group_instance_id: str
    member_id: str
    former_member_id: str
    former_protocols: Protocols
    former_timeouts: tuple[int, int]
    former_leader: str
    can_skip_assignment: bool


def _commit_timestamp(committed: CommittedOffset) -> int:
    return committed.commit_timestamp


class GroupLife(Membership):
    """A group without the decisions."""

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        now: int,
        partition: int = 0,
        story: GroupStory | None = None,
    ) -> None:
        super().__init__()
        self.story = GroupStory(group_id) if story is None else story
        self.group_id = group_id
        self.partition = partition
        """Of __consumer_offsets: where its records are."""
        self.settings = settings
        self.state = EMPTY
        self.state_since: int | None = now
        """ms since 1970; None when an old record did not say."""
        self.generation_id = 0
        self.last_rebalance = ""
        """Why the members were last asked to join again; "" when nobody knows any more."""
        self.offsets = GroupOffsets()
        self.deadline = NEVER
        self.scheduled_at = NEVER
        """For the owner of the clock: when it will call `tick`."""
        self._join_deadline = NEVER
        self._sync_deadline = NEVER
        self._initial_delay_left: int | None = None
        """Set while a group that was Empty waits for more members: how much longer it may be put off."""
        self._new_member_added = False
        self._joining = 0
        """How many members' JoinGroup waits for the others': counted, as it is asked with each that comes."""
        self._writes: dict[int, AssignmentWrite | StaticMemberWrite | None] = {}
        self._next_ticket = 0
        self._out: list[Instruction] = []

    # --- what it says about itself ----------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """The name on the wire."""
        return self.state.value

    @property
    def is_dead(self) -> bool:
        """Whether it is deleted, or coordinated by another broker by now."""
        return self.state is DEAD

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return self.state is EMPTY

    @property
    def is_expected(self) -> bool:
        """Whether somebody is about to join it."""
        return bool(self.pending_members)

    def tombstones(self) -> list[Record]:
        """Return what removes an Empty group from the log, its offsets apart."""
        return [(group_key(self.group_id), None)] if self.generation_id > 0 else []  # without generations: no record

    def expired_offsets(self, now: int, retention_ms: int) -> list[Key]:
        """Return the partitions whose offsets nobody has had use of for the retention time."""
        if self.protocol_type is None:
            return self.offsets.expired(now, retention_ms, _commit_timestamp)
        if self.state is EMPTY:
            since = self.state_since
            base = _commit_timestamp if since is None else lambda committed: since
            return self.offsets.expired(now, retention_ms, base)
        if self.state is STABLE and self.is_consumer_group and self.subscribed_topics is not None:
            return self.offsets.expired(now, retention_ms, _commit_timestamp, self.subscribed_topics.__contains__)
        return []

    # --- answers ----------------------------------------------------------------------------------------------

    def _refuse_join(self, token: object, member_id: str, error: ErrorCode) -> None:
        self._out.append(AnswerJoin(token, JoinAnswer(error, member_id)))

    def _fail_join(self, member: Member, error: ErrorCode, member_id: str | None = None) -> None:
        token = self._end_waiting(member)
        if token is not None:
            self._refuse_join(token, member.member_id if member_id is None else member_id, error)

    def _keep_waiting(self, member: Member, token: object) -> None:
        """A member's JoinGroup waits for the others'."""
        assert member.join is None
        member.join = token
        self._joining += 1

    def _end_waiting(self, member: Member) -> object | None:
        """Return the JoinGroup that waits, which is answered now; None when there is none."""
        token, member.join = member.join, None
        if token is not None:
            self._joining -= 1
        return token

    def _fail_sync(self, member: Member, error: ErrorCode) -> None:
        if member.sync is not None:
            self._out.append(AnswerSync(member.sync, SyncAnswer(error)))
            member.sync = None

    def _answer_join(
        self, member: Member, token: object, skip_assignment: bool = False, leader: str | None = None
    ) -> None:
        """Tell a member of the current generation."""
        chosen = (self.leader or "") if leader is None else leader
        everyone: Iterable[Member] = self.members.values() if chosen == member.member_id else ()
        members = tuple(
            (each.member_id, each.group_instance_id, each.metadata(self.protocol_name)) for each in everyone
        )
        answer = JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            chosen,
            skip_assignment,
            members,
        )
        self._out.append(AnswerJoin(token, answer))

    def _answer_sync(self, member: Member, token: object) -> None:
        answer = SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)
        self._out.append(AnswerSync(token, answer))

    # --- time and log -----------------------------------------------------------------------------------------

    def _generation_error(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.member_error(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _is_writing_static_member(self, member: Member) -> bool:
        writes = self._writes.values()
        return any(isinstance(write, StaticMemberWrite) and write.member_id == member.member_id for write in writes)

    def _is_writing_assignment(self) -> bool:
        writes = self._writes.values()
        return any(isinstance(write, AssignmentWrite) and write.generation_id == self.generation_id for write in writes)

    def _heard_of(self, member: Member, now: int) -> None:
        if not member.is_new:
            member.deadline = now + member.session_timeout_ms
            self._note_deadline(member.deadline)

    def _note_deadline(self, deadline: int) -> None:
        if deadline < self.deadline:
            self.deadline = deadline

    def _write(self, write: AssignmentWrite | StaticMemberWrite | None, assignments: Mapping[str, bytes]) -> None:
        ticket = self._next_ticket
        self._next_ticket += 1
        self._writes[ticket] = write
        self._out.append(WriteGroup(ticket, self._value(assignments)))

    def _value(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        members = [
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        ]
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp=-1 if self.state_since is None else self.state_since,
            members=members,
        )

    def _take(self) -> list[Instruction]:
        taken = self._out
        if taken:
            self._out = []
        return taken
