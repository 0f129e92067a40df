"""A group that is played: members by name, a clock that is moved by hand, every answer as a line of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kbroker.coordinator.group import Group
from kbroker.coordinator.group_events import (
    AnswerJoin,
    AnswerSync,
    GroupSettings,
    Instruction,
    JoinAnswer,
    JoinRequest,
    Leaving,
    SyncAnswer,
    WriteGroup,
)
from kbroker.coordinator.group_life import GroupState
from kbroker.coordinator.member import NEVER
from kbroker.protocol.codec import encode
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import ConsumerProtocolSubscription


def subscription(*topics: str) -> bytes:
    """What a consumer sends as its metadata."""
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


class GroupPlay:
    """One group and its members; `lines` collects what comes out of it."""

    def __init__(self, delay_ms: int = 0, max_size: int = 1 << 30) -> None:
        self.now = 1_000_000
        self.group = Group("orders", GroupSettings(delay_ms, max_size), self.now)
        self.ids: dict[str, str] = {}
        """The member id that each name knows."""
        self.generations: dict[str, int] = {}
        self.leaders: dict[str, str] = {}
        self.assignments: dict[str, bytes] = {}
        self.writes: list[WriteGroup] = []
        self.open: list[tuple[str, str]] = []
        """(kind, name) of requests that are not answered."""
        self.lines: list[str] = []
        self._numbers: dict[str, int] = {}

    # --- what members do --------------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        protocols: Mapping[str, bytes] | None = None,
        instance: str | None = None,
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        member_id: str | None = None,
        reason: str = "",
    ) -> None:
        """Send JoinGroup; a first one that is told to come back with an id (79) does so at once."""
        chosen = {"range": subscription("t")} if protocols is None else protocols
        known = self.ids.get(name, "") if member_id is None else member_id
        self._numbers[name] = number = self._numbers.get(name, 0) + (not known)
        request = JoinRequest(
            member_id=known,
            group_instance_id=instance,
            client_id=name,
            client_host="/host",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type="consumer",
            protocols=tuple(chosen.items()),
            new_member_id=f"{name}-{number}",
            requires_member_id=version >= 4,
            can_skip_assignment=version >= 9,
            reason=reason,
        )
        token = ("join", name)
        self.open.append(token)
        self.tell(self.group.join(request, token, self.now))

    def sync(self, name: str, shares: Mapping[str, bytes] | None = None, generation: int | None = None) -> None:
        """Send SyncGroup; shares are by the members' names."""
        token = ("sync", name)
        self.open.append(token)
        assignments = {self.ids.get(each, each): share for each, share in (shares or {}).items()}
        known = self.generations.get(name, -1) if generation is None else generation
        self.tell(
            self.group.sync(
                self.ids.get(name, ""),
                None,
                known,
                ("consumer", self.group.protocol_name),
                assignments,
                token,
                self.now,
            )
        )

    def heartbeat(self, name: str) -> ErrorCode:
        error = self.group.heartbeat(self.ids.get(name, ""), None, self.generations.get(name, -1), self.now)
        self.lines.append(f"{name} is alive: {error.name}")
        self.tell([])
        return error

    def leave(self, name: str, instance: str | None = None, reason: str = "") -> None:
        member_id = self.ids.get(name, "") if instance is None else ""
        errors, instructions = self.group.leave([Leaving(member_id, instance, reason)], self.now)
        self.lines.append(f"{name} leaves: {errors[0].name}")
        self.tell(instructions)

    def commit_error(self, name: str, generation: int | None = None) -> ErrorCode:
        known = self.generations.get(name, -1) if generation is None else generation
        return self.group.commit_error(self.ids.get(name, ""), None, known, self.now)

    # --- what else happens ------------------------------------------------------------------------------------

    def wait(self, ms: int) -> None:
        """Let time pass, ticking whenever the group wants it."""
        end = self.now + ms
        while self.group.deadline <= end:
            before = self.group.deadline
            self.now = max(self.now, before)
            self.tell(self.group.tick(self.now))
            assert self.group.deadline > self.now or self.group.deadline == NEVER
        self.now = end

    def written(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest write is acknowledged, or has failed."""
        write = self.writes.pop(0)
        self.tell(self.group.written(write.ticket, error, self.now))

    def die(self) -> None:
        self.tell(self.group.die(self.now))

    def form(self, *names: str) -> None:
        """Let these members come to a Stable generation, the first of them leading a fresh group."""
        for name in names:
            self.join(name, version=3)
        for name in names:
            if ("join", name) not in self.open and self.group.state is GroupState.PREPARING_REBALANCE:
                self.join(name)
        for name in sorted(names, key=lambda each: self.ids[each] != self.group.leader):
            self.sync(name, {each: each.encode() for each in names})
            while self.writes:
                self.written()
        assert self.group.state is GroupState.STABLE

    # --- what comes out ---------------------------------------------------------------------------------------

    def tell(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, WriteGroup):
                self.writes.append(instruction)
                self.lines.append(f"write generation {instruction.value.generation} of {self._all(instruction)}")
                continue
            assert isinstance(instruction, AnswerJoin | AnswerSync)
            kind, name = cast(tuple[str, str], instruction.request)
            self.open.remove((kind, name))
            if isinstance(instruction, AnswerJoin):
                self._joined(name, instruction.answer)
            else:
                self._synced(name, instruction.answer)
        self.group.check()
        self.group.offsets.check()

    def _all(self, write: WriteGroup) -> str:
        return " ".join(member.member_id for member in write.value.members) or "nobody"

    def _joined(self, name: str, answer: JoinAnswer) -> None:
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.ids[name] = answer.member_id
            self.lines.append(f"{name} shall be {answer.member_id}")
        elif answer.error is not ErrorCode.NONE:
            if answer.error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.ids.pop(name, None)
            self.lines.append(f"{name} cannot join: {answer.error.name}")
        else:
            self.ids[name] = answer.member_id
            self.generations[name] = answer.generation_id
            self.leaders[name] = answer.leader
            members = " ".join(member_id for member_id, _, _ in answer.members)
            told = f" of {members}" if members else ""
            skip = ", its assignment stands" if answer.skip_assignment else ""
            self.lines.append(
                f"{name} joined as {answer.member_id}: generation {answer.generation_id}, {answer.protocol_name}, "
                f"leader {answer.leader}{told}{skip}"
            )

    def _synced(self, name: str, answer: SyncAnswer) -> None:
        if answer.error is ErrorCode.NONE:
            self.assignments[name] = answer.assignment
            self.lines.append(f"{name} has {answer.assignment.decode('utf-8', 'replace') or 'nothing'}")
        else:
            self.lines.append(f"{name} gets no assignment: {answer.error.name}")

    def text(self) -> str:
        """Return the lines so far, with the group's state last, and forget them."""
        lines, self.lines = self.lines, []
        state = f"= {self.group.state.value} {self.group.generation_id}"
        return "\n".join(f"    {line}" for line in (*lines, state))
