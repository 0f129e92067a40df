"""What brokers are told after a decision: LeaderAndIsr, then UpdateMetadata, then StopReplica, one each per broker.

A batch collects while states change and is sent once at the end, from what the state holds then. Every partition told
of by LeaderAndIsr is also in the UpdateMetadata of all brokers. The versions are those of inter-broker protocol 3.9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kbroker.controller.instructions import Instruction, Pause, Send, Steps
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE, portions
from kbroker.controller.state import ControllerState
from kbroker.controller.znodes import BrokerRegistration, TopicPartition
from kbroker.protocol.messages.replication import (
    EPOCH_BEING_DELETED,
    LEADER_BEING_DELETED,
    STOP_REPLICA_VERSION,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)

LEADER_AND_ISR_VERSION = 7
UPDATE_METADATA_VERSION = 8
PARTITIONS_PER_REQUEST = 5_000
PARTITIONS_PER_UPDATE = 20_000
"""Requests stay bounded: they are put into bytes in one go, some hundred partitions in a ms. An update is so only once
for all brokers, and read by them in steps."""

LeaderAndIsrTopicState = LeaderAndIsrRequest.LeaderAndIsrTopicState
LeaderAndIsrState = LeaderAndIsrRequest.LeaderAndIsrPartitionState
_NO_EPOCH = -1
_SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class _Told:
    """What one LeaderAndIsr request tells."""

    def __init__(self) -> None:
        self.topics: list[LeaderAndIsrTopicState] = []
        self.leaders: set[int] = set()
        self.partitions = 0
        self._states: dict[str, list[LeaderAndIsrState]] = {}
        """Those of the topics, by name."""

    def add(self, name: str, topic_id: bytes, state: LeaderAndIsrState) -> None:
        """Tell of a partition, too."""
        states = self._states.get(name)
        if states is None:
            states = self._states[name] = []
            self.topics.append(LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id, partition_states=states))
        states.append(state)
        self.leaders.add(state.leader)
        self.partitions += 1


class RequestBatch:
    """Requests in the making. `controller_id` is our broker, `listener` the one that leaders are reached on."""

    def __init__(self, state: ControllerState, controller_id: int, listener: str) -> None:
        self._state = state
        self._controller_id = controller_id
        self._listener = listener
        self._leader_and_isr: dict[TopicPartition, tuple[int, ...]] = {}
        """Partition → the brokers that are told of it."""
        self._new: dict[TopicPartition, set[int]] = {}
        """Partition → those of them whose replica is new."""
        self._stop_replica: dict[int, dict[TopicPartition, bool]] = {}
        self._metadata_brokers: set[int] = set()
        self._is_metadata_for_all = False
        self._metadata_partitions: dict[TopicPartition, None] = {}

    def tell_leader_and_isr(
        self, broker_ids: Collection[int], partition: TopicPartition, *, is_new: bool = False
    ) -> None:
        """Tell these brokers who leads the partition, and all brokers' metadata too."""
        told = self._leader_and_isr.get(partition)
        self._leader_and_isr[partition] = tuple(dict.fromkeys((*(told or ()), *broker_ids)))
        if is_new:
            self._new.setdefault(partition, set()).update(broker_ids)
        self._metadata_partitions[partition] = None
        self._is_metadata_for_all = True

    def tell_metadata(self, partitions: Iterable[TopicPartition] = (), broker_ids: Iterable[int] | None = None) -> None:
        """Tell brokers (all: None) of these partitions, and of the live brokers."""
        if broker_ids is None:
            self._is_metadata_for_all = True
        else:
            self._metadata_brokers.update(broker_ids)
        self._metadata_partitions.update(dict.fromkeys(partitions))

    def tell_stop_replica(self, broker_id: int, partition: TopicPartition, *, delete: bool) -> None:
        """Tell a broker to let go of its replica, and perhaps to delete it."""
        partitions = self._stop_replica.setdefault(broker_id, {})
        partitions[partition] = delete or partitions.get(partition, False)

    def send(self) -> Steps[None]:
        """The requests, in Kafka's order, to brokers that are registered."""
        brokers = self._state.brokers
        if self._leader_and_isr:
            yield from self._send_leader_and_isr()
        told_of_metadata = set(brokers) if self._is_metadata_for_all else self._metadata_brokers & set(brokers)
        if told_of_metadata:
            yield from self._send_metadata(sorted(told_of_metadata))
        for broker_id in sorted(set(self._stop_replica) & set(brokers)):
            yield from self._send_stop_replica(brokers[broker_id])

    def _send_leader_and_isr(self) -> Steps[None]:
        told_to = yield from self._leader_and_isr_by_broker()
        since_pause = 0
        for broker_id in list(told_to):
            for told in told_to.pop(broker_id):
                yield self._leader_and_isr_request(self._state.brokers[broker_id], told)
                since_pause += told.partitions
                if since_pause >= PARTITIONS_PER_PAUSE:
                    since_pause = 0
                    yield Pause()

    def _leader_and_isr_by_broker(self) -> Steps[dict[int, list[_Told]]]:
        """Each partition's state is built once for all of its replicas."""
        told_to: dict[int, list[_Told]] = {broker_id: [] for broker_id in sorted(self._state.brokers)}
        for number, (partition, broker_ids) in enumerate(self._leader_and_isr.items(), 1):
            name, topic_id = partition.topic, self._state.topic_id(partition.topic)
            state, new = self._leader_and_isr_of(partition), self._new.get(partition, ())
            new_state = self._leader_and_isr_of(partition, is_new=True) if new else None
            for broker_id in broker_ids:
                one = new_state if broker_id in new else state
                requests = told_to.get(broker_id)
                if one is None or requests is None:
                    continue
                if not requests or requests[-1].partitions == PARTITIONS_PER_REQUEST:
                    requests.append(_Told())
                requests[-1].add(name, topic_id, one)
            if number % PARTITIONS_PER_PAUSE == 0:
                yield Pause()
        return told_to

    def _leader_and_isr_of(self, partition: TopicPartition, *, is_new: bool = False) -> LeaderAndIsrState | None:
        known, assignment = self._state.leadership.get(partition), self._state.assignment(partition)
        if known is None or assignment is None:
            return None
        return LeaderAndIsrState(
            partition_index=partition.partition,
            controller_epoch=known.controller_epoch,
            leader=known.leader,
            leader_epoch=known.leader_epoch,
            isr=known.isr,
            partition_epoch=known.partition_epoch,
            replicas=assignment.replicas,
            adding_replicas=assignment.adding_replicas,
            removing_replicas=assignment.removing_replicas,
            is_new=is_new,
            leader_recovery_state=known.leader_recovery_state,
        )

    def _leader_and_isr_request(self, broker: BrokerRegistration, told: _Told) -> Instruction:
        endpoints = [
            (leader, self._state.brokers[leader].endpoint(self._listener))
            for leader in sorted(told.leaders)
            if leader in self._state.brokers
        ]
        request = LeaderAndIsrRequest(
            controller_id=self._controller_id,
            is_kraft_controller=False,
            controller_epoch=self._state.epoch,
            broker_epoch=broker.epoch,
            type=0,
            topic_states=told.topics,
            live_leaders=[
                LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
                    broker_id=leader, host_name=endpoint.host, port=endpoint.port
                )
                for leader, endpoint in endpoints
                if endpoint is not None
            ],
        )
        return Send(broker.broker_id, request, LEADER_AND_ISR_VERSION)

    def _send_metadata(self, broker_ids: list[int]) -> Steps[None]:
        """The same partitions and brokers for all: built once, shared by the requests."""
        live_brokers = [_live_broker(self._state.brokers[each]) for each in sorted(self._state.brokers)]
        partitions = list(self._metadata_partitions)
        for portion in portions(partitions, PARTITIONS_PER_UPDATE) if partitions else ((),):
            topics: dict[str, list[UpdateMetadataRequest.UpdateMetadataPartitionState]] = {}
            for number, partition in enumerate(portion, 1):
                told = self._metadata_of(partition)
                if told is not None:
                    topics.setdefault(partition.topic, []).append(told)
                if number % PARTITIONS_PER_PAUSE == 0:
                    yield Pause()
            topic_states = [
                UpdateMetadataRequest.UpdateMetadataTopicState(
                    topic_name=topic, topic_id=self._state.topic_id(topic), partition_states=states
                )
                for topic, states in topics.items()
            ]
            for broker_id in broker_ids:
                request = UpdateMetadataRequest(
                    controller_id=self._controller_id,
                    is_kraft_controller=False,
                    controller_epoch=self._state.epoch,
                    broker_epoch=self._state.brokers[broker_id].epoch,
                    topic_states=topic_states,
                    live_brokers=live_brokers,
                )
                yield Send(broker_id, request, UPDATE_METADATA_VERSION)

    def _metadata_of(self, partition: TopicPartition) -> UpdateMetadataRequest.UpdateMetadataPartitionState | None:
        """None for a partition without a state: nothing is known of it that a client could use."""
        state = self._state
        known = state.leadership.get(partition)
        if known is None:
            return None
        replicas = state.replicas(partition)
        online = state.online(replicas, partition)
        is_going = state.is_being_deleted(partition.topic)
        return UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=known.controller_epoch,
            leader=LEADER_BEING_DELETED if is_going else known.leader,
            leader_epoch=0 if is_going else known.leader_epoch,
            isr=known.isr,
            zk_version=0 if is_going else known.partition_epoch,
            replicas=replicas,
            offline_replicas=() if online is replicas else [each for each in replicas if each not in online],
        )

    def _send_stop_replica(self, broker: BrokerRegistration) -> Steps[None]:
        told = list(self._stop_replica[broker.broker_id].items())
        for portion in portions(told, PARTITIONS_PER_REQUEST):
            topics: dict[str, list[StopReplicaRequest.StopReplicaPartitionState]] = {}
            for number, (partition, delete) in enumerate(portion, 1):
                known = self._state.leadership.get(partition)
                epoch = known.leader_epoch if known is not None else _NO_EPOCH
                topics.setdefault(partition.topic, []).append(
                    StopReplicaRequest.StopReplicaPartitionState(
                        partition_index=partition.partition,
                        leader_epoch=EPOCH_BEING_DELETED if self._state.is_being_deleted(partition.topic) else epoch,
                        delete_partition=delete,
                    )
                )
                if number % PARTITIONS_PER_PAUSE == 0:
                    yield Pause()
            request = StopReplicaRequest(
                controller_id=self._controller_id,
                is_kraft_controller=False,
                controller_epoch=self._state.epoch,
                broker_epoch=broker.epoch,
                topic_states=[
                    StopReplicaRequest.StopReplicaTopicState(topic_name=topic, partition_states=partitions)
                    for topic, partitions in topics.items()
                ],
            )
            yield Send(broker.broker_id, request, STOP_REPLICA_VERSION)


def _live_broker(broker: BrokerRegistration) -> UpdateMetadataRequest.UpdateMetadataBroker:
    return UpdateMetadataRequest.UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            UpdateMetadataRequest.UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=_SECURITY_PROTOCOLS.get(endpoint.security_protocol, 0),
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )
