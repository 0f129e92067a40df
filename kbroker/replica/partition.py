"""One partition as one of its replicas sees it: role, epochs, ISR, high watermark. Pure: no disk, no clock, no socket.

Events are methods; what has to be done outside comes back as instructions. The two events of the data path return only
whether the high watermark moved, since nothing else can follow from them.

    event                                   instructions
    become_leader(assignment, …)            StopFetching, AssignLeaderEpoch, HighWatermarkMoved
    become_follower(assignment)             StopFetching, StartFetching
    log_grew(log_end_offset, …)             (bool: high watermark moved)
    follower_fetched(follower, offset, …)   HighWatermarkMoved, ProposeIsr
    follower_is_astray(follower)
    check_isr(now)                          ProposeIsr
    isr_changed / isr_refused               HighWatermarkMoved, ProposeIsr
    alive_changed                           HighWatermarkMoved

Facts: a follower's fetch offset is its log end offset. A replica is caught up when its log end offset is the leader's,
or was within the last `replica.lag.time.max.ms`. The high watermark is the lowest log end offset of all who count.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import Enum

from kbroker.protocol.errors import ErrorCode

UNKNOWN_OFFSET = -1
NEVER = 0
REFUSED_MS = 1_000
"""How long a follower that the controller does not want in the ISR is left alone."""


class Role(Enum):
    """What this broker is for the partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a LeaderAndIsr request says about one partition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class StopFetching:
    """The partition is no longer fetched from its former leader."""


@dataclass(frozen=True, slots=True)
class StartFetching:
    """Fetch from this leader, beginning where the log ends (or at the high watermark when no epoch is known)."""

    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class AssignLeaderEpoch:
    """Note in the log that this epoch begins here."""

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class HighWatermarkMoved:
    """Tell the log and whoever waits for it."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Ask the controller for this ISR (AlterPartition)."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    broker_epochs: Mapping[int, int] = field(default_factory=dict, compare=False)
    """Of the other members as they were when this was decided: who came back since may lack what it had."""


Instruction = StopFetching | StartFetching | AssignLeaderEpoch | HighWatermarkMoved | ProposeIsr


class RemoteReplica:
    """What the leader knows of one follower."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "refused_until_ms",
    )

    def __init__(self, caught_up_ms: int) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_log_end_offset = 0
        self.last_fetch_ms = NEVER
        self.last_caught_up_ms = caught_up_ms
        """`NEVER`, or when the follower last had all the leader had."""
        self.broker_epoch = -1
        self.refused_until_ms = NEVER
        """The controller did not want it in the ISR (it is about to stop): it is not proposed again before."""

    def fetched(self, offset: int, log_start_offset: int, leader_log_end_offset: int, now_ms: int) -> None:
        """The follower asked for the records from `offset` on: it has all below."""
        if offset >= leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_log_end_offset = leader_log_end_offset
        self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_log_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether the follower belongs into the ISR by what it has."""
        return self.log_end_offset == leader_log_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms


class Partition:
    """The state of one partition on one broker. See the module's table of events."""

    __slots__ = (
        "adding_replicas",
        "broker_id",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "log_end_offset",
        "max_lag_ms",
        "min_insync_replicas",
        "partition",
        "partition_epoch",
        "proposed_isr",
        "remotes",
        "removing_replicas",
        "replicas",
        "role",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        broker_id: int,
        log_end_offset: int = 0,
        high_watermark: int = 0,
        min_insync_replicas: int = 1,
        max_lag_ms: int = 30_000,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.broker_id = broker_id
        self.role = Role.NONE
        self.leader: int | None = None
        self.leader_epoch = -1
        """Grows with every election; -1 until the first LeaderAndIsr."""
        self.partition_epoch = -1
        """Version of the state znode that the ISR was taken from."""
        self.leader_epoch_start_offset: int | None = None
        """Log end offset when this broker became leader in this epoch; None on a follower."""
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """As last decided by the controller; empty on a follower."""
        self.proposed_isr: tuple[int, ...] | None = None
        """What the controller was asked for and has not answered yet: one change in flight at most."""
        self.remotes: dict[int, RemoteReplica] = {}
        """On a leader: every other replica."""
        self.log_end_offset = log_end_offset
        """The local log's end as far as it counts: with `flush.messages` set, what is on disk."""
        self.high_watermark = high_watermark
        """Exclusive; never above log_end_offset; never moves back on a leader."""
        self.min_insync_replicas = min_insync_replicas
        self.max_lag_ms = max_lag_ms

    # --- what it says about itself ----------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.role is Role.LEADER

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR with a member that is being added, and with those being removed."""
        if self.proposed_isr is None:
            return self.isr
        return self.isr + tuple(member for member in self.proposed_isr if member not in self.isr)

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, but never more than there are replicas."""
        return min(self.min_insync_replicas, max(len(self.replicas), 1))

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether an acks=all append may begin."""
        in_sync = len(self.isr)
        return in_sync >= self.min_insync_replicas or in_sync >= self.effective_min_isr

    @property
    def is_offset_available(self) -> bool:
        """Whether a new leader knows what is committed: until then a look-up of the latest offset could go back."""
        return self.leader_epoch_start_offset is None or self.high_watermark >= self.leader_epoch_start_offset

    def leader_error(self, current_leader_epoch: int, leader_only: bool) -> ErrorCode:
        """Return why a request with this leader epoch (-1: no check) is refused: 74, 75, 6, or NONE."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if leader_only and self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def assignment_error(self, assignment: Assignment) -> ErrorCode:
        """Return why a LeaderAndIsr entry is refused, or NONE."""
        if assignment.leader_epoch <= self.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.broker_id not in assignment.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    # --- orders of the controller -----------------------------------------------------------------------------

    def become_leader(
        self,
        assignment: Assignment,
        log_end_offset: int,
        now_ms: int,
        alive: Container[int],
        counted_to: int | None = None,
    ) -> list[Instruction]:
        """The controller made this broker the leader. The log exists and ends at `log_end_offset`.

        `counted_to`: as far as it counts, unless all does (see `log_end_offset`).
        """
        if assignment.partition_epoch < self.partition_epoch:
            return []
        was_following = self.role is Role.FOLLOWER
        new_epoch = assignment.leader_epoch > self.leader_epoch
        self._take_over(assignment)
        self.role = Role.LEADER
        self.isr = assignment.isr
        self.proposed_isr = None
        self.log_end_offset = log_end_offset if counted_to is None else max(counted_to, self.high_watermark)
        self._reset_remotes(new_epoch, now_ms)
        instructions: list[Instruction] = [StopFetching()] if was_following else []
        if new_epoch:
            self.leader_epoch_start_offset = log_end_offset
            instructions.append(AssignLeaderEpoch(assignment.leader_epoch, log_end_offset))
        if self._advance_high_watermark(now_ms, alive):
            instructions.append(HighWatermarkMoved(self.high_watermark))
        return instructions

    def become_follower(self, assignment: Assignment) -> list[Instruction]:
        """The controller made another broker the leader, or nobody (-1): then there is nobody to fetch from."""
        if assignment.partition_epoch < self.partition_epoch:
            return []
        was_following = self.role is Role.FOLLOWER
        new_epoch = assignment.leader_epoch > self.leader_epoch
        self._take_over(assignment)
        self.role = Role.FOLLOWER
        self.isr = ()
        self.proposed_isr = None
        self.remotes = {}
        self.leader_epoch_start_offset = None
        if not new_epoch:
            return []
        instructions: list[Instruction] = [StopFetching()] if was_following else []
        if assignment.leader >= 0:
            instructions.append(StartFetching(assignment.leader, assignment.leader_epoch))
        return instructions

    def stop(self) -> None:
        """The controller took the replica away from this broker (StopReplica), or its disk failed."""
        self.role = Role.NONE
        self.isr = ()
        self.proposed_isr = None
        self.remotes = {}
        self.leader_epoch_start_offset = None

    def _take_over(self, assignment: Assignment) -> None:
        self.leader = assignment.leader if assignment.leader >= 0 else None
        self.leader_epoch = assignment.leader_epoch
        self.partition_epoch = assignment.partition_epoch
        self.replicas = assignment.replicas
        self.adding_replicas = assignment.adding_replicas
        self.removing_replicas = assignment.removing_replicas

    def _reset_remotes(self, new_epoch: bool, now_ms: int) -> None:
        former = self.remotes
        self.remotes = {}
        for replica in self.replicas:
            if replica == self.broker_id:
                continue
            kept = None if new_epoch else former.get(replica)
            self.remotes[replica] = kept or RemoteReplica(now_ms if replica in self.isr else NEVER)

    # --- the data path ----------------------------------------------------------------------------------------

    def log_grew(self, log_end_offset: int, now_ms: int, alive: Container[int]) -> bool:
        """The leader's own log now counts up to here; True when the high watermark moved. Nothing, unless it leads."""
        if self.role is not Role.LEADER:
            return False
        # It never shrinks in a term of leadership: who hears of a flush that has ended may have counted later batches.
        log_end_offset = self.log_end_offset = max(self.log_end_offset, log_end_offset)
        if not self.remotes:
            # A single replica is always in its own ISR; min.insync.replicas never asks for more than exist.
            if log_end_offset <= self.high_watermark:
                return False
            self.high_watermark = log_end_offset
            return True
        return self._advance_high_watermark(now_ms, alive)

    def follower_log_changed(self, log_end_offset: int, leader_high_watermark: int, log_start_offset: int) -> bool:
        """A follower appended or truncated; True when the high watermark moved."""
        self.log_end_offset = log_end_offset
        high_watermark = max(min(leader_high_watermark, log_end_offset), log_start_offset)
        moved = high_watermark != self.high_watermark
        self.high_watermark = high_watermark
        return moved

    def follower_fetched(
        self,
        follower: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        alive: Container[int],
        leader_log_end_offset: int,
        broker_epoch: int = -1,
    ) -> list[Instruction]:
        """A follower asked for records from `fetch_offset` on. It is one of the replicas (the caller has checked)."""
        remote = self.remotes[follower]
        remote.broker_epoch = broker_epoch
        remote.fetched(fetch_offset, log_start_offset, leader_log_end_offset, now_ms)
        instructions: list[Instruction] = []
        if self._may_join(follower, remote, now_ms, alive):
            instructions.append(self._propose((*self.isr, follower)))
        if self._advance_high_watermark(now_ms, alive):
            instructions.append(HighWatermarkMoved(self.high_watermark))
        return instructions

    def follower_is_astray(self, follower: int) -> None:
        """A follower asked for what this log does not have: what it has of it is not known any more.

        It must not stay in the ISR for where it was once, though nothing is written.
        """
        self.remotes[follower].log_end_offset = UNKNOWN_OFFSET

    def _may_join(self, follower: int, remote: RemoteReplica, now_ms: int, alive: Container[int]) -> bool:
        return (
            self.proposed_isr is None
            and follower not in self.isr
            and follower in alive
            and now_ms >= remote.refused_until_ms
            and remote.log_end_offset >= self.high_watermark
            and self.leader_epoch_start_offset is not None
            and remote.log_end_offset >= self.leader_epoch_start_offset
        )

    def _advance_high_watermark(self, now_ms: int, alive: Container[int]) -> bool:
        if self.role is not Role.LEADER or not self.has_enough_in_sync:
            return False
        lowest = self.log_end_offset
        maximal = self.maximal_isr
        for broker_id, remote in self.remotes.items():
            if remote.log_end_offset >= lowest:
                continue
            # A replica on its way into the ISR holds the high watermark back, or it could never catch up with it.
            if broker_id in maximal or (
                broker_id in alive
                and now_ms >= remote.refused_until_ms
                and remote.is_caught_up(self.log_end_offset, now_ms, self.max_lag_ms)
            ):
                lowest = remote.log_end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def alive_changed(self, now_ms: int, alive: Container[int]) -> list[Instruction]:
        """Brokers came or went: one that has gone holds the high watermark back no longer, unless it is in the ISR."""
        return [HighWatermarkMoved(self.high_watermark)] if self._advance_high_watermark(now_ms, alive) else []

    # --- the ISR ----------------------------------------------------------------------------------------------

    def check_isr(self, now_ms: int, leader_log_end_offset: int) -> list[Instruction]:
        """Propose to leave out those members which have not been caught up for too long."""
        if self.role is not Role.LEADER or self.proposed_isr is not None:
            return []
        slow = {
            member
            for member in self.isr
            if member != self.broker_id and not self._is_caught_up(member, leader_log_end_offset, now_ms)
        }
        if not slow:
            return []
        return [self._propose(tuple(member for member in self.isr if member not in slow))]

    def _is_caught_up(self, member: int, leader_log_end_offset: int, now_ms: int) -> bool:
        """Whether a member of the ISR belongs there; one that a reassignment took the replica from no longer does."""
        remote = self.remotes.get(member)
        return remote is not None and remote.is_caught_up(leader_log_end_offset, now_ms, self.max_lag_ms)

    def isr_changed(
        self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int, now_ms: int, alive: Container[int]
    ) -> list[Instruction]:
        """The controller answered AlterPartition with the state as it is now."""
        if self.role is not Role.LEADER or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return []
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.proposed_isr = None
        return [HighWatermarkMoved(self.high_watermark)] if self._advance_high_watermark(now_ms, alive) else []

    def isr_refused(
        self, proposal: ProposeIsr, error: ErrorCode, now_ms: int, alive: Container[int]
    ) -> list[Instruction]:
        """The controller refused AlterPartition for this partition."""
        if self.proposed_isr != proposal.isr or proposal.leader_epoch != self.leader_epoch:
            return []
        if error in _BACK_TO_COMMITTED:
            self.proposed_isr = None
            for member in proposal.isr:
                if member not in self.isr:
                    self.remotes[member].refused_until_ms = now_ms + REFUSED_MS
            return [HighWatermarkMoved(self.high_watermark)] if self._advance_high_watermark(now_ms, alive) else []
        return [] if error in _WAIT_FOR_CONTROLLER else [proposal]

    def _propose(self, isr: tuple[int, ...]) -> ProposeIsr:
        self.proposed_isr = isr
        epochs = {member: remote.broker_epoch for member, remote in self.remotes.items() if member in isr}
        return ProposeIsr(isr, self.leader_epoch, self.partition_epoch, epochs)

    # --- invariants -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold at any time."""
        assert 0 <= self.high_watermark <= self.log_end_offset, (self.high_watermark, self.log_end_offset)
        if self.role is Role.LEADER:
            assert self.leader == self.broker_id
            assert self.broker_id in self.replicas
            assert set(self.remotes) == set(self.replicas) - {self.broker_id}
            assert self.leader_epoch_start_offset is not None
            assert self.proposed_isr is None or self.broker_id in self.proposed_isr
        else:
            assert self.isr == ()
            assert self.proposed_isr is None
            assert not self.remotes
            assert self.leader_epoch_start_offset is None


_BACK_TO_COMMITTED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_WAIT_FOR_CONTROLLER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
