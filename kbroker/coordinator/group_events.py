"""What goes into a group's state machine and what comes out: requests, answers, instructions (pure values)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kbroker.coordinator.member import Protocols
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.internal_topics import GroupMetadataValue


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup request, for a group that exists."""

    member_id: str
    """Empty: the member is new, and `new_member_id` is what it would be called."""
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    new_member_id: str = ""
    requires_member_id: bool = True
    """Version 4 on: a new dynamic member gets its id by error 79 and joins again with it (KIP-394)."""
    can_skip_assignment: bool = True
    """Version 9 on (KIP-814)."""
    reason: str = ""
    """Why the member joins, in its words (version 8 on, KIP-800)."""


class Leaving(NamedTuple):
    """One of the members that a LeaveGroup request takes out."""

    member_id: str
    """Empty: whoever has the instance id."""
    group_instance_id: str | None
    reason: str = ""
    """In the member's words, or those of who removes it (version 5 on, KIP-800)."""


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """What a JoinGroup request gets."""

    error: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """(member id, instance id, metadata) of all; for the leader only."""


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """What a SyncGroup request gets."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class AnswerJoin:
    """Answer the JoinGroup request that came with this token."""

    request: object
    answer: JoinAnswer


@dataclass(frozen=True, slots=True)
class AnswerSync:
    """Answer the SyncGroup request that came with this token."""

    request: object
    answer: SyncAnswer


@dataclass(frozen=True, slots=True)
class WriteGroup:
    """Append the group's record; when that is acknowledged, or has failed, call `group.written(ticket, …)`."""

    ticket: int
    value: GroupMetadataValue


Instruction = AnswerJoin | AnswerSync | WriteGroup


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's keys that a group's decisions depend on."""

    initial_rebalance_delay_ms: int = 3000
    max_size: int = (1 << 31) - 1
