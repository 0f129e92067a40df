"""Brokers, topics, assignments and leaders as the controller knows them, and what must always hold of them (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

from kbroker.controller.znodes import (
    NO_LEADER,
    BrokerRegistration,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)

NO_TOPIC_ID = bytes(16)
FORGOTTEN_AT_ONCE = 5_000
"""Entries: to free that many takes about a millisecond."""


class PartitionStatus(Enum):
    """Where a partition stands in its life."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaStatus(Enum):
    """Where a replica stands in its life."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_WAITING = PartitionStatus.NEW, PartitionStatus.OFFLINE
"""For a leader."""

Replica = tuple[TopicPartition, int]
"""A partition and the broker that holds it."""


class ControllerState:
    """Everything the machine decides by. Only its procedures change it."""

    def __init__(self) -> None:
        self.epoch = 0
        """Our controller epoch; 0 when we are not the controller."""
        self.brokers: dict[int, BrokerRegistration] = {}
        """All registered brokers, those shutting down too."""
        self.shutting_down: set[int] = set()
        self.offline_partitions: dict[int, set[TopicPartition]] = {}
        """Per broker, the partitions in log directories it has lost."""
        self.topic_ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        self.topic_versions: dict[str, int] = {}
        """Of the topics' znodes, as we last read or wrote them."""
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        """Topic → partition → replicas."""
        self.leadership: dict[TopicPartition, PartitionState] = {}
        """What the state nodes hold, as far as we know; partitions without a node are missing. `take` changes it."""
        self.partition_status: dict[TopicPartition, PartitionStatus] = {}
        """Online means: there is a leader, on a broker that is there. `set_status` changes it."""
        self.replica_status: dict[Replica, ReplicaStatus] = {}
        self.leaderless: dict[TopicPartition, None] = {}
        """Partitions that are New or Offline, in the order in which they became so."""
        self.reassigning: set[TopicPartition] = set()
        self.topics_to_delete: set[str] = set()
        self.deletion_started: set[str] = set()
        """Topics to delete whose partitions are NonExistent by now: these have no leaders any more."""
        self.deletion_ineligible: set[str] = set()
        """Topics to delete that have to wait: for an absent broker, for a reassignment."""
        self._on_broker: defaultdict[int, dict[TopicPartition, None]] = defaultdict(dict)

    # --- brokers ---

    def is_live(self, broker_id: int) -> bool:
        """Registered and not shutting down."""
        return broker_id in self.brokers and broker_id not in self.shutting_down

    def is_of_this_life(self, broker_id: int, request: Any) -> bool:
        """Whether the request was meant for the broker as it is registered now: what came before says nothing."""
        broker = self.brokers.get(broker_id)
        return broker is not None and bool(request.broker_epoch == broker.epoch)

    def is_online(self, broker_id: int, partition: TopicPartition) -> bool:
        """Whether the replica on that broker can lead: broker live, log directory not lost."""
        return broker_id not in self.shutting_down and self.can_serve(broker_id, partition)

    def can_serve(self, broker_id: int, partition: TopicPartition) -> bool:
        """As `is_online`, brokers that are shutting down included."""
        lost = self.offline_partitions.get(broker_id)
        return broker_id in self.brokers and (not lost or partition not in lost)

    def online(self, replicas: Sequence[int], partition: TopicPartition) -> Sequence[int]:
        """Those of the replicas that are online, in their order: the replicas themselves, if all are."""
        brokers, stopping, lost = self.brokers, self.shutting_down, self.offline_partitions
        there = [
            each
            for each in replicas
            if each in brokers and each not in stopping and not (lost and partition in lost.get(each, ()))
        ]
        return there if len(there) < len(replicas) else replicas

    # --- topics ---

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment | None:
        """The replicas of a partition, None when it is unknown."""
        topic = self.assignments.get(partition.topic)
        return topic.get(partition.partition) if topic is not None else None

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """The replicas of a partition in order; none when it is unknown."""
        assignment = self.assignment(partition)
        return assignment.replicas if assignment is not None else ()

    def set_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Take over a partition's replicas."""
        topic = self.assignments.setdefault(partition.topic, {})
        previous = topic.get(partition.partition)
        for replica in previous.replicas if previous is not None else ():
            self._on_broker[replica].pop(partition, None)
        for replica in assignment.replicas:
            self._on_broker[replica][partition] = None
        topic[partition.partition] = assignment

    def add_topic(self, name: str, topic: TopicAssignment) -> list[TopicPartition]:
        """Take over a topic's id and its partitions; those that were unknown are given back."""
        if topic.topic_id is not None:
            self.topic_ids[name] = topic.topic_id
            self._names[topic.topic_id] = name
        self.topic_versions[name] = topic.version
        known = self.assignments.setdefault(name, {})
        added = []
        for number, assignment in topic.partitions.items():
            partition = TopicPartition(name, number)
            if number not in known:
                added.append(partition)
            self.set_assignment(partition, assignment)
            if assignment.is_being_reassigned:
                self.reassigning.add(partition)
        return added

    def remove_topic(self, name: str) -> None:
        """Forget a topic and all that belongs to it."""
        for partition in self.partitions_of(name):
            for replica in self.replicas(partition):
                self._on_broker[replica].pop(partition, None)
                self.replica_status.pop((partition, replica), None)
            self.leadership.pop(partition, None)
            self.set_status(partition, PartitionStatus.NON_EXISTENT)
            self.reassigning.discard(partition)
            for lost in self.offline_partitions.values():
                lost.discard(partition)
        self.assignments.pop(name, None)
        self._names.pop(self.topic_ids.pop(name, NO_TOPIC_ID), None)
        self.topic_versions.pop(name, None)
        for topics in (self.topics_to_delete, self.deletion_started, self.deletion_ineligible):
            topics.discard(name)

    def topic(self, name: str) -> TopicAssignment:
        """What the topic's node holds, as far as we know."""
        return TopicAssignment(self.topic_ids.get(name), dict(self.assignments[name]), self.topic_versions[name])

    def partitions(self) -> Iterator[TopicPartition]:
        """All partitions."""
        for topic, partitions in self.assignments.items():
            for number in partitions:
                yield TopicPartition(topic, number)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic."""
        return [TopicPartition(topic, number) for number in self.assignments.get(topic, ())]

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        """All partitions that have a replica on the broker."""
        return list(self._on_broker.get(broker_id, ()))

    def holders(self) -> set[int]:
        """The brokers that have replicas, whether or not they are there."""
        return {broker_id for broker_id, partitions in self._on_broker.items() if partitions}

    def replicas_on(self, broker_ids: Iterable[int]) -> list[Replica]:
        """All replicas on these brokers."""
        return [(partition, each) for each in sorted(broker_ids) for partition in self.partitions_on(each)]

    def replicas_of(self, topic: str) -> list[Replica]:
        """All replicas of a topic."""
        return [(each, replica) for each in self.partitions_of(topic) for replica in self.replicas(each)]

    def topic_id(self, topic: str) -> bytes:
        """The topic's id, zeros when it has none."""
        return self.topic_ids.get(topic, NO_TOPIC_ID)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic that has this id."""
        return self._names.get(topic_id)

    def is_being_deleted(self, topic: str) -> bool:
        """Whether the topic is marked for deletion."""
        return topic in self.topics_to_delete

    def is_going(self, topic: str) -> bool:
        """Whether the topic's deletion has begun; one that is only marked lives on, it may have to wait for long."""
        return topic in self.deletion_started

    def is_elected(self, partition: TopicPartition) -> bool:
        """Whether the partition gets a leader when it has none: one to be deleted only while it has to move first."""
        return partition.topic not in self.topics_to_delete or partition in self.reassigning

    def status(self, partition: TopicPartition) -> PartitionStatus:
        """Where the partition stands; one we do not know is NonExistent."""
        return self.partition_status.get(partition, PartitionStatus.NON_EXISTENT)

    def set_status(self, partition: TopicPartition, status: PartitionStatus) -> None:
        """The partition stands there from now on."""
        if status is PartitionStatus.NON_EXISTENT:
            self.partition_status.pop(partition, None)
        else:
            self.partition_status[partition] = status
        if status in _WAITING:
            self.leaderless[partition] = None
        else:
            self.leaderless.pop(partition, None)

    def take(self, partition: TopicPartition, known: PartitionState) -> None:
        """Take over what a partition's node holds. One that has lost its leader waits for an election from then on."""
        self.leadership[partition] = known
        if known.leader == NO_LEADER and self.status(partition) is PartitionStatus.ONLINE:
            self.set_status(partition, PartitionStatus.OFFLINE)

    def replica_state(self, replica: Replica) -> ReplicaStatus:
        """Where the replica stands; one we do not know is NonExistent."""
        return self.replica_status.get(replica, ReplicaStatus.NON_EXISTENT)

    # --- the end ---

    def forget(self) -> Iterator[None]:
        """Drop all that is known, bit by bit: who leaves that of a large cluster to its last reference frees all of it
        in one turn of the loop. To be taken where nobody goes by this state any more."""
        tables: list[dict[Any, Any] | set[Any]] = []
        for nested in (self.assignments, self._on_broker, self.offline_partitions):
            tables += nested.values()
        tables += [each for each in vars(self).values() if isinstance(each, dict | set)]
        room = FORGOTTEN_AT_ONCE
        for table in tables:
            take = table.pop if isinstance(table, set) else table.popitem
            while table:
                count = min(len(table), room)
                for _ in range(count):
                    take()
                room -= count
                if not room:
                    yield
                    room = FORGOTTEN_AT_ONCE

    # --- invariants ---

    def check(self) -> None:
        """Assert what must always hold between two events."""
        for partition, known in self.leadership.items():
            assert partition.topic in self.assignments, f"{partition} has a state and no topic"
            assert known.isr, f"{partition} has an empty ISR"
            assert len(set(known.isr)) == len(known.isr), f"{partition} has a broker twice in its ISR"
            assert known.leader == NO_LEADER or known.leader in known.isr, f"{partition}: leader not in ISR"
            assert known.controller_epoch <= self.epoch, f"{partition} was written by a later controller"
        for partition, status in self.partition_status.items():
            if status is PartitionStatus.ONLINE:
                assert partition in self.leadership, f"{partition} is online and has no state"
                leader = self.leadership[partition].leader
                assert leader != NO_LEADER, f"{partition} is online and has no leader"
                assert self.can_serve(leader, partition), f"{partition} is online and its leader {leader} is not there"
        for topic, partitions in self.assignments.items():
            for number, assignment in partitions.items():
                partition = TopicPartition(topic, number)
                assert len(set(assignment.replicas)) == len(assignment.replicas), f"{partition}: replica twice"
                for replica in assignment.replicas:
                    assert partition in self._on_broker[replica], f"{partition} missing on broker {replica}"
                if assignment.is_being_reassigned:
                    assert partition in self.reassigning, f"{partition} moves and nobody knows"
        self._check_indexes()
        for topics in (self.deletion_started, self.deletion_ineligible):
            assert topics <= self.topics_to_delete, "a topic's deletion began that nobody asked for"
        assert self.shutting_down <= set(self.brokers), "a broker is shutting down that is not there"

    def _check_indexes(self) -> None:
        """What is kept twice, to be found fast, has to agree."""
        leaderless = {each for each, status in self.partition_status.items() if status in _WAITING}
        assert leaderless == set(self.leaderless), "the leaderless are not those without a leader"
        assert self._names == {topic_id: name for name, topic_id in self.topic_ids.items()}, "topic ids and names"
        held = {(each, broker_id) for broker_id, partitions in self._on_broker.items() for each in partitions}
        replicas = {(each, broker_id) for each in self.partitions() for broker_id in self.replicas(each)}
        assert held == replicas, "the brokers hold other replicas than the assignments say"
