"""A classic consumer group as its coordinator sees it: members, generations, assignments. Pure: no clock, no log.

Events are methods that take `now` (ms) and return instructions; answers to JoinGroup and SyncGroup may come much later.

    Empty --join--> PreparingRebalance --all joined, or too late--> CompletingRebalance --leader's assignment--> Stable
      ^                 |  ^  ^                                            |                                      |
      +--nobody left----+  |  +------- join, leave, expiry ----------------+                                      |
                           +------------- join, leave, expiry, changed protocols ---------------------------------+

    Dead: deleted, or the coordinator has moved; from anywhere, for ever.

Timers are deadlines: `deadline` is never later than the first of them, and `tick(now)` does what is due and sets it
anew. A heartbeat only moves its member's own deadline, so it costs the same in a group of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kbroker.coordinator import group_sentences as told
from kbroker.coordinator.group_events import (
    AnswerSync,
    Instruction,
    JoinRequest,
    Leaving,
    SyncAnswer,
)
from kbroker.coordinator.group_life import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    AssignmentWrite,
    GroupLife,
    GroupState,
    StaticMemberWrite,
)
from kbroker.coordinator.member import NEVER, Member, Protocols
from kbroker.protocol.errors import ErrorCode

NEW_MEMBER_TIMEOUT_MS = 300_000
"""How long a member that has just joined may wait for its first generation."""
SHORTEST_ROUND_MS = 100
"""However short the members' rebalance time-outs: rounds of no time would follow each other without end."""
COOPERATIVE = "cooperative-sticky"
"""The assignor whose members go on reading what they keep."""


class Group(GroupLife):
    """One group. Events return instructions; see the module's drawing. `check()` holds its invariants."""

    kind = "classic"

    # --- requests ---------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, token: object, now: int) -> list[Instruction]:
        """A member joins, or joins again; the answer carries the token and may wait for a whole generation."""
        if not self._has_room_for(request.member_id):
            self._forget_member(request.member_id, now)
            self._refuse_join(token, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif self.state is DEAD:
            self._refuse_join(token, request.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._supports(request.protocol_type, request.protocols):
            self._refuse_join(token, request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not request.member_id:
            self._join_new(request, token, now)
        elif request.member_id in self.pending_members and request.group_instance_id is None:
            self._add_member(request, request.member_id, token, now)
        else:
            error = self.member_error(request.member_id, request.group_instance_id)
            if error is ErrorCode.NONE:
                self._join_known(request, token, now)
            else:
                self._refuse_join(token, request.member_id, error)
        self._complete_join_if_all_came(now)
        return self._take()

    def sync(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        token: object,
        now: int,
    ) -> list[Instruction]:
        """A member asks for its assignment; the leader brings all. `protocol`: (type, name), None where not said."""
        error = self._sync_error(member_id, group_instance_id, generation_id, protocol)
        if error is not ErrorCode.NONE:
            self._out.append(AnswerSync(token, SyncAnswer(error)))
            return self._take()
        member = self.members[member_id]
        self.pending_sync.discard(member_id)
        if self.state is STABLE:
            self._answer_sync(member, token)
            self._heard_of(member, now)
            return self._take()
        self._fail_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync = token
        if member_id == self.leader and not self._is_writing_assignment():
            shares = {each: assignments.get(each, b"") for each in self.members}
            self._write(AssignmentWrite(self.generation_id, shares), shares)
        return self._take()

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, now: int) -> ErrorCode:
        """A member says that it is alive; returns 27 when it has to join again."""
        error = self._generation_error(member_id, group_instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        if self.state is EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._heard_of(self.members[member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def leave(self, leaving: Sequence[Leaving], now: int) -> tuple[list[ErrorCode], list[Instruction]]:
        """Members leave; an empty member id removes whoever has the instance id."""
        errors = [self._leave(each, now) for each in leaving]
        return errors, self._take()

    def commit_error(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        now: int,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """Return whether an offset commit of this member may be stored; one that may counts as a heartbeat."""
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is EMPTY:
            return ErrorCode.NONE
        if generation_id >= 0 or member_id or group_instance_id is not None:
            error = self._generation_error(member_id, group_instance_id, generation_id)
            if error is not ErrorCode.NONE:
                return error
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if is_transactional:  # its sender is a producer, whose member may be gone
            return ErrorCode.NONE
        if self.state is COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = self.members.get(member_id)
        if member is not None:
            self._heard_of(member, now)
        return ErrorCode.NONE

    # --- time, log, leadership --------------------------------------------------------------------------------

    def tick(self, now: int) -> list[Instruction]:
        """Do what is due: expired members and ids, the end of a rebalance."""
        for member_id in [each for each, due in self.pending_members.items() if due <= now]:
            self._leave_pending(member_id, now)
        for member in [each for each in self.members.values() if each.deadline <= now]:
            self._expire(member, now)
        if self._sync_deadline <= now:
            self._expire_unsynced(now)
        if self._join_deadline <= now:
            self._complete_or_extend_join(now)
        self.deadline = min(
            self._join_deadline,
            self._sync_deadline,
            min((member.deadline for member in self.members.values()), default=NEVER),
            min(self.pending_members.values(), default=NEVER),
        )
        return self._take()

    def written(self, ticket: int, error: ErrorCode, now: int) -> list[Instruction]:
        """The record of a WriteGroup is acknowledged (NONE), or is not."""
        write = self._writes.pop(ticket)
        if isinstance(write, AssignmentWrite):
            self._assignment_written(write, error, now)
        elif write is not None:
            self._static_member_written(write, error, now)
        return self._take()

    def start(self, now: int) -> list[Instruction]:
        """The group has been read from the log: its members get a fresh time, one that is too large rebalances."""
        for member in self.members.values():
            self._heard_of(member, now)
        self.subscribed_topics = self.subscriptions()
        if len(self.members) > self.settings.max_size:
            self._rebalance(now, told.too_large(self.settings.max_size))
        return self._take()

    def adopt(self, generation_id: int, now: int) -> None:
        """Go on with members that were in a group of the newer protocol: they are asked to join again."""
        self.generation_id = generation_id
        self.state = STABLE
        self.protocol_name = self.select_protocol()
        self.subscribed_topics = self.subscriptions()
        for member in self.members.values():
            self._heard_of(member, now)
        self._rebalance(now, told.RETURNED)

    def dissolve(self, now: int) -> list[Instruction]:
        """Its members go on in a group of the newer protocol: whoever waits is told to join again."""
        for member in self.members.values():
            self._fail_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
            self._fail_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._move(DEAD, now)
        return self._take()

    def die(self, now: int) -> list[Instruction]:
        """The group is deleted, or this broker is not its coordinator any more: whoever waits is told so."""
        for member in self.members.values():
            self._fail_join(member, ErrorCode.NOT_COORDINATOR)
            self._fail_sync(member, ErrorCode.NOT_COORDINATOR)
        self._move(DEAD, now)
        return self._take()

    # --- what it says about itself ----------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what always holds between events."""
        super().check()
        assert not self._out
        members = self.members
        assert self._joining == sum(member.join is not None for member in members.values())
        if self.state in (EMPTY, DEAD):
            assert not members
        if self.state in (COMPLETING, STABLE):
            assert members
            assert self.supports(((self.protocol_name or "", b""),))
        else:
            assert not self.pending_sync
            assert self._sync_deadline == NEVER
        if self.state is PREPARING:
            assert self._join_deadline < NEVER
            assert self._initial_delay_left is not None or not self._have_all_joined()
        else:
            assert self._join_deadline == NEVER
            assert self._initial_delay_left is None
        for member in members.values():
            assert member.sync is None or self.state is COMPLETING
            assert member.join is None or self.state is PREPARING or self._is_writing_static_member(member)
            assert self.deadline <= member.deadline
        assert self.deadline <= min(self._join_deadline, self._sync_deadline)

    # --- joining ----------------------------------------------------------------------------------------------

    def _has_room_for(self, member_id: str) -> bool:
        member = self.members.get(member_id)
        if len(self.members) < self.settings.max_size:
            return True
        if self.state is PREPARING:
            return (member is not None and member.join is not None) or self._joining < self.settings.max_size
        if self.state in (COMPLETING, STABLE):
            return member is not None
        return True

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and self.supports(protocols)

    def _join_new(self, request: JoinRequest, token: object, now: int) -> None:
        member_id = request.new_member_id
        if request.group_instance_id is not None:
            former = self.static_members.get(request.group_instance_id)
            if former is None:
                self._add_member(request, member_id, token, now)
            else:
                self._replace_static_member(request, former, token, now)
        elif request.requires_member_id:
            self._note_deadline(now + request.session_timeout_ms)
            self.pending_members[member_id] = now + request.session_timeout_ms
            self._refuse_join(token, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add_member(request, member_id, token, now)

    def _join_known(self, request: JoinRequest, token: object, now: int) -> None:
        member = self.members[request.member_id]
        unchanged = member.protocols == request.protocols
        assigns = self.state is STABLE and member.member_id == self.leader
        if unchanged and self.state in (COMPLETING, STABLE) and not assigns:
            self._answer_join(member, token)
        else:
            topics = "" if unchanged else told.other_topics(*map(self.topics_of, (member.protocols, request.protocols)))
            why = told.joined_again(member, request.reason, assigns, not unchanged, topics)
            self._update_member(member, request, token)
            if self.state is not PREPARING:
                self._rebalance(now, why)
                return
            self.story.came(now, member)
            if topics:
                self.story.add(why, topics)

    def _add_member(self, request: JoinRequest, member_id: str, token: object, now: int) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            is_new=True,
        )
        if self.state is PREPARING and self.generation_id == 0:
            self._new_member_added = True
        self.insert(member, request.protocol_type)
        self._keep_waiting(member, token)
        member.deadline = now + NEW_MEMBER_TIMEOUT_MS
        self._note_deadline(member.deadline)
        gone_for_ms = self.story.gone_for_ms(now, member.client_id)
        self._rebalance(now, told.joined(member, request.reason, member.is_static, gone_for_ms))

    def _update_member(self, member: Member, request: JoinRequest, token: object) -> None:
        self._fail_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        self._keep_waiting(member, token)

    # --- static members ---------------------------------------------------------------------------------------

    def _replace_static_member(self, request: JoinRequest, former_id: str, token: object, now: int) -> None:
        former_leader = self.leader or ""
        member = self._rename(former_id, request.new_member_id)
        before = (member.protocols, (member.session_timeout_ms, member.rebalance_timeout_ms))
        self._update_member(member, request, token)
        self._heard_of(member, now)
        if self.state is STABLE and self.select_protocol() == self.protocol_name:
            assert member.group_instance_id is not None
            write = StaticMemberWrite(
                member.group_instance_id,
                member.member_id,
                former_id,
                *before,
                former_leader,
                request.can_skip_assignment,
            )
            self._write(write, {each.member_id: each.assignment for each in self.members.values()})
            self.story.note(now, told.came_back(write.group_instance_id, member, former_id))
        else:
            self._rebalance(now, told.came_back(request.group_instance_id or "", member, former_id))

    def _rename(self, former_id: str, member_id: str) -> Member:
        """Give a static member's place to its new self; the former one is fenced."""
        member = self.members[former_id]
        self._fail_join(member, ErrorCode.FENCED_INSTANCE_ID)
        self._fail_sync(member, ErrorCode.FENCED_INSTANCE_ID)
        self.rename(member, member_id)
        return member

    def _static_member_written(self, write: StaticMemberWrite, error: ErrorCode, now: int) -> None:
        member = self.members.get(write.member_id)
        if member is None or member.join is None:
            return  # it has left, or a rebalance has answered it
        token = self._end_waiting(member)
        if error is not ErrorCode.NONE:
            self.set_protocols(member, write.former_protocols)
            member.session_timeout_ms, member.rebalance_timeout_ms = write.former_timeouts
            self.rename(member, write.former_member_id)
            self._refuse_join(token, "", error)
        elif write.can_skip_assignment:
            self._answer_join(member, token, skip_assignment=write.member_id == self.leader)
        else:
            # The former leader's id: the member takes itself for a follower and does not assign anew.
            self._answer_join(member, token, leader=write.former_leader)
        self._heard_of(member, now)

    # --- rebalancing ------------------------------------------------------------------------------------------

    def _rebalance(self, now: int, why: told.Told) -> None:
        """Ask all members to join again, unless they are being asked."""
        self.story.begin(now, why)
        if self.state is PREPARING:
            return
        self.last_rebalance = why.what
        was_empty = self.state is EMPTY
        self._move(PREPARING, now)
        if not was_empty:
            self._join_deadline = now + self._round_ms
            self._note_deadline(self._join_deadline)
            return
        delay = self.settings.initial_rebalance_delay_ms
        self._initial_delay_left = max(self.rebalance_timeout_ms - delay, 0)
        self._join_deadline = now + delay
        self._note_deadline(self._join_deadline)
        if delay <= 0:
            self._complete_join(now)

    def _complete_or_extend_join(self, now: int) -> None:
        left = self._initial_delay_left
        if left and self._new_member_added:
            self._new_member_added = False
            delay = min(self.settings.initial_rebalance_delay_ms, left)
            self._initial_delay_left = left - delay
            self._join_deadline = now + delay
        else:
            self._complete_join(now)

    @property
    def _round_ms(self) -> int:
        return max(self.rebalance_timeout_ms, SHORTEST_ROUND_MS)

    def _have_all_joined(self) -> bool:
        return not self.pending_members and self._joining == len(self.members)

    def _complete_join_if_all_came(self, now: int) -> None:
        if self.state is PREPARING and self._initial_delay_left is None and self._have_all_joined():
            self._complete_join(now)

    def _complete_join(self, now: int) -> None:
        """The time to join is over: form a generation of those who came, and of the static members."""
        self._initial_delay_left = None
        self._new_member_added = False
        for member in list(self.members.values()):
            if member.join is None and not member.is_static:
                self.story.begin(now, told.late(member))
                self._remove(member, now)
        waiting = [member.member_id for member in self.members.values() if member.join is not None]
        if self.members and not waiting:
            self._join_deadline = now + self._round_ms
            self._note_deadline(self._join_deadline)
            return
        if self.leader not in waiting:
            self.leader = waiting[0] if waiting else None
        self.generation_id += 1
        self._move(COMPLETING if self.members else EMPTY, now)

    def _begin_generation(self, now: int) -> None:
        self.protocol_name = self.select_protocol()
        self.subscribed_topics = self.subscriptions()
        self.pending_sync = set(self.members)
        self.story.all_came(now)
        self._sync_deadline = now + self._round_ms
        self._note_deadline(self._sync_deadline)
        for member in self.members.values():
            token = self._end_waiting(member)
            member.is_new = False
            if token is not None:
                self._answer_join(member, token)
            self._heard_of(member, now)

    def _end_generations(self, now: int) -> None:
        self.protocol_name = None
        self.subscribed_topics = self.subscriptions()
        self._write(None, {})
        self.story.end_empty(now, self.generation_id)

    def _assignment_written(self, write: AssignmentWrite, error: ErrorCode, now: int) -> None:
        if self.state is not COMPLETING or write.generation_id != self.generation_id:
            return
        if error is not ErrorCode.NONE:
            self._cancel_syncs(error, now)
            self._rebalance(now, told.not_written(error.name))
            return
        for member in self.members.values():
            member.assignment = write.assignments[member.member_id]
        self._move(STABLE, now)

    def _hand_out_assignments(self, now: int) -> None:
        for member in self.members.values():
            token, member.sync = member.sync, None
            if token is not None:
                self._answer_sync(member, token)
                self._heard_of(member, now)
        leader = self.members.get(self.leader or "")
        self.story.end(now, self.generation_id, len(self.members), leader, self.protocol_name == COOPERATIVE)

    def _cancel_syncs(self, error: ErrorCode, now: int) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.sync is not None:
                self._fail_sync(member, error)
                self._heard_of(member, now)

    # --- leaving and expiring ---------------------------------------------------------------------------------

    def _leave(self, leaving: Leaving, now: int) -> ErrorCode:
        member_id, group_instance_id, reason = leaving
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not member_id:
            current = None if group_instance_id is None else self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = current
        elif member_id in self.pending_members:
            self._leave_pending(member_id, now)
            return ErrorCode.NONE
        else:
            error = self.member_error(member_id, group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        member = self.members[member_id]
        self._remove_and_rebalance(member, now, told.left(member, reason))
        return ErrorCode.NONE

    def _leave_pending(self, member_id: str, now: int) -> None:
        del self.pending_members[member_id]
        self._complete_join_if_all_came(now)

    def _expire(self, member: Member, now: int) -> None:
        if self.members.get(member.member_id) is not member or member.deadline > now:
            return  # the end of another one before it has removed it too, or completed the round and answered it
        if not member.is_new and (member.join is not None or member.sync is not None):
            member.deadline = NEVER  # it waits for the others, and gets a new time with its answer
            return
        self._remove_and_rebalance(member, now, told.expired(member, member.session_timeout_ms, member.is_static))

    def _expire_unsynced(self, now: int) -> None:
        self._sync_deadline = NEVER
        if not self.pending_sync:
            return
        late = [self.members[member_id] for member_id in self.pending_sync]
        for member in late:
            self._remove(member, now)
        if self.state in (COMPLETING, STABLE):
            self._rebalance(now, told.unsynced(late, self._round_ms))
            self._complete_join_if_all_came(now)

    def _remove_and_rebalance(self, member: Member, now: int, why: told.Told) -> None:
        self._remove(member, now)
        self._rebalance(now, why)
        self._complete_join_if_all_came(now)

    def _forget_member(self, member_id: str, now: int) -> None:
        """Drop a member that the group has no room for; its place in the generation goes with it."""
        member = self.members.get(member_id)
        if member is not None:
            self.story.note(now, told.no_room(member, self.settings.max_size))
            self._remove(member, now)

    def _remove(self, member: Member, now: int) -> None:
        self.story.gone(now, member.client_id)
        self._fail_join(member, ErrorCode.UNKNOWN_MEMBER_ID, member_id="")
        self._fail_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.remove(member)

    # --- transitions ------------------------------------------------------------------------------------------

    def _move(self, state: GroupState, now: int) -> None:
        """Change the state; the table says what goes with it, and a missing pair is a mistake of ours."""
        enter = _TRANSITIONS[self.state, state]
        self.state = state
        self.state_since = now
        self._join_deadline = NEVER
        if state is not STABLE:
            self._sync_deadline = NEVER
            self.pending_sync.clear()
        if enter is not None:
            enter(self, now)

    def _restart_generation(self, now: int) -> None:
        self._cancel_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now)

    def _bury(self, now: int) -> None:
        self.clear()
        self._initial_delay_left = None
        self.deadline = NEVER

    # --- checks -----------------------------------------------------------------------------------------

    def _sync_error(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        protocol: tuple[str | None, str | None],
    ) -> ErrorCode:
        error = self._generation_error(member_id, group_instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        protocol_type, protocol_name = protocol
        if protocol_type not in (None, self.protocol_type) or protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE


_TRANSITIONS: dict[tuple[GroupState, GroupState], Callable[[Group, int], None] | None] = {
    (EMPTY, PREPARING): None,
    (STABLE, PREPARING): None,
    (COMPLETING, PREPARING): Group._restart_generation,
    (PREPARING, COMPLETING): Group._begin_generation,
    (PREPARING, EMPTY): Group._end_generations,
    (COMPLETING, STABLE): Group._hand_out_assignments,
    (EMPTY, DEAD): Group._bury,
    (PREPARING, DEAD): Group._bury,
    (COMPLETING, DEAD): Group._bury,
    (STABLE, DEAD): Group._bury,
}
