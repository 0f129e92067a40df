"""How long the controller's decisions hold up its broker, on a cluster on paper.

Nothing is sent and ZooKeeper is a dictionary: what is timed is the machine's own work between two pauses, and what
it costs to put its requests into bytes. The goal is that no step takes longer than 50 ms.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from kbroker.cluster.shared_encoding import SharedEncoding
from kbroker.controller import events
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.instructions import (
    CloseChannel,
    CreatePartitionStates,
    Instruction,
    OpenChannel,
    ReadTopicConfigs,
    ReadTopics,
    Send,
    WritePartitionStates,
    WriteTopics,
)
from kbroker.controller.machine import Machine
from kbroker.controller.orders import PAUSES_PER_FREEZE
from kbroker.controller.znodes import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)
from kbroker.process import GC_THRESHOLDS
from kbroker.protocol.codec import encode
from kbroker.protocol.messages.replication import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
)
from tests.controller.fake_channels import yes_to

REPLICAS = 3


@dataclass
class Story:
    """What one event cost."""

    name: str
    longest_ms: float = 0.0
    total_ms: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)
    largest_encode_ms: float = 0.0
    encode_ms: float = 0.0

    def __str__(self) -> str:
        """One line of the table."""
        requests = ", ".join(f"{count} {name}" for name, count in sorted(self.requests.items())) or "-"
        return (
            f"{self.name:<34} {self.total_ms:>8.0f} {self.longest_ms:>8.1f} {self.encode_ms:>8.0f}"
            f" {self.largest_encode_ms:>8.1f}  {requests}"
        )


class PaperCluster:
    """ZooKeeper as a dictionary, brokers that say nothing unless asked."""

    def __init__(self, brokers: int, partitions: int, topics: int) -> None:
        rng = random.Random(1)
        ids = range(1, brokers + 1)
        self.brokers = {each: _registration(each, each) for each in ids}
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self.sent: list[Send] = []
        self.shared = SharedEncoding()
        for number in range(topics):
            name = f"topic-{number:05}"
            assignment = {
                each: ReplicaAssignment(tuple(rng.sample(ids, min(REPLICAS, brokers))))
                for each in range(partitions // topics)
            }
            self.topics[name] = TopicAssignment(number.to_bytes(16, "big"), assignment, 0)
            for each, replicas in assignment.items():
                state = PartitionState(replicas.replicas[0], 0, replicas.replicas, 1)
                self.states[TopicPartition(name, each)] = state
        self.machine = Machine(1, ControllerConfig(), lambda: bytes(16))
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    def tell(self, name: str, event: events.Event) -> Story:
        """One event with all that follows, timed."""
        story = Story(name)
        pauses = 0
        result: events.Event | None = event
        while result is not None:
            begun = time.thread_time()
            instructions = self.machine.handle(result)
            took_ms = (time.thread_time() - begun) * 1000
            story.longest_ms = max(story.longest_ms, took_ms)
            story.total_ms += took_ms
            result = None
            pauses += 1
            if pauses % PAUSES_PER_FREEZE == 0:
                gc.freeze()
            for instruction in instructions:
                result = self._carry_out(instruction, story)
        return story

    def _carry_out(self, instruction: Instruction, story: Story) -> events.Result | None:
        match instruction:
            case Send(_, request, version):
                self.sent.append(instruction)
                story.requests[type(request).__name__.removesuffix("Request")] += 1
                begun = time.thread_time()
                encode(self.shared.share(request, version), version)
                took_ms = (time.thread_time() - begun) * 1000
                story.encode_ms += took_ms
                story.largest_encode_ms = max(story.largest_encode_ms, took_ms)
                return None
            case WritePartitionStates(states) | CreatePartitionStates(states):
                is_new = isinstance(instruction, CreatePartitionStates)
                written = {
                    each: replace(state, partition_epoch=0 if is_new else state.partition_epoch + 1)
                    for each, state in states.items()
                }
                self.states.update(written)
                return events.PartitionStatesWritten(dict(written))
            case ReadTopics(names):
                return events.TopicsRead({name: self.topics[name] for name in names})
            case WriteTopics(topics):
                changed = {name: replace(topic, version=topic.version + 1) for name, topic in topics.items()}
                self.topics.update(changed)
                return events.TopicsWritten(dict(changed))
            case ReadTopicConfigs(names):
                return events.TopicConfigsRead({name: {} for name in names})
            case OpenChannel() | CloseChannel():
                return None
        return events.Done() if not hasattr(instruction, "call") else None


def _registration(broker_id: int, epoch: int) -> BrokerRegistration:
    return BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", f"host{broker_id}", 9092),), epoch=epoch)


def _answer(order: Send) -> events.LeaderAndIsrAnswered:
    return events.LeaderAndIsrAnswered(order.broker_id, order.request, yes_to(order.request))


def measure(brokers: int = 100, partitions: int = 100_000, topics: int = 10_000) -> list[Story]:
    """The events of a controller's life, each timed."""
    cluster = PaperCluster(brokers, partitions, topics)
    stories = []

    def tell(name: str, event: events.Event) -> None:
        stories.append(cluster.tell(name, event))

    snapshot = events.Snapshot(dict(cluster.brokers), dict(cluster.topics), dict(cluster.states))
    tell("takes over", events.ControllerElected(2, snapshot))
    largest = max(
        (each for each in cluster.sent if isinstance(each.request, LeaderAndIsrRequest)),
        key=lambda each: sum(len(topic.partition_states) for topic in each.request.topic_states),
    )
    tell("largest LeaderAndIsr is answered", _answer(largest))
    gone = brokers
    del cluster.brokers[gone]
    tell("a broker is gone", events.BrokersListed(dict(cluster.brokers)))
    cluster.brokers[gone] = _registration(gone, brokers + 1)
    tell("it is back", events.BrokersListed(dict(cluster.brokers)))
    tell("an ISR grows", events.AlterPartitionCalled(1, _altered(cluster, gone, 1), 3))
    tell("all ISRs grow that it is in", events.AlterPartitionCalled(1, _altered(cluster, gone, partitions), 3))
    tell("leaders are rebalanced", events.RebalanceDue())
    stopping = ControlledShutdownRequest(broker_id=2, broker_epoch=2)
    tell("a broker stops in order", events.ControlledShutdownCalled(1, stopping, 3))
    for number in range(100):
        name = f"new-{number}"
        replicas = ReplicaAssignment((1, 3, 4) if brokers > 3 else (1,))
        cluster.topics[name] = TopicAssignment(bytes(14) + bytes((1, number)), dict.fromkeys(range(10), replicas), 0)
    tell("1,000 partitions are made", events.TopicsListed(frozenset(cluster.topics)))
    cluster.machine.state.check()
    return stories


def _altered(cluster: PaperCluster, broker_id: int, most: int) -> AlterPartitionRequest:
    """A leader takes a broker back into ISRs: all that the first live leader of its partitions leads."""
    request = AlterPartitionRequest
    state = cluster.machine.state
    on_broker = [each for each in state.partitions_on(broker_id) if broker_id not in state.leadership[each].isr]
    leader = state.leadership[on_broker[0]].leader
    topics = [
        request.TopicData(
            topic_id=state.topic_id(each.topic),
            partitions=[
                request.PartitionData(
                    partition_index=each.partition,
                    leader_epoch=state.leadership[each].leader_epoch,
                    new_isr_with_epochs=[
                        request.BrokerState(broker_id=member) for member in (*state.leadership[each].isr, broker_id)
                    ],
                    partition_epoch=state.leadership[each].partition_epoch,
                )
            ],
        )
        for each in on_broker
        if state.leadership[each].leader == leader
    ]
    return request(broker_id=leader, broker_epoch=cluster.brokers[leader].epoch, topics=topics[:most])


def main() -> None:
    """Measure the shapes of clusters that matter, and print a table for each."""
    for brokers, partitions, topics in ((100, 100_000, 10_000), (3, 30_000, 1_000)):
        print(f"{brokers} brokers, {partitions:,} partitions of {topics:,} topics (ms)")
        print(f"{'event':<34} {'decide':>8} {'longest':>8} {'encode':>8} {'longest':>8}  requests")
        for story in measure(brokers, partitions, topics):
            print(story)
        print()


if __name__ == "__main__":
    main()
