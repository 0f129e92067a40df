"""The controller of many brokers, on ZooKeeper in memory: how much it asks and tells, counted."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from bench.large_cluster import Shape
from bench.scale_simulated import CountingKazoo, SimulatedCluster, TimedMachine
from kbroker.controller import state, zookeeper
from kbroker.controller.state import ControllerState

SHAPE = Shape(brokers=12, topics=60, partitions=600, replicas=3)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    """One whose controller before has died, and nobody has heard of it."""
    monkeypatch.setattr(gc, "freeze", lambda: None)  # of this process, which goes on with other tests
    monkeypatch.setattr(zookeeper, "KazooClient", CountingKazoo)
    found = SimulatedCluster(SHAPE)
    found.go(SHAPE.brokers)
    return found


@pytest.mark.slow
def test_a_take_over_reads_each_node_once_and_tells_each_broker_in_a_few_requests(cluster: SimulatedCluster) -> None:
    story = cluster.tell("takes over", cluster.runner.start)
    there = SHAPE.brokers - 1
    led_by_the_dead = SHAPE.partitions // SHAPE.brokers
    followed_by_it = len(SHAPE.partitions_on(SHAPE.brokers)) - led_by_the_dead
    assert SHAPE.partitions + SHAPE.topics < story.nodes_read < SHAPE.partitions + SHAPE.topics + 50
    assert story.nodes_written == led_by_the_dead + followed_by_it + 2  # ... and the election itself
    assert story.requests["UpdateMetadata"] <= 4 * there
    assert story.requests["LeaderAndIsr"] <= 3 * there
    cluster.runner.state.check()


@pytest.mark.slow
def test_a_broker_that_dies_and_one_that_comes_cost_each_broker_a_few_requests(cluster: SimulatedCluster) -> None:
    cluster.tell("takes over", cluster.runner.start)
    back = cluster.tell("the dead one comes back", lambda: cluster.register(SHAPE.brokers))
    assert back.requests["LeaderAndIsr"] == 1
    assert back.requests["UpdateMetadata"] <= 2 * SHAPE.brokers
    cluster.tell("it is in sync", lambda: cluster.take_back(SHAPE.brokers))
    dead = cluster.tell("another one dies", lambda: cluster.go(2))
    assert dead.requests["UpdateMetadata"] <= 2 * (SHAPE.brokers - 1)
    assert dead.requests["LeaderAndIsr"] <= 2 * (SHAPE.brokers - 1)
    assert dead.nodes_written == len(SHAPE.partitions_on(2))
    cluster.runner.state.check()


@pytest.mark.slow
def test_a_controller_that_is_dismissed_takes_over_again_and_tells_each_broker_once(cluster: SimulatedCluster) -> None:
    cluster.tell("takes over", cluster.runner.start)
    epoch, there = cluster.runner.controller_epoch, SHAPE.brokers - 1
    story = cluster.tell("is dismissed", cluster.dismiss)
    assert cluster.runner.controller_epoch == epoch + 1
    assert SHAPE.partitions + SHAPE.topics < story.nodes_read < SHAPE.partitions + SHAPE.topics + 50
    assert story.nodes_written == 1  # the election: of two operations one passes for the fence
    assert story.requests["LeaderAndIsr"] == there
    cluster.runner.state.check()


@pytest.mark.slow
def test_what_a_term_knew_goes_in_many_turns_of_the_loop(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.tell("takes over", cluster.runner.start)
    former = cluster.runner.state
    turns, forgotten_in = 0, []
    turn, forget = TimedMachine.turn, ControllerState.forget

    def counted(machine: TimedMachine) -> None:
        nonlocal turns
        turns += 1
        turn(machine)

    def noted(known: ControllerState) -> Iterator[None]:
        for portion in forget(known):
            forgotten_in.append(turns)
            yield portion

    monkeypatch.setattr(TimedMachine, "turn", counted)
    monkeypatch.setattr(ControllerState, "forget", noted)
    monkeypatch.setattr(state, "FORGOTTEN_AT_ONCE", 100)
    cluster.tell("is dismissed", cluster.dismiss)
    assert not former.leadership
    assert not former.replica_status
    assert len(forgotten_in) == len(set(forgotten_in)) > SHAPE.partitions * SHAPE.replicas // 100
    cluster.runner.state.check()
