"""Thousands of random histories of a cluster against what must always hold.

Brokers come, go, move to other addresses and lose sessions or disks; controllers are replaced between any two
instructions, and the one before goes on until ZooKeeper refuses it; topics are made, grown and deleted, replicas moved
and moves taken back; leaders append, followers copy, ISRs shrink and grow. After each step: at most one leader per
epoch, leader in ISR, epochs only grow, and every in-sync replica has all that was acknowledged. In the end everybody is
there and the cluster must settle: all partitions led and in sync, moves and deletions done, brokers agreeing with
ZooKeeper.

    KBROKER_HISTORIES=100000 pytest tests/controller/test_histories.py        more of them
    KBROKER_HISTORY=1234 pytest tests/controller/test_histories.py            one again, by the number in the failure

Each run also plays some that nobody has played before; these too are played again by the number in the failure.
"""

from __future__ import annotations

import logging
import os
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kbroker.cluster.broker_channels import tells_of_deletions
from kbroker.controller import events, znodes
from kbroker.controller.state import PartitionStatus
from kbroker.controller.znodes import ReplicaAssignment, TopicAssignment, TopicPartition
from kbroker.protocol.messages.reassignments import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from kbroker.protocol.messages.replication import ControlledShutdownRequest
from tests.controller.simulated_brokers import SimulatedBroker
from tests.controller.simulated_cluster import Cluster

BROKERS = (1, 2, 3, 4)
TOPICS = ("t", "u", "v")
STEPS = 80
HISTORIES = int(os.environ.get("KBROKER_HISTORIES", "1200"))
BATCHES = 12
NEW_HISTORIES = HISTORIES // 5

Choose = Callable[[Any], tuple[int, ...]]


class History:
    """One cluster's random life; every decision comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster(BROKERS)
        self.records = 0
        self.told: list[str] = []
        for broker_id in BROKERS:
            self.cluster.register(broker_id)
        self.cluster.elect(1)
        self.create("t")

    def run(self) -> None:
        weights = list(EVENTS.values())
        for _ in range(STEPS):
            (event,) = self.random.choices(list(EVENTS), weights)
            self.told.append(event.__name__)
            event(self)
            self.cluster.check()

    # --- the machinery goes on ---

    def work(self) -> None:
        """A few instructions, deliveries, appends and fetches, in any order."""
        for _ in range(self.random.randrange(1, 25)):
            kind = self.random.randrange(6)
            if kind < 3 and self.cluster.controllers:
                self.random.choice(self.cluster.controllers).step()
            elif kind == 3 and self.cluster.controllers:
                self.random.choice(self.cluster.controllers).deliver(self.random.choice(BROKERS))
            else:
                self.data()

    def data(self) -> None:
        broker, partition = self.some_leader()
        if broker is None or partition is None:
            return
        kind = self.random.randrange(4)
        if kind == 0:
            self.records += 1
            broker.append(partition, self.records)
        elif kind == 1:
            self.alter_isr(broker, partition, self.random.choice)
        else:
            follower = self.cluster.brokers[self.random.choice(BROKERS)]
            if follower.is_up and follower is not broker:
                follower.fetch_from(broker, partition, self.random.randrange(1, 4))

    def some_leader(self) -> tuple[SimulatedBroker | None, TopicPartition | None]:
        leaders = [
            (broker, partition)
            for broker in self.cluster.brokers.values()
            if broker.is_up
            for partition in broker.replicas
            if broker.leads(partition)
        ]
        return self.random.choice(leaders) if leaders else (None, None)

    def alter_isr(self, broker: SimulatedBroker, partition: TopicPartition, choose: Choose) -> None:
        """Ask for another ISR; for the same one again when the controller that was asked is gone."""
        replica, controller = broker.leads(partition), self.cluster.current
        if replica is None or controller is None or replica.is_waiting or replica.asked is controller:
            return
        wanted = replica.pending or choose(broker.wanted_isr(partition))
        if wanted == replica.isr:
            return
        replica.pending, replica.asked = wanted, controller
        request = broker.alter_request(partition, wanted)
        controller.call(
            lambda call: events.AlterPartitionCalled(call, request, 3),
            lambda answer: broker.take_altered(partition, replica, controller, answer),
        )

    # --- brokers ---

    def kill_broker(self) -> None:
        broker_id = self.random.choice(BROKERS)
        for controller in [each for each in self.cluster.controllers if each.broker_id == broker_id]:
            controller.end()
        self.cluster.brokers[broker_id].kill()
        if self.random.random() < 0.7:
            self.cluster.end_session(broker_id)

    def start_broker(self) -> None:
        broker_id = self.random.choice(BROKERS)
        if not self.cluster.brokers[broker_id].is_up:
            self.cluster.register(broker_id)

    def lose_session(self) -> None:
        """The broker runs on; it registers again at once, or only later."""
        broker_id = self.random.choice([each for each in BROKERS if self.cluster.brokers[each].is_up] or BROKERS)
        self.cluster.end_session(broker_id)
        if self.cluster.brokers[broker_id].is_up and self.random.random() < 0.7:
            self.cluster.register(broker_id)

    def elect_another(self) -> None:
        """The controller's session expires at ZooKeeper; the old one goes on, not knowing."""
        live = sorted(self.cluster.registered)
        if live:
            self.cluster.elect(self.random.choice(live))

    def tell_zombies(self) -> None:
        for controller in [each for each in self.cluster.controllers if each is not self.cluster.current]:
            controller.end()

    def shut_down_broker(self) -> None:
        broker_id = self.random.choice(BROKERS)
        known, controller = self.cluster.registered.get(broker_id), self.cluster.current
        if known is not None and controller is not None:
            request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=known.epoch)
            controller.call(lambda call: events.ControlledShutdownCalled(call, request, 3))

    def fall_behind(self) -> None:
        """What waits for a broker is dropped, but for the deletions."""
        controller, broker_id = self.cluster.current, self.random.choice(BROKERS)
        if controller is not None and broker_id in controller.channels:
            waiting = controller.channels[broker_id]
            controller.channels[broker_id] = deque(each for each in waiting if tells_of_deletions(each.request))
            controller.queue.append(events.BrokerFellBehind(broker_id))

    def change_address(self) -> None:
        """What a broker advertises is altered while it runs: the registration changes, the epoch stays."""
        if self.cluster.registered:
            known = self.cluster.registered[self.random.choice(sorted(self.cluster.registered))]
            (endpoint,) = known.endpoints
            moved = replace(endpoint, port=endpoint.port + 1)
            self.cluster.registered[known.broker_id] = replace(known, endpoints=(moved,))
            self.cluster.changed("brokers")

    def lose_directory(self) -> None:
        broker = self.cluster.brokers[self.random.choice(BROKERS)]
        if broker.is_up and broker.logs:
            broker.lose(self.random.choice(sorted(broker.logs)))
            self.cluster.lost_dirs[f"{znodes.LOG_DIR_EVENT_PREFIX}{self.cluster.zxid}"] = broker.broker_id
            self.cluster.changed("lost directories")

    # --- topics ---

    def some_replicas(self) -> tuple[int, ...]:
        return tuple(self.random.sample(BROKERS, self.random.randrange(1, 4)))

    def some_partition(self) -> TopicPartition | None:
        return self.random.choice(sorted(self.cluster.states)) if self.cluster.states else None

    def create(self, name: str) -> None:
        self.cluster.zxid += 1
        partitions = {each: ReplicaAssignment(self.some_replicas()) for each in range(self.random.randrange(1, 3))}
        self.cluster.topics[name] = TopicAssignment(self.cluster.zxid.to_bytes(16, "big"), partitions, 0)
        self.cluster.changed("topics")

    def create_topic(self) -> None:
        name = self.random.choice(TOPICS)
        if name not in self.cluster.topics:
            self.create(name)

    def add_partition(self) -> None:
        name = self.random.choice(TOPICS)
        topic = self.cluster.topics.get(name)
        if topic is None or name in self.cluster.marked or len(topic.partitions) > 3:
            return
        if any(each.is_being_reassigned for each in topic.partitions.values()):
            return
        more = {**topic.partitions, len(topic.partitions): ReplicaAssignment(self.some_replicas())}
        self.cluster.topics[name] = TopicAssignment(topic.topic_id, more, topic.version + 1)
        self.cluster.changed(f"topic {name}")

    def delete_topic(self) -> None:
        name = self.random.choice(TOPICS)
        if name in self.cluster.topics:
            self.cluster.marked.add(name)
            self.cluster.changed("deletions")

    # --- what administrators ask for ---

    def reassign(self) -> None:
        partition, controller = self.some_partition(), self.cluster.current
        if partition is None or controller is None:
            return
        target = None if self.random.random() < 0.3 else list(self.some_replicas())
        request = AlterPartitionReassignmentsRequest
        moved = request.ReassignablePartition(partition_index=partition.partition, replicas=target)
        asked = request(topics=[request.ReassignableTopic(name=partition.topic, partitions=[moved])])
        controller.call(lambda call: events.ReassignmentsCalled(call, asked))

    def reassign_by_node(self) -> None:
        partition = self.some_partition()
        if partition is not None and self.cluster.legacy_moves is None:
            self.cluster.legacy_moves = {partition: self.some_replicas()}
            self.cluster.changed("legacy moves")

    def elect_preferred(self) -> None:
        controller = self.cluster.current
        if controller is not None:
            request = ElectLeadersRequest(election_type=0, topic_partitions=None)
            controller.call(lambda call: events.ElectLeadersCalled(call, request))

    def elect_preferred_by_node(self) -> None:
        partition = self.some_partition()
        if partition is not None and self.cluster.legacy_elections is None:
            self.cluster.legacy_elections = (partition,)
            self.cluster.changed("legacy elections")

    def elect_uncleanly(self) -> None:
        partition, controller = self.some_partition(), self.cluster.current
        if partition is None or controller is None:
            return
        self.cluster.unclean.add(partition)
        topics = [ElectLeadersRequest.TopicPartitions(topic=partition.topic, partitions=[partition.partition])]
        request = ElectLeadersRequest(election_type=1, topic_partitions=topics)
        controller.call(lambda call: events.ElectLeadersCalled(call, request))

    def rebalance(self) -> None:
        if self.cluster.current is not None:
            self.cluster.current.queue.append(events.RebalanceDue())

    # --- the end ---

    def run_until_idle(self) -> None:
        """The controller's work, down to the last answer, with nothing between."""
        controller = self.cluster.current
        assert controller is not None
        for _ in range(5_000):
            if controller.is_idle:
                return
            for _ in range(10):
                controller.step()
            for broker_id in BROKERS:
                controller.deliver(broker_id)
            if not controller.has_work and not any(self.cluster.brokers[each].is_up for each in controller.channels):
                return
        raise AssertionError("the controller does not come to rest")

    def settle(self) -> None:
        """Everybody is there; all copy and all ISRs grow until nothing moves any more."""
        for broker in self.cluster.brokers.values():
            if broker.lost:
                broker.kill()
                self.cluster.end_session(broker.broker_id)
            if not broker.is_up or broker.broker_id not in self.cluster.registered:
                self.cluster.register(broker.broker_id)
        if self.cluster.current is None:
            self.cluster.elect(self.random.choice(BROKERS))
        self.tell_zombies()
        for broker_id in self.shutting_down():
            self.cluster.end_session(broker_id)
            self.cluster.register(broker_id)
            if self.cluster.current is None:
                self.cluster.elect(broker_id)
        for _ in range(30):
            self.run_until_idle()
            self.copy_all()
            self.cluster.check()

    def shutting_down(self) -> list[int]:
        """Those who said that they would stop do so, and come back."""
        self.run_until_idle()
        assert self.cluster.current is not None
        return sorted(self.cluster.current.machine.state.shutting_down)

    def copy_all(self) -> None:
        for leader in self.cluster.brokers.values():
            for partition in [each for each in leader.replicas if leader.leads(each)]:
                for follower in self.cluster.brokers.values():
                    if follower is not leader:
                        follower.fetch_from(leader, partition, 1 << 30)
                self.alter_isr(leader, partition, lambda wanted: wanted[0])

    def check_settled(self) -> None:
        cluster = self.cluster
        assert cluster.current is not None
        state = cluster.current.machine.state
        assert not cluster.marked | state.topics_to_delete, "a deletion is left undone"
        assert not state.reassigning, f"moves left undone: {state.reassigning}"
        assert cluster.legacy_moves is None
        assert cluster.legacy_elections is None
        assert set(state.partitions()) == set(cluster.states)
        for partition in state.partitions():
            self.check_partition(partition)
        for broker in cluster.brokers.values():
            stray = {each.topic for each in broker.logs} - set(cluster.topics) - self.moved_away(broker)
            assert not stray, f"broker {broker.broker_id} still has {stray}"
            known = {each: known.leader for each, known in cluster.states.items()}
            assert broker.metadata == known, f"broker {broker.broker_id}: {broker.metadata}, {known}"

    def moved_away(self, broker: SimulatedBroker) -> set[str]:
        """Topics of which a replica was moved from the broker, and which were deleted, both while it was away."""
        return {each.topic for each in broker.logs if each not in broker.replicas}

    def check_partition(self, partition: TopicPartition) -> None:
        assert self.cluster.current is not None
        state, known = self.cluster.current.machine.state, self.cluster.states[partition]
        assignment = self.cluster.topics[partition.topic].partitions[partition.partition]
        assert not assignment.is_being_reassigned
        assert state.assignment(partition) == assignment
        assert state.status(partition) is PartitionStatus.ONLINE, f"{partition} has no leader"
        assert state.leadership[partition] == known, f"{partition}: memory is not the tree"
        assert set(known.isr) == set(assignment.replicas), f"{partition}: {known} of {assignment.replicas}"
        leader = self.cluster.brokers[known.leader]
        replica = leader.leads(partition)
        assert replica is not None, f"{partition}: its leader does not know"
        assert replica.leader_epoch == known.leader_epoch, f"{partition}: {replica}, {known}"
        for member in known.isr:
            assert self.cluster.brokers[member].logs[partition].entries == leader.logs[partition].entries


EVENTS = {
    History.work: 40,
    History.kill_broker: 3,
    History.start_broker: 6,
    History.lose_session: 2,
    History.elect_another: 2,
    History.tell_zombies: 1,
    History.shut_down_broker: 1,
    History.fall_behind: 1,
    History.change_address: 1,
    History.lose_directory: 1,
    History.create_topic: 2,
    History.add_partition: 1,
    History.delete_topic: 1,
    History.reassign: 5,
    History.reassign_by_node: 1,
    History.elect_preferred: 2,
    History.elect_preferred_by_node: 1,
    History.elect_uncleanly: 0.3,
    History.rebalance: 1,
}


def play(seed: int) -> None:
    history = History(seed)
    try:
        history.run()
        history.settle()
        history.check_settled()
    except Exception as error:
        error.add_note(f"history {seed}: {' '.join(history.told)}")
        raise


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_history_keeps_the_invariants_and_settles(batch: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kbroker.controller")
    chosen = os.environ.get("KBROKER_HISTORY")
    seeds = [int(chosen)] if chosen else range(batch, HISTORIES, BATCHES)
    for seed in seeds:
        play(seed)


@pytest.mark.slow
@pytest.mark.skipif("KBROKER_HISTORY" in os.environ, reason="one history was asked for, and is played above")
def test_histories_that_nobody_has_played_before_keep_the_invariants_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kbroker.controller")
    first = random.SystemRandom().randrange(1 << 32, 1 << 48)
    for seed in range(first, first + NEW_HISTORIES):
        play(seed)
