"""A cluster on paper: plays ZooKeeper and the brokers for a Machine, and writes down what happens.

Writes follow ZooKeeper's rules (versions, fencing is the test's business); brokers answer when told to. The transcript
has a line per event, indented lines for the instructions that follow from it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from kbroker.controller import events
from kbroker.controller.admin_elections import ElectionsHeld
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.instructions import (
    Answer,
    CloseChannel,
    CreatePartitionStates,
    DeleteNodes,
    DeleteTopicNodes,
    ForgetTopics,
    Instruction,
    OpenChannel,
    Pause,
    ReadPartitionStates,
    ReadTopicConfigs,
    ReadTopics,
    Send,
    SetNode,
    WritePartitionStates,
    WriteTopics,
)
from kbroker.controller.machine import Machine
from kbroker.controller.znodes import (
    BrokerRegistration,
    Conflict,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)


def registration(broker_id: int, epoch: int, rack: str | None = None) -> BrokerRegistration:
    endpoint = Endpoint("PLAINTEXT", f"host{broker_id}", 9092)
    return BrokerRegistration(broker_id, (endpoint,), rack=rack, epoch=epoch)


class Play:
    """The world around one or, in turn, several controllers."""

    def __init__(self, brokers: tuple[int, ...] = (1, 2, 3), config: ControllerConfig | None = None) -> None:
        self.config = config or ControllerConfig()
        self.zxid = 10
        self.brokers: dict[int, BrokerRegistration] = {}
        for broker_id in brokers:
            self.register(broker_id)
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.marked: set[str] = set()
        self.controller_epoch = 0
        self.answers: deque[events.Event] = deque()
        self.responses: dict[int, Any] = {}
        self.sent: list[Send] = []
        self.transcript: list[str] = []
        self.lost_log_dirs: dict[int, set[TopicPartition]] = {}
        self.conflicts: set[TopicPartition] = set()
        """Partitions whose next write meets a state somebody else wrote (same content, next version)."""
        self.machine = self.new_machine(brokers[0])

    # --- the world changes ---

    def new_machine(self, broker_id: int) -> Machine:
        ids = iter(range(1, 1 << 30))
        return Machine(broker_id, self.config, lambda: next(ids).to_bytes(16, "big"))

    def register(self, broker_id: int) -> None:
        self.zxid += 1
        self.brokers[broker_id] = registration(broker_id, self.zxid)

    def create_topic(self, name: str, *replicas: tuple[int, ...]) -> None:
        self.zxid += 1
        partitions = {number: ReplicaAssignment(each) for number, each in enumerate(replicas)}
        self.topics[name] = TopicAssignment(self.zxid.to_bytes(16, "big"), partitions, 0)

    def snapshot(self) -> events.Snapshot:
        return events.Snapshot(
            brokers=dict(self.brokers),
            topics=dict(self.topics),
            partition_states=dict(self.states),
            topics_to_delete=frozenset(self.marked),
        )

    # --- events ---

    def elect(self, broker_id: int | None = None) -> None:
        if broker_id is not None:
            self.machine = self.new_machine(broker_id)
        self.controller_epoch += 1
        self.answers.clear()
        self.tell(events.ControllerElected(self.controller_epoch, self.snapshot()))

    def tell_brokers(self) -> None:
        self.tell(events.BrokersListed(dict(self.brokers)))

    def tell_topics(self) -> None:
        self.tell(events.TopicsListed(frozenset(self.topics)))

    def tell_deletions(self) -> None:
        self.tell(events.TopicDeletionsListed(frozenset(self.marked)))

    def tell(self, event: events.Event) -> None:
        """One event and all that follows from it; the brokers' answers wait."""
        self.transcript.append(describe_event(event))
        instructions = self.machine.handle(event)
        while instructions:
            result = None
            for instruction in instructions:
                result = self.carry_out(instruction)
                line = describe(instruction)
                if line:
                    self.transcript.append("    " + line)
            if result is None:
                break
            instructions = self.machine.handle(result)
        assert not self.machine.is_busy
        self.machine.state.check()

    def answer_all(self) -> None:
        """Let the brokers answer, until nothing is left to answer."""
        for _ in range(10_000):
            if not self.answers:
                return
            self.tell(self.answers.popleft())
        raise AssertionError("the cluster does not settle")

    # --- ZooKeeper ---

    def carry_out(self, instruction: Instruction) -> events.Result | None:
        match instruction:
            case CreatePartitionStates(states) | WritePartitionStates(states):
                is_new = isinstance(instruction, CreatePartitionStates)
                return events.PartitionStatesWritten({each: self.write(each, states[each], is_new) for each in states})
            case ReadPartitionStates(partitions):
                return events.PartitionStatesRead(
                    {each: self.states[each] for each in partitions if each in self.states}
                )
            case ReadTopics(names):
                return events.TopicsRead({name: self.topics[name] for name in names if name in self.topics})
            case ReadTopicConfigs(names):
                return events.TopicConfigsRead({name: self.configs.get(name, {}) for name in names})
            case WriteTopics(topics):
                return events.TopicsWritten({name: self.write_topic(name, topic) for name, topic in topics.items()})
            case DeleteTopicNodes(topic):
                self.topics.pop(topic, None)
                self.marked.discard(topic)
                for partition in [each for each in self.states if each.topic == topic]:
                    del self.states[partition]
            case DeleteNodes(paths):
                self.marked -= {path.rpartition("/")[2] for path in paths}
            case SetNode() | Pause():
                pass
            case _:
                self.reach(instruction)
                return None
        return events.Done()

    def write_topic(self, name: str, topic: TopicAssignment) -> TopicAssignment | Conflict[TopicAssignment]:
        current = self.topics.get(name)
        if current is None or current.version != topic.version:
            return Conflict(current)
        self.topics[name] = replace(topic, version=topic.version + 1)
        return self.topics[name]

    def write(
        self, partition: TopicPartition, state: PartitionState, is_new: bool
    ) -> PartitionState | Conflict[PartitionState]:
        current = self.states.get(partition)
        if partition in self.conflicts and current is not None:
            self.conflicts.discard(partition)
            current = self.states[partition] = replace(current, partition_epoch=current.partition_epoch + 1)
        if is_new:
            if current is not None:
                return Conflict(current)
            written = replace(state, partition_epoch=0)
        else:
            if current is None or current.partition_epoch != state.partition_epoch:
                return Conflict(current)
            assert state.leader_epoch >= current.leader_epoch, f"{partition}: the leader epoch went back"
            if state.leader_epoch == current.leader_epoch:
                assert state.leader == current.leader, f"{partition}: two leaders in one epoch"
            written = replace(state, partition_epoch=state.partition_epoch + 1)
        self.states[partition] = written
        return written

    # --- brokers ---

    def reach(self, instruction: Instruction) -> None:
        if isinstance(instruction, Answer):
            self.responses[instruction.call] = instruction.response
        elif isinstance(instruction, Send):
            self.sent.append(instruction)
            if instruction.broker_id in self.brokers:
                self.serve(instruction)
        elif isinstance(instruction, CloseChannel):
            self.answers = deque(
                each for each in self.answers if getattr(each, "broker_id", None) != instruction.broker_id
            )

    def serve(self, order: Send) -> None:
        request, broker_id = order.request, order.broker_id
        if isinstance(request, LeaderAndIsrRequest):
            self.answers.append(
                events.LeaderAndIsrAnswered(broker_id, request, self.leader_and_isr(broker_id, request))
            )
        elif isinstance(request, StopReplicaRequest):
            response = StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=[])
            self.answers.append(events.StopReplicaAnswered(broker_id, request, response))

    def leader_and_isr(self, broker_id: int, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        lost = self.lost_log_dirs.get(broker_id, set())
        error = LeaderAndIsrResponse.LeaderAndIsrPartitionError
        return LeaderAndIsrResponse(
            error_code=ErrorCode.NONE,
            topics=[
                LeaderAndIsrResponse.LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        error(
                            partition_index=each.partition_index,
                            error_code=ErrorCode.KAFKA_STORAGE_ERROR
                            if TopicPartition(topic.topic_name, each.partition_index) in lost
                            else ErrorCode.NONE,
                        )
                        for each in topic.partition_states
                    ],
                )
                for topic in request.topic_states
            ],
        )

    def text(self) -> str:
        """The transcript so far, which begins anew."""
        lines, self.transcript = self.transcript, []
        return "\n".join(lines)


# --- the transcript's words ---


def describe_event(event: events.Event) -> str:
    match event:
        case events.ControllerElected(epoch, snapshot):
            topics = " ".join(sorted(snapshot.topics)) or "-"
            return f"elected: epoch {epoch}, brokers {_ids(snapshot.brokers)}, topics {topics}"
        case events.BrokersListed(brokers):
            return f"brokers listed: {' '.join(f'{each.broker_id}@{each.epoch}' for each in brokers.values()) or '-'}"
        case events.TopicsListed(names):
            return f"topics listed: {' '.join(sorted(names)) or '-'}"
        case events.TopicDeletionsListed(names):
            return f"deletions listed: {' '.join(sorted(names)) or '-'}"
        case events.LeaderAndIsrAnswered(broker_id, _, _):
            return f"broker {broker_id} answered LeaderAndIsr"
        case events.StopReplicaAnswered(broker_id, _, _):
            return f"broker {broker_id} answered StopReplica"
        case events.ControlledShutdownCalled(_, request, _):
            return f"broker {request.broker_id} wants to stop"
        case events.TopicsModified(topics):
            return f"topics modified: {' '.join(sorted(topics))}"
        case events.AlterPartitionCalled(_, request, _):
            return f"broker {request.broker_id} alters partitions"
        case _:
            return type(event).__name__


def describe(instruction: Instruction) -> str:
    match instruction:
        case CreatePartitionStates(states):
            return "create " + "; ".join(f"{each} {_state(state)}" for each, state in states.items())
        case WritePartitionStates(states):
            return "write " + "; ".join(
                f"{each} {_state(state)} if version {state.partition_epoch}" for each, state in states.items()
            )
        case Send(broker_id, request, _):
            return f"tell {broker_id} {_request(request)}"
        case OpenChannel(broker_id, host, port):
            return f"open channel to {broker_id} at {host}:{port}"
        case CloseChannel(broker_id):
            return f"close channel to {broker_id}"
        case ReadTopics(names):
            return f"read topics {' '.join(names)}"
        case ReadTopicConfigs(names):
            return f"read configs of {' '.join(names)}"
        case WriteTopics(topics):
            return "write topics " + "; ".join(f"{name} {_assignment(topic)}" for name, topic in topics.items())
        case DeleteTopicNodes(topic):
            return f"delete nodes of topic {topic}"
        case DeleteNodes(paths):
            return f"delete {' '.join(paths)}"
        case SetNode(path, data):
            return f"set {path} {data.decode()}"
        case Answer(_, ElectionsHeld(response)) | Answer(_, response):
            code = ErrorCode(response.error_code)
            return f"answer {type(response).__name__} {code.name}"
        case Pause() | ForgetTopics():
            return ""
        case _:
            return repr(instruction)


def _ids(values: Any) -> str:
    return " ".join(map(str, sorted(values))) or "-"


def _state(state: PartitionState) -> str:
    recovery = " recovering" if state.leader_recovery_state else ""
    return f"leader {state.leader} epoch {state.leader_epoch} isr {list(state.isr)}{recovery}"


def _assignment(topic: TopicAssignment) -> str:
    parts = []
    for number, each in topic.partitions.items():
        moving = f" +{list(each.adding_replicas)} -{list(each.removing_replicas)}" if each.is_being_reassigned else ""
        parts.append(f"{number}:{list(each.replicas)}{moving}")
    return " ".join(parts)


def _request(request: Any) -> str:
    if isinstance(request, LeaderAndIsrRequest):
        partitions = [
            f"{topic.topic_name}-{each.partition_index} leader {each.leader} epoch {each.leader_epoch}"
            f" isr {list(each.isr)} replicas {list(each.replicas)}{' new' if each.is_new else ''}"
            for topic in request.topic_states
            for each in topic.partition_states
        ]
        return "LeaderAndIsr " + "; ".join(partitions)
    if isinstance(request, StopReplicaRequest):
        partitions = [
            f"{topic.topic_name}-{each.partition_index}{' delete' if each.delete_partition else ''}"
            for topic in request.topic_states
            for each in topic.partition_states
        ]
        return "StopReplica " + "; ".join(partitions)
    partitions = [
        f"{topic.topic_name}-{each.partition_index} leader {each.leader}"
        + (f" offline {list(each.offline_replicas)}" if each.offline_replicas else "")
        for topic in request.topic_states
        for each in topic.partition_states
    ]
    brokers = " ".join(str(each.id) for each in request.live_brokers)
    return f"UpdateMetadata brokers {brokers}" + ("; " + "; ".join(partitions) if partitions else "")
