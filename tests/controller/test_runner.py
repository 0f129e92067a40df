"""The controller of a broker, whole: a real ZooKeeper, brokers that say yes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kbroker.controller import runner, znodes
from kbroker.controller.broker_store import NewTopic
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.controller_store import ElectedController
from kbroker.controller.runner import ControllerRunner
from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.controller.znodes import BrokerRegistration, Endpoint, ReplicaAssignment, TopicPartition
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)
from kbroker.protocol.messages.replication import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    ControlledShutdownRequest,
    UpdateMetadataRequest,
)
from kbroker.replica.turns import at_once
from tests.controller.conftest import Connect, until
from tests.controller.fake_channels import FakeChannels
from tests.controller.sessions import drop_connection, expire


@dataclass
class Node:
    """A broker as far as the controller is concerned."""

    broker_id: int
    session: ZooKeeper
    channels: FakeChannels
    runner: ControllerRunner
    epoch: int

    async def stop(self) -> None:
        await self.runner.stop()
        await self.session.close()


StartNode = Callable[[int], Awaitable[Node]]


def registration(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", f"host{broker_id}", 9092),))


@pytest.fixture
async def start(connect: Connect) -> AsyncIterator[StartNode]:
    nodes: list[Node] = []

    async def start_node(broker_id: int) -> Node:
        session = await connect()
        epoch = await session.register_broker(registration(broker_id))
        channels = FakeChannels()
        runner = ControllerRunner(session, broker_id, channels, ControllerConfig())
        node = Node(broker_id, session, channels, runner, epoch)

        async def register_again() -> None:
            node.epoch = await session.register_broker(registration(broker_id))
            runner.on_registered()

        tasks: list[asyncio.Task[None]] = []
        session.on_session_established.append(lambda: tasks.append(asyncio.create_task(register_again())))
        await runner.start()
        nodes.append(node)
        return node

    yield start_node
    for node in nodes:
        await node.runner.stop()


def topic(name: str, *replicas: list[int]) -> NewTopic:
    return NewTopic(name, os.urandom(16), dict(enumerate(replicas)), {})


async def test_the_first_broker_becomes_controller_and_tells_itself(start: StartNode) -> None:
    node = await start(1)
    assert node.runner.is_active
    assert node.runner.controller_epoch == 1
    assert node.channels.addresses == {1: ("host1", 9092)}
    request = node.channels.requests_to(1)[0]
    assert isinstance(request, UpdateMetadataRequest)
    assert request.controller_id == 1
    assert request.broker_epoch == node.epoch
    assert (await node.session.get("/feature"))[0] == znodes.encode_feature()


async def test_every_broker_is_told_of_a_new_controller(start: StartNode) -> None:
    one, two = await start(1), await start(2)
    told = []
    for node in (one, two):
        node.runner.on_new_controller.append(lambda node=node: told.append(node.broker_id))  # type: ignore[misc]
    await one.stop()
    await until(lambda: two.runner.is_active)
    assert told == [2]


async def test_a_controller_that_stops_leaves_its_place_though_its_session_goes_on(start: StartNode) -> None:
    one = await start(1)
    await one.runner.stop()
    assert not one.runner.is_active
    assert await one.session.read_controller() is None


async def test_a_new_topic_gets_its_states_and_everybody_hears_of_it(start: StartNode) -> None:
    one = await start(1)
    await start(2)
    await until(lambda: 2 in one.channels.addresses)
    await one.session.create_topics([topic("t", [1, 2], [2, 1])])
    await until(lambda: one.channels.leaders.get(2) == {("t", 0): 1, ("t", 1): 2})
    states = await one.session.read_partition_states([TopicPartition("t", 0), TopicPartition("t", 1)])
    assert [(state.leader, state.isr) for state in states.values()] == [(1, (1, 2)), (2, (2, 1))]
    times = one.runner.times.by_kind
    await until(lambda: times["LeaderAndIsrResponseReceived"].count == 2)
    counts = [times[kind].count for kind in ("ControllerChange", "TopicChange")]
    assert counts == [1, 1]
    assert times["LeaderElection"].count >= 1
    assert one.runner.times.waited.count >= 5
    assert one.runner.waiting_orders() == {1: 0, 2: 0}


async def test_added_partitions_are_created(start: StartNode) -> None:
    node = await start(1)
    await node.session.create_topics([topic("t", [1])])
    await until(lambda: ("t", 0) in node.channels.leaders.get(1, {}))
    assignment = (await node.session.read_topics(["t"]))["t"]
    wider = replace(assignment, partitions={**assignment.partitions, 1: ReplicaAssignment((1,))})
    await node.session.write_topic_assignment("t", wider)
    await until(lambda: ("t", 1) in node.channels.leaders[1])


async def test_a_deleted_topic_goes_from_metadata_and_from_zookeeper(start: StartNode) -> None:
    node = await start(1)
    await node.session.create_topics([topic("t", [1], [1])])
    await until(lambda: len(node.channels.leaders.get(1, {})) == 2)
    await node.session.mark_topic_deleted("t")
    await until(lambda: node.channels.leaders[1] == {})
    await until(lambda: "t" not in node.runner.state.assignments)
    assert not await node.session.topic_exists("t")
    assert await node.session.children("/admin/delete_topics") == []
    assert await node.session.create_topics([topic("t", [1])]) == {"t": None}
    await until(lambda: node.channels.leaders[1] == {("t", 0): 1})


async def test_another_broker_takes_over_when_the_controller_stops(start: StartNode) -> None:
    one, two = await start(1), await start(2)
    assert not two.runner.is_active
    await until(lambda: 2 in one.runner.state.brokers)
    await one.session.create_topics([topic("t", [1, 2])])
    await until(lambda: one.channels.leaders.get(2) == {("t", 0): 1})
    await one.stop()
    await until(lambda: two.runner.is_active and two.channels.leaders.get(2) == {("t", 0): 2})
    assert two.runner.controller_epoch == 2
    state = (await two.session.read_partition_states([TopicPartition("t", 0)]))[TopicPartition("t", 0)]
    assert (state.leader, state.isr, state.controller_epoch) == (2, (2,), 2)


async def test_an_expired_session_ends_the_term_and_the_broker_runs_again(start: StartNode) -> None:
    node = await start(1)
    await node.session.create_topics([topic("t", [1])])
    await until(lambda: node.channels.leaders.get(1) == {("t", 0): 1})
    before = node.epoch
    await expire(node.session)
    await until(lambda: node.runner.controller_epoch == 2)
    await until(lambda: 1 in node.runner.state.brokers and node.runner.state.brokers[1].epoch > before)
    await until(lambda: TopicPartition("t", 0) in node.runner.state.leadership)
    await until(lambda: node.runner.state.leadership[TopicPartition("t", 0)].leader == 1)


async def test_a_lost_connection_changes_nothing(start: StartNode) -> None:
    node = await start(1)
    reconnected = asyncio.Event()
    node.session.on_reconnected.append(reconnected.set)
    drop_connection(node.session)
    await node.session.create_topics([topic("t", [1])])
    await until(lambda: node.channels.leaders.get(1) == {("t", 0): 1})
    await asyncio.wait_for(reconnected.wait(), 20)
    assert node.runner.controller_epoch == 1


async def test_a_controller_whose_node_is_taken_away_gives_way(start: StartNode) -> None:
    one, two = await start(1), await start(2)
    await two.session.delete("/controller")
    await until(lambda: (one.runner.controller_epoch or two.runner.controller_epoch) == 2)
    assert one.runner.is_active != two.runner.is_active
    await two.session.create_topics([topic("t", [1, 2])])
    there = one if one.runner.is_active else two
    await until(lambda: there.channels.leaders.get(2) == {("t", 0): 1})


async def test_producer_ids_are_handed_out_to_registered_brokers(start: StartNode) -> None:
    node, other = await start(1), await start(2)
    asked = AllocateProducerIdsRequest(broker_id=1, broker_epoch=node.epoch)
    answers = await asyncio.gather(*(node.runner.allocate_producer_ids(asked) for _ in range(3)))
    assert sorted(answer.producer_id_start for answer in answers) == [0, 1000, 2000]
    assert {answer.producer_id_len for answer in answers} == {1000}
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=node.epoch - 1)
    assert (await node.runner.allocate_producer_ids(stale)).error_code == ErrorCode.STALE_BROKER_EPOCH
    unknown = AllocateProducerIdsRequest(broker_id=9, broker_epoch=1)
    assert (await node.runner.allocate_producer_ids(unknown)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert (await other.runner.allocate_producer_ids(asked)).error_code == ErrorCode.NOT_CONTROLLER


async def test_a_leader_shrinks_its_isr(start: StartNode) -> None:
    node = await start(1)
    await start(2)
    await until(lambda: 2 in node.runner.state.brokers)
    wanted = topic("t", [1, 2])
    await node.session.create_topics([wanted])
    await until(lambda: node.channels.leaders.get(1) == {("t", 0): 1})
    request = AlterPartitionRequest
    changed = request.PartitionData(
        partition_index=0,
        leader_epoch=0,
        new_isr_with_epochs=[request.BrokerState(broker_id=1)],
        partition_epoch=0,
    )
    asked = request(
        broker_id=1,
        broker_epoch=node.epoch,
        topics=[request.TopicData(topic_id=wanted.topic_id, partitions=[changed])],
    )
    answer = await node.runner.alter_partition(asked, 3)
    partition = answer.topics[0].partitions[0]
    assert (partition.error_code, partition.isr, partition.partition_epoch) == (ErrorCode.NONE, [1], 1)


async def test_a_failure_is_told_to_the_caller_and_what_is_half_done_is_taken_up_by_a_new_term(
    start: StartNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await start(1), await start(2)
    await until(lambda: 2 in one.runner.state.brokers)
    await one.session.create_topics([topic("t", [2, 1])])
    await until(lambda: one.channels.leaders.get(1) == {("t", 0): 2})

    def fail(*_: object) -> None:
        raise RuntimeError("nobody expects this")

    monkeypatch.setattr(one.channels, "send", fail)  # after the new state is written, before anybody hears of it
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=two.epoch)
    async with asyncio.timeout(20):
        answer = await one.runner.controlled_shutdown(request, 3)
    assert answer.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert any("nobody expects this" in (each.exc_text or "") for each in caplog.records)
    await until(lambda: two.runner.controller_epoch == 2)
    assert not one.runner.is_active
    await until(lambda: two.channels.leaders.get(2) == {("t", 0): 1})


@pytest.mark.slow
async def test_what_zookeeper_refuses_ends_in_an_answer_too(start: StartNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await start(1)
    await node.session.create_topics([topic("t", [1])])
    await until(lambda: node.channels.leaders.get(1) == {("t", 0): 1})

    async def refuse(*_: object) -> None:
        raise ZooKeeperError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(node.session, "write_topics", refuse)
        moved = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[1])
        moves = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[moved])
        state = node.runner.state
        state.brokers[2] = registration(2)
        moved.replicas = [1, 2]
        async with asyncio.timeout(20):
            answer = await node.runner.alter_reassignments(AlterPartitionReassignmentsRequest(topics=[moves]))
    assert answer.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    await until(lambda: node.runner.controller_epoch == 2)


@pytest.mark.slow
async def test_a_controller_that_cannot_even_resign_tries_until_it_can(
    start: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await start(1), await start(2)
    await until(lambda: 2 in one.runner.state.brokers)
    await one.session.create_topics([topic("t", [2, 1])])
    await until(lambda: one.channels.leaders.get(1) == {("t", 0): 2})
    resign, refusals = one.session.resign, 0

    def fail(*_: object) -> None:
        raise RuntimeError("nobody expects this")

    async def resign_at_the_second_try(term: ElectedController) -> None:
        nonlocal refusals
        refusals += 1
        if refusals == 1:
            raise ZooKeeperError("not now")
        await resign(term)

    monkeypatch.setattr(one.channels, "send", fail)
    monkeypatch.setattr(one.session, "resign", resign_at_the_second_try)
    await one.runner.controlled_shutdown(ControlledShutdownRequest(broker_id=2, broker_epoch=two.epoch), 3)
    await until(lambda: two.runner.controller_epoch == 2)
    monkeypatch.undo()
    await two.stop()
    await until(lambda: one.runner.is_active)


async def test_a_controller_that_is_elected_and_cannot_read_on_lets_others_be_elected(
    start: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start(1)
    read, refusals = one.session.read_controller, 0

    async def refuse_the_first_one_elected(*, watch: bool = False) -> znodes.ControllerNode | None:
        nonlocal refusals
        node = await read(watch=watch)
        if node is not None and refusals == 0:
            refusals += 1
            raise ZooKeeperError("not now")
        return node

    monkeypatch.setattr(one.session, "read_controller", refuse_the_first_one_elected)
    await one.session.delete(znodes.CONTROLLER)
    await until(lambda: one.runner.is_active and one.runner.controller_epoch == 3)


async def test_an_election_that_is_won_and_not_heard_of_begins_a_term_all_the_same(
    start: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await start(1)
    elect, failures = one.session.elect_controller, 0

    async def win_and_fail_once(broker_id: int, timestamp_ms: int) -> ElectedController | None:
        nonlocal failures
        won = await elect(broker_id, timestamp_ms)
        if failures == 0:
            failures += 1
            raise ZooKeeperError("the answer is lost")
        return won

    monkeypatch.setattr(one.session, "elect_controller", win_and_fail_once)
    await one.session.delete(znodes.CONTROLLER)
    await until(lambda: failures == 1 and one.runner.is_active and one.runner.controller_epoch == 2)


async def test_a_controlled_shutdown_moves_leaders(start: StartNode) -> None:
    one, two = await start(1), await start(2)
    await until(lambda: 2 in one.runner.state.brokers)
    await one.session.create_topics([topic("t", [2, 1])])
    await until(lambda: one.channels.leaders.get(1) == {("t", 0): 2})
    answer = await one.runner.controlled_shutdown(ControlledShutdownRequest(broker_id=2, broker_epoch=two.epoch), 3)
    assert (answer.error_code, list(answer.remaining_partitions)) == (ErrorCode.NONE, [])
    await until(lambda: one.channels.leaders[1] == {("t", 0): 1})
    refused = await two.runner.controlled_shutdown(ControlledShutdownRequest(broker_id=2, broker_epoch=two.epoch), 3)
    assert refused.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_who_wants_to_stop_does_not_wait_until_all_of_many_new_topics_are_made(
    start: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "TOPICS_AT_ONCE", 2)
    one, two = await start(1), await start(2)
    await until(lambda: 2 in one.runner.state.brokers)
    asked: list[asyncio.Future[Any]] = []
    made: list[int] = []
    names_of_topics = one.session.topic_names

    async def topic_names(*, watch: bool = False) -> list[str]:
        names = await names_of_topics(watch=watch)
        if len(names) == 10 and not asked:
            request = ControlledShutdownRequest(broker_id=2, broker_epoch=two.epoch)
            asked.append(asyncio.ensure_future(one.runner.controlled_shutdown(request, 3)))
            asked[0].add_done_callback(lambda _: made.append(len(one.runner.state.assignments)))
        return names

    monkeypatch.setattr(one.session, "topic_names", topic_names)
    await one.session.create_topics([topic(f"t{number}", [1, 2]) for number in range(10)])
    await until(lambda: bool(made))
    assert asked[0].result().error_code is ErrorCode.NONE
    assert 0 < made[0] < 10
    await until(lambda: len(one.channels.leaders.get(1, {})) == 10)


async def test_who_wants_to_stop_passes_by_what_waits_for_the_controller(start: StartNode) -> None:
    node = await start(1)
    may_go_on, is_stopping = asyncio.Event(), []

    async def hold_up() -> None:
        await may_go_on.wait()

    async def look() -> None:
        is_stopping.append(1 in node.runner.state.shutting_down)

    for job in (hold_up, look, look):
        node.runner._put(job)
    await until(lambda: node.runner.waiting_jobs == 2)
    request = ControlledShutdownRequest(broker_id=1, broker_epoch=node.epoch)
    asked = asyncio.create_task(node.runner.controlled_shutdown(request, 3))
    await until(lambda: node.runner.waiting_jobs == 3)
    may_go_on.set()
    await until(lambda: len(is_stopping) == 2)
    assert is_stopping == [True, True]
    assert (await asked).error_code is ErrorCode.NONE


async def test_a_topic_that_is_deleted_before_it_was_made_is_made_and_deleted(
    start: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "TOPICS_AT_ONCE", 2)
    node = await start(1)
    names_of_topics = node.session.topic_names

    async def topic_names(*, watch: bool = False) -> list[str]:
        names = await names_of_topics(watch=watch)
        if len(names) == 10 and not node.runner.state.assignments:
            await node.session.mark_topic_deleted("t9")
        return names

    monkeypatch.setattr(node.session, "topic_names", topic_names)
    await node.session.create_topics([topic(f"t{number}", [1]) for number in range(10)])
    await until(lambda: len(node.runner.state.assignments) == 10)
    await until(lambda: len(node.runner.state.assignments) == 9)
    assert not await node.session.topic_exists("t9")
    assert await node.session.children("/admin/delete_topics") == []


async def test_replicas_move_through_the_legacy_node(start: StartNode) -> None:
    node = await start(1)
    await start(2)
    await until(lambda: 2 in node.runner.state.brokers)
    await node.session.create_topics([topic("t", [1])])
    await until(lambda: node.channels.leaders.get(1) == {("t", 0): 1})
    targets = {TopicPartition("t", 0): (2,)}
    await node.session.create("/admin/reassign_partitions", znodes.encode_reassignments(targets))
    await until(lambda: node.runner.state.replicas(TopicPartition("t", 0)) == (2, 1))
    listed = at_once(node.runner.list_reassignments(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None)))
    moving = listed.topics[0].partitions[0]
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ([2, 1], [2], [1])


async def test_a_node_with_numbers_that_are_none_ends_no_term(start: StartNode) -> None:
    node = await start(1)
    epoch = node.runner.controller_epoch
    data = b'{"version":1,"partitions":[{"topic":"t","partition":1e400,"replicas":[1]}]}'
    await node.session.create("/admin/reassign_partitions", data)
    await node.session.create("/log_dir_event_notification/log_dir_event_", b'{"version":1,"event":1,"broker":[1]}')
    for broker_id in ("abc", "99999999999"):
        await node.session.create(f"/brokers/ids/{broker_id}", b'{"version":5,"endpoints":["PLAINTEXT://h:1"]}')
    await node.session.create("/brokers/topics/odd", b'{"version":3,"partitions":{"0":[[1],2]}}')
    await node.session.create_topics([topic("t", [1])])
    await until(lambda: node.channels.leaders.get(1) == {("t", 0): 1})
    listed = at_once(node.runner.list_reassignments(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None)))
    assert (listed.error_code, node.runner.controller_epoch) == (ErrorCode.NONE, epoch)
    assert list(node.runner.state.brokers) == [1]


async def test_a_node_that_nobody_understands_keeps_no_other_from_being_served(
    start: StartNode, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start(1)
    session = node.session
    await session.create_topics([topic("good", [1]), topic("odd", [1], [1]), topic("big", [1])])
    await until(lambda: len(node.channels.leaders.get(1, {})) == 4)
    (odd, _), (state, _) = await session.get("/brokers/topics/odd"), await session.get(znodes.state_path("big", 0))
    await session.set("/feature", b"what?")
    await session.set("/brokers/topics/odd", (odd or b"").replace(b"[1]", b"[99999999999]"))
    await session.set(znodes.state_path("big", 0), (state or b"").replace(b"[1]", b"[99999999999]"))
    await session.create("/brokers/ids/9", b'{"version":1,"host":null,"port":1}')
    await session.create(f"/brokers/topics/{'n' * 250}", b'{"version":3,"partitions":{"0":[1]}}')
    epoch = node.runner.controller_epoch
    await session.delete("/controller")
    await until(lambda: node.runner.controller_epoch > epoch and "good" in node.runner.state.assignments)
    await session.create_topics([topic("new", [1])])
    await until(lambda: ("new", 0) in node.channels.leaders[1])
    assert node.runner.controller_epoch == epoch + 1
    assert list(node.runner.state.brokers) == [1]
    text = "\n".join(each.getMessage() for each in caplog.records if each.levelname == "ERROR")
    assert "Traceback" not in caplog.text
    assert node.runner.state.assignments.keys() == {"good", "big", "new"}
    for path in ("/feature", "/brokers/topics/odd", znodes.state_path("big", 0), "/brokers/ids/9", "n" * 250):
        assert path in text
    await session.set("/brokers/topics/odd", odd)
    await until(lambda: "odd" in node.runner.state.assignments)  # in the same term
    assert node.runner.controller_epoch == epoch + 1


@pytest.mark.slow
async def test_without_an_epoch_there_is_no_controller_and_the_log_says_why(
    start: StartNode, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start(1)
    epoch = node.runner.controller_epoch
    await node.session.set("/controller_epoch", b"what?")
    await node.session.delete("/controller")
    await until(lambda: not node.runner.is_active and "/controller_epoch holds no epoch" in caplog.text)
    await node.session.set("/controller_epoch", b"%d" % (epoch + 10))
    await until(lambda: node.runner.controller_epoch == epoch + 11)
    assert "Traceback" not in caplog.text


@pytest.mark.slow
async def test_a_controller_whose_node_names_nobody_runs_again(
    start: StartNode, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start(1)
    epoch = node.runner.controller_epoch
    await node.session.set("/controller", b"what?")
    await until(lambda: node.runner.controller_epoch > epoch)
    assert "/controller does not hold JSON" in caplog.text
    assert "Traceback" not in caplog.text


async def test_notifications_are_handled_and_removed(start: StartNode) -> None:
    node = await start(1)
    await node.session.create_topics([topic("t", [1])])
    await until(lambda: node.channels.leaders.get(1) == {("t", 0): 1})
    sent = len(node.channels.sent)
    await node.session.notify_log_dir_failure(1)
    changes = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    await node.session.create("/isr_change_notification/isr_change_", changes, sequential=True)
    await node.session.create("/isr_change_notification/isr_change_", b"nonsense", sequential=True)
    await until(lambda: len(node.channels.sent) >= sent + 3)
    for parent in ("/isr_change_notification", "/log_dir_event_notification"):
        gone = asyncio.Event()
        node.session.watch(parent, lambda _path, gone=gone: gone.set())  # type: ignore[misc]
        while await node.session.children(parent, watch=True):
            await asyncio.wait_for(gone.wait(), 20)
            gone.clear()


@pytest.mark.slow
async def test_while_four_thousand_partitions_are_made_others_get_their_turn(start: StartNode) -> None:
    node = await start(1)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    counting = asyncio.create_task(count_turns())
    try:
        await node.session.create_topics([topic("t", *([1] for _ in range(4000)))])
        await until(lambda: len(node.channels.leaders.get(1, {})) == 4000)
    finally:
        counting.cancel()
    # In a few large pieces of work there would be a few turns; a busy machine makes each of them slower, not fewer.
    assert turns > 20


async def test_answers_that_wait_for_the_controller_let_others_in_between_two() -> None:
    runner = ControllerRunner(ZooKeeper("nowhere:1"), 1, FakeChannels(), ControllerConfig())
    order = []

    async def job() -> None:
        order.append("controller")

    async def other() -> None:
        for _ in range(3):
            order.append("other")
            await asyncio.sleep(0)

    for _ in range(3):
        runner._put(job)
    loop = asyncio.create_task(runner._loop())
    await other()
    await until(lambda: order.count("controller") == 3)
    loop.cancel()
    assert order == ["other", "controller"] * 3
