"""Facts that come in: what happened in the cluster, what somebody asks for, and what became of an instruction (pure).

The runner hands the machine one event at a time: a result goes to the procedure that waits for it before any other
event is looked at. Listings carry what was read when the event's turn came, so they are never older than it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.controller.znodes import BrokerRegistration, Conflict, PartitionState, TopicAssignment, TopicPartition


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster as a newly elected controller reads it."""

    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    topics: dict[str, TopicAssignment] = field(default_factory=dict)
    partition_states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    topics_to_delete: frozenset[str] = frozenset()
    reassignments: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """Out of the legacy node /admin/reassign_partitions."""
    preferred_elections: tuple[TopicPartition, ...] = ()
    """Out of the legacy node /admin/preferred_replica_election."""


# --- what happens ---


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """We are the controller from now on."""

    epoch: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class TermEnded:
    """We are the controller no longer: session expired, another elected, or the broker stops."""


@dataclass(frozen=True, slots=True)
class BrokersListed:
    """All brokers registered now; who came, went, bounced or changed its listeners follows from it."""

    brokers: dict[int, BrokerRegistration]


@dataclass(frozen=True, slots=True)
class TopicsListed:
    """All topics there now."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class TopicsModified:
    """What some topics' nodes hold now."""

    topics: dict[str, TopicAssignment]


@dataclass(frozen=True, slots=True)
class TopicDeletionsListed:
    """All topics marked for deletion now."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class LogDirsFailed:
    """Brokers that lost a log directory; `paths` are the notifications to be removed."""

    broker_ids: frozenset[int]
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IsrChangesNotified:
    """Partitions whose leader (of an old version) wrote their state itself; `paths` are to be removed."""

    partitions: tuple[TopicPartition, ...]
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LegacyReassignmentsFound:
    """/admin/reassign_partitions appeared."""

    targets: dict[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class LegacyElectionsFound:
    """/admin/preferred_replica_election appeared."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered:
    """A broker's answer to the LeaderAndIsrRequest beside it."""

    broker_id: int
    request: Any
    response: Any


@dataclass(frozen=True, slots=True)
class StopReplicaAnswered:
    """A broker's answer to the StopReplicaRequest beside it."""

    broker_id: int
    request: Any
    response: Any


@dataclass(frozen=True, slots=True)
class BrokerFellBehind:
    """So much waited for a broker that it was dropped, but for the deletions of topics."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """Time to look whether too many partitions are led by others than their preferred leaders."""


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled:
    """unclean.leader.election.enable was turned on, for one topic or (None) by default."""

    topic: str | None = None


# --- what is asked for; `call` goes into the Answer ---


@dataclass(frozen=True, slots=True)
class AlterPartitionCalled:
    """A leader wants to change ISRs."""

    call: int
    request: Any
    version: int


@dataclass(frozen=True, slots=True)
class ControlledShutdownCalled:
    """A broker wants to stop."""

    call: int
    request: Any
    version: int


@dataclass(frozen=True, slots=True)
class ElectLeadersCalled:
    """An administrator wants other leaders."""

    call: int
    request: Any


@dataclass(frozen=True, slots=True)
class ReassignmentsCalled:
    """An administrator wants replicas moved."""

    call: int
    request: Any


# --- what became of an instruction ---


@dataclass(frozen=True, slots=True)
class Done:
    """An instruction without a result was carried out."""


@dataclass(frozen=True, slots=True)
class Failed:
    """ZooKeeper refused the instruction for good: raised in the procedure that gave it."""

    error: ZooKeeperError


@dataclass(frozen=True, slots=True)
class PartitionStatesWritten:
    """Per partition the state as written, or what stood in the way."""

    results: dict[TopicPartition, PartitionState | Conflict[PartitionState]]


@dataclass(frozen=True, slots=True)
class TopicsWritten:
    """Per topic the assignment as written, with its new version, or what stood in the way."""

    results: dict[str, TopicAssignment | Conflict[TopicAssignment]]


@dataclass(frozen=True, slots=True)
class PartitionStatesRead:
    """States of those partitions that have one."""

    states: dict[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """Assignments of those topics that are there."""

    topics: dict[str, TopicAssignment]


@dataclass(frozen=True, slots=True)
class TopicConfigsRead:
    """Overrides of topics."""

    configs: dict[str, dict[str, str]]


Result = Done | Failed | PartitionStatesWritten | TopicsWritten | PartitionStatesRead | TopicsRead | TopicConfigsRead
Event = (
    ControllerElected
    | TermEnded
    | BrokersListed
    | TopicsListed
    | TopicsModified
    | TopicDeletionsListed
    | LogDirsFailed
    | IsrChangesNotified
    | LegacyReassignmentsFound
    | LegacyElectionsFound
    | LeaderAndIsrAnswered
    | StopReplicaAnswered
    | BrokerFellBehind
    | RebalanceDue
    | UncleanElectionEnabled
    | AlterPartitionCalled
    | ControlledShutdownCalled
    | ElectLeadersCalled
    | ReassignmentsCalled
    | Result
)
