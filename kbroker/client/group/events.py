"""What a member of a group is told to do: by its state machine to the driver, and through poll to the application."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kbroker.client.group.subscriptions import Subscription
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.schema import Message

NEVER = 1 << 62
"""A deadline that does not come, in ms."""


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What stays the same as long as the consumer lives; times in ms."""

    group_id: str
    instance_id: str | None = None
    rack: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """How long the application may stay away from poll; also how long it has to let go in a rebalance."""
    retry_backoff_ms: int = 100
    server_assignor: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who commits: the generation (or member epoch) and the member; -1 and "" outside of a group."""

    generation: int = -1
    member_id: str = ""


# What the driver does.


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Find the group's coordinator, then call `coordinator_found`."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to the coordinator and hand its answer, or what went wrong, to `answered` or `failed`."""

    request: Message


@dataclass(frozen=True, slots=True)
class ShareOut:
    """This member leads: share the partitions out by the named assignor, then call `shared_out`."""

    assignor: str
    members: Mapping[str, Subscription]


@dataclass(frozen=True, slots=True)
class Fail:
    """The membership has ended for good: tell the application."""

    code: ErrorCode
    message: str


Instruction = FindCoordinator | Send | ShareOut | Fail

# What the application has to go along with, between two calls of poll.


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Let go of partitions; `lost`: others may have them already, nothing can be committed any more."""

    partitions: tuple[TopicPartition, ...]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The new assignment: first let go of `revoked`, then begin with `added`."""

    partitions: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    revoked: tuple[TopicPartition, ...] = ()


Work = GiveUp | TakeOver


def may_own(owned: tuple[TopicPartition, ...], work: Work) -> tuple[TopicPartition, ...]:
    """Return what the application may have while it goes along."""
    return tuple(sorted({*owned, *work.added})) if isinstance(work, TakeOver) else owned


def owned_after(owned: tuple[TopicPartition, ...], work: Work) -> tuple[TopicPartition, ...]:
    """Return what the application has when it has gone along."""
    return work.partitions if isinstance(work, TakeOver) else tuple(sorted({*owned}.difference(work.partitions)))


class Member(Protocol):
    """A member's state machine, of either protocol. `now` is in ms; each event returns what is to be done."""

    owned: tuple[TopicPartition, ...]

    @property
    def identity(self) -> Identity:
        """As which it commits."""

    @property
    def is_stale(self) -> bool:
        """Whether it has left because the application did not poll."""

    @property
    def deadline(self) -> int:
        """When `tick` is due, NEVER when nothing is."""

    @property
    def work(self) -> Work | None:
        """What the application has to go along with now."""

    def subscribe(self, topics: tuple[str, ...], now: int) -> list[Instruction]:
        """The wanted topics are these now."""

    def coordinator_found(self, now: int) -> list[Instruction]:
        """Requests can be sent (again)."""

    def answered(self, request: Message, answer: Any, now: int) -> list[Instruction]:
        """An answer has come."""

    def failed(self, request: Message, now: int) -> list[Instruction]:
        """No answer will come: the connection ended, or the time is over."""

    def polling(self, is_polling: bool, now: int) -> list[Instruction]:
        """The application has called poll, or come back from it."""

    def work_begun(self, work: Work) -> None:
        """The application goes along, until `work_done`: what the member has changes behind that alone."""

    def work_done(self, work: Work, now: int) -> list[Instruction]:
        """The application has gone along."""

    def commit_refused(self, code: ErrorCode, identity: Identity, now: int) -> list[Instruction]:
        """A commit was answered with an error."""

    def tick(self, now: int) -> list[Instruction]:
        """Do what is due."""

    def leave(self, reason: str, now: int) -> list[Instruction]:
        """End the membership; `subscribe` begins another."""
