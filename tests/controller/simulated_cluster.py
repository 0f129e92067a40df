"""A whole cluster on paper: ZooKeeper, brokers, and one controller after the other, each of which may be a zombie.

Nothing happens by itself: `Controller.step` carries out one instruction or takes the next event, `deliver` hands one
request to a broker. So anything can come between any two instructions. ZooKeeper refuses what its versions refuse and
what a controller of an earlier epoch wants to write. `check` asserts the invariants; every write checks its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kbroker.controller import events, znodes
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
from kbroker.controller.znodes import BrokerRegistration, Conflict, PartitionState, TopicAssignment, TopicPartition
from kbroker.protocol.messages.replication import LeaderAndIsrRequest, StopReplicaRequest
from tests.controller.play import registration
from tests.controller.simulated_brokers import Entry, SimulatedBroker


class Fenced(Exception):
    """A write of a controller whose epoch is over."""


class Cluster:
    """ZooKeeper's tree and the brokers; `current` is the controller whose writes count, if there is one."""

    def __init__(self, broker_ids: tuple[int, ...]) -> None:
        self.zxid = 10
        self.registered: dict[int, BrokerRegistration] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self.marked: set[str] = set()
        self.legacy_moves: dict[TopicPartition, tuple[int, ...]] | None = None
        self.legacy_elections: tuple[TopicPartition, ...] | None = None
        self.lost_dirs: dict[str, int] = {}
        self.controller_epoch = 0
        self.current: Controller | None = None
        self.controllers: list[Controller] = []
        self.brokers = {each: SimulatedBroker(each) for each in broker_ids}
        self.committed: dict[tuple[TopicPartition, bytes], list[Entry]] = {}
        self.leaders: dict[tuple[TopicPartition, bytes, int], int] = {}
        self.unclean: set[TopicPartition] = set()
        """Partitions for which an unclean election was asked for: these may lose."""

    # --- brokers and sessions ---

    def register(self, broker_id: int) -> None:
        """A session of the broker's begins: a start, or another session of a broker that runs."""
        if self.current is not None and self.current.broker_id == broker_id and self.current.is_over:
            self.current = None
        self.zxid += 1
        self.registered[broker_id] = registration(broker_id, self.zxid)
        self.brokers[broker_id].epoch = self.zxid
        self.brokers[broker_id].is_up = True
        self._take_stock(self.brokers[broker_id])
        self.changed("brokers")

    def _take_stock(self, broker: SimulatedBroker) -> None:
        """With a new session or controller a broker forgets the topics that are no longer in ZooKeeper."""
        broker.replicas = {each: known for each, known in broker.replicas.items() if each.topic in self.topics}
        broker.metadata = {each: known for each, known in broker.metadata.items() if each.topic in self.topics}

    def end_session(self, broker_id: int) -> None:
        self.registered.pop(broker_id, None)
        self.changed("brokers")
        if self.current is not None and self.current.broker_id == broker_id:
            self.current = None

    def elect(self, broker_id: int) -> None:
        """Another controller; the one before, if it still runs, does not know yet."""
        for each in self.registered:
            self._take_stock(self.brokers[each])
        self.controller_epoch += 1
        self.current = Controller(self, broker_id, self.controller_epoch)
        self.controllers.append(self.current)

    def changed(self, what: str) -> None:
        """Watches fire at all who believe to be the controller."""
        for controller in self.controllers:
            controller.to_read.add(what)

    # --- ZooKeeper's writes ---

    def write_state(
        self, partition: TopicPartition, state: PartitionState, is_new: bool
    ) -> PartitionState | Conflict[PartitionState]:
        current = self.states.get(partition)
        if is_new:
            if current is not None:
                return Conflict(current)
            assert partition.topic in self.topics
            written = replace(state, partition_epoch=0)
        else:
            if current is None or current.partition_epoch != state.partition_epoch:
                return Conflict(current)
            assert state.leader_epoch >= current.leader_epoch, f"{partition}: the leader epoch went back"
            if state.leader_epoch == current.leader_epoch:
                assert state.leader == current.leader, f"{partition}: two leaders in one epoch"
            written = replace(state, partition_epoch=state.partition_epoch + 1)
        assert written.isr, f"{partition}: an empty ISR"
        assert len(set(written.isr)) == len(written.isr), f"{partition}: ISR {written.isr}"
        assert written.leader == znodes.NO_LEADER or written.leader in written.isr, f"{partition}: leader not in ISR"
        if written.leader_recovery_state:
            assert partition in self.unclean, f"{partition}: an unclean election that nobody allowed"
        self.states[partition] = written
        return written

    def write_topic(self, name: str, topic: TopicAssignment) -> TopicAssignment | Conflict[TopicAssignment]:
        current = self.topics.get(name)
        if current is None or current.version != topic.version:
            return Conflict(current)
        lost = set(current.partitions) - set(topic.partitions)
        assert not lost or name in self.marked, f"partitions {lost} of {name} written away"
        self.topics[name] = replace(topic, version=topic.version + 1)
        self.changed(f"topic {name}")
        return self.topics[name]

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        self.marked.discard(name)
        for partition in [each for each in self.states if each.topic == name]:
            del self.states[partition]
        if topic is not None:
            self.changed("topics")

    def delete_node(self, path: str) -> None:
        name = path.rpartition("/")[2]
        if path == znodes.REASSIGN_PARTITIONS:
            self.legacy_moves = None
        elif path == znodes.PREFERRED_ELECTION:
            self.legacy_elections = None
        elif path.startswith(znodes.LOG_DIR_EVENTS):
            self.lost_dirs.pop(path, None)
        else:
            self.marked.discard(name)

    # --- invariants ---

    def check(self) -> None:
        """What must hold at any moment."""
        for broker in self.brokers.values():
            for partition, replica in broker.replicas.items():
                if replica.leader == broker.broker_id:
                    key = (partition, broker.logs[partition].topic_id, replica.leader_epoch)
                    assert self.leaders.setdefault(key, broker.broker_id) == broker.broker_id, f"two leaders: {key}"
                    self._commit(broker, partition)
        for partition, state in self.states.items():
            if partition not in self.unclean and partition.topic not in self.marked:
                for member in state.isr:
                    self._check_has_all(self.brokers[member], partition)

    def _commit(self, broker: SimulatedBroker, partition: TopicPartition) -> None:
        now = broker.committed(partition)
        known = self.committed.setdefault((partition, broker.logs[partition].topic_id), [])
        if partition not in self.unclean and partition.topic not in self.marked:
            shorter = min(len(now), len(known))
            assert now[:shorter] == known[:shorter], f"{partition}: other records were committed before"
        if len(now) > len(known):
            known[:] = now

    def _check_has_all(self, broker: SimulatedBroker, partition: TopicPartition) -> None:
        topic = self.topics.get(partition.topic)
        committed = self.committed.get((partition, topic.topic_id or b"")) if topic is not None else None
        if committed and partition not in broker.lost:
            log = broker.logs.get(partition)
            assert log is not None, f"{partition}: in-sync replica {broker.broker_id} has no log"
            text = f"{partition}: in-sync replica {broker.broker_id} lacks what was acknowledged"
            assert log.entries[: len(committed)] == committed, text


class Controller:
    """One term: a machine, its queue and its channels. It goes on until a write is refused, or somebody tells it."""

    def __init__(self, cluster: Cluster, broker_id: int, epoch: int) -> None:
        ids = iter(range(epoch << 20, 1 << 30))
        self.cluster = cluster
        self.broker_id = broker_id
        self.epoch = epoch
        self.machine = Machine(broker_id, ControllerConfig(), lambda: next(ids).to_bytes(16, "big"))
        self.to_read: set[str] = set()
        self.queue: deque[events.Event] = deque()
        self.orders: deque[Instruction] = deque()
        self.channels: dict[int, deque[Send]] = {}
        """What waits to be sent, per broker."""
        self.calls: dict[int, Callable[[Any], None]] = {}
        self.is_over = False
        self._tell(
            events.ControllerElected(
                epoch,
                events.Snapshot(
                    brokers=dict(cluster.registered),
                    topics=dict(cluster.topics),
                    partition_states=dict(cluster.states),
                    topics_to_delete=frozenset(cluster.marked),
                    reassignments=dict(cluster.legacy_moves or {}),
                    preferred_elections=cluster.legacy_elections or (),
                ),
            )
        )

    def _tell(self, event: events.Event) -> None:
        self.orders.extend(self.machine.handle(event))

    def call(self, make: Callable[[int], events.Event], answered: Callable[[Any], None] = lambda _: None) -> None:
        """A request to the controller; the answer may never come."""
        number = len(self.calls) + 1
        self.calls[number] = answered
        self.queue.append(make(number))

    def end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.machine.handle(events.TermEnded())
            self.channels.clear()
            self.cluster.controllers.remove(self)

    # --- one thing after the other ---

    @property
    def is_idle(self) -> bool:
        waits = any(waiting for waiting in self.channels.values())
        return self.is_over or not (self.has_work or waits)

    @property
    def has_work(self) -> bool:
        """Whether there is anything to do before another broker answers."""
        return bool(self.orders or self.queue or self.to_read)

    def step(self) -> None:
        """Carry out one instruction; with none left, take the next event."""
        if self.is_over:
            return
        if self.orders:
            try:
                result = self._carry_out(self.orders.popleft())
            except Fenced:
                self.end()
                return
            if result is not None:
                self._tell(result)
        elif self.to_read:
            self._read(min(self.to_read))
        elif self.queue:
            self._tell(self.queue.popleft())
        if not self.machine.is_busy and not self.orders:
            self.machine.state.check()

    def _read(self, what: str) -> None:
        self.to_read.discard(what)
        cluster = self.cluster
        if what == "brokers":
            self._tell(events.BrokersListed(dict(cluster.registered)))
        elif what == "topics":
            self._tell(events.TopicsListed(frozenset(cluster.topics)))
        elif what == "deletions":
            self._tell(events.TopicDeletionsListed(frozenset(cluster.marked)))
        elif what == "lost directories":
            self._tell(events.LogDirsFailed(frozenset(cluster.lost_dirs.values()), tuple(cluster.lost_dirs)))
        elif what == "legacy moves" and cluster.legacy_moves is not None:
            self._tell(events.LegacyReassignmentsFound(dict(cluster.legacy_moves)))
        elif what == "legacy elections" and cluster.legacy_elections is not None:
            self._tell(events.LegacyElectionsFound(cluster.legacy_elections))
        elif what.startswith("topic "):
            name = what.removeprefix("topic ")
            found = {name: cluster.topics[name]} if name in cluster.topics else {}
            self._tell(events.TopicsModified(found))

    def _carry_out(self, instruction: Instruction) -> events.Result | None:
        cluster = self.cluster
        match instruction:
            case ReadPartitionStates(partitions):
                found = {each: cluster.states[each] for each in partitions if each in cluster.states}
                return events.PartitionStatesRead(found)
            case ReadTopics(names):
                return events.TopicsRead({name: cluster.topics[name] for name in names if name in cluster.topics})
            case ReadTopicConfigs(names):
                return events.TopicConfigsRead({name: {} for name in names})
            case Pause():
                return events.Done()
            case Send() | OpenChannel() | CloseChannel() | ForgetTopics() | Answer():
                self._reach(instruction)
                return None
            case _:
                if self is not cluster.current:
                    raise Fenced
                return self._write(instruction)

    def _write(self, instruction: Instruction) -> events.Result:
        cluster = self.cluster
        match instruction:
            case CreatePartitionStates(states) | WritePartitionStates(states):
                is_new = isinstance(instruction, CreatePartitionStates)
                return events.PartitionStatesWritten(
                    {each: cluster.write_state(each, state, is_new) for each, state in states.items()}
                )
            case WriteTopics(topics):
                return events.TopicsWritten({name: cluster.write_topic(name, topic) for name, topic in topics.items()})
            case DeleteTopicNodes(topic):
                cluster.remove_topic(topic)
            case DeleteNodes(paths):
                for path in paths:
                    cluster.delete_node(path)
            case SetNode(_, data):
                cluster.legacy_moves = znodes.decode_reassignments(data)
            case _:
                raise AssertionError(instruction)
        return events.Done()

    def _reach(self, instruction: Instruction) -> None:
        match instruction:
            case OpenChannel(broker_id, _, _):
                self.channels.setdefault(broker_id, deque())
            case CloseChannel(broker_id):
                self.channels.pop(broker_id, None)
            case Send(broker_id, _, _):
                if broker_id in self.channels:
                    self.channels[broker_id].append(instruction)
            case Answer(number, response):
                self.calls[number](response)

    def deliver(self, broker_id: int) -> None:
        """The first request that waits for the broker is served and answered, if the broker is up."""
        broker = self.cluster.brokers[broker_id]
        waiting = self.channels.get(broker_id)
        if not waiting or not broker.is_up:
            return
        request = waiting.popleft().request
        response = broker.serve(request)
        if isinstance(request, LeaderAndIsrRequest):
            self.queue.append(events.LeaderAndIsrAnswered(broker_id, request, response))
        elif isinstance(request, StopReplicaRequest):
            self.queue.append(events.StopReplicaAnswered(broker_id, request, response))
