"""The controller's znodes in a real ZooKeeper: election, fencing, writes by the hundred."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from kbroker.controller import znodes
from kbroker.controller.controller_store import ElectedController
from kbroker.controller.multi_codec import OPERATIONS_PER_MULTI
from kbroker.controller.znode_operations import (
    ControllerMoved,
    Create,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Stat,
    TooLarge,
)
from kbroker.controller.znodes import Conflict, PartitionState, TopicPartition
from kbroker.controller.zookeeper import ZooKeeper
from tests.controller.conftest import Connect


def states(partitions: int, topic: str = "t") -> dict[TopicPartition, PartitionState]:
    return {TopicPartition(topic, number): PartitionState(1, 0, (1, 2), 1) for number in range(partitions)}


async def elected(session: ZooKeeper, broker_id: int = 1) -> ElectedController:
    term = await session.elect_controller(broker_id, 5)
    assert term is not None
    return term


async def test_of_two_one_is_elected_and_epochs_count_up_from_one(connect: Connect) -> None:
    one, other = await connect(), await connect()
    results = await asyncio.gather(one.elect_controller(1, 5), other.elect_controller(2, 5))
    terms = [each for each in results if each is not None]
    assert [term.epoch for term in terms] == [1]
    winner, loser = (one, other) if results[0] else (other, one)
    data, _ = await one.get("/controller")
    assert json.loads(data or b"")["brokerid"] == (1 if winner is one else 2)
    await winner.close()
    second = await loser.elect_controller(9, 5)
    assert second == ElectedController(2, 2)


async def test_an_election_won_without_hearing_of_it_is_won(connect: Connect) -> None:
    session = await connect()
    assert await session.won_before(1) is None
    won = await session.elect_controller(1, 5)
    assert won == ElectedController(1, 1)
    for _ in range(2):
        assert await session.won_before(1) == won
    assert await session.elect_controller(1, 6) == won, "the node that stands in its way is its own"
    assert await session.won_before(2) is None
    assert await (await connect()).won_before(1) is None, "it is another session's"
    await session.set("/controller_epoch", b"2")
    assert await session.won_before(1) is None, "another was elected since"


async def test_the_writes_of_an_earlier_controller_are_refused(connect: Connect) -> None:
    one, other = await connect(), await connect()
    old = await elected(one)
    await one.create("/brokers/topics/t", b"")
    await one.delete("/controller")
    await elected(other, 2)
    with pytest.raises(ControllerMoved):
        await one.create_partition_states(old, states(3))
    with pytest.raises(ControllerMoved):
        await one.delete_nodes(old, ["/brokers/topics/t"])
    await one.resign(old)
    assert await other.exists("/controller") is not None
    assert await other.children("/brokers/topics/t") == []


async def test_resigning_gives_the_node_up(connect: Connect) -> None:
    session = await connect()
    await session.resign(await elected(session))
    assert await session.exists("/controller") is None


async def test_states_are_made_with_their_directories_in_order(connect: Connect) -> None:
    session = await connect()
    term = await elected(session)
    await session.create("/brokers/topics/t", b"")
    wanted = states(OPERATIONS_PER_MULTI + 50)
    assert await session.create_partition_states(term, wanted) == wanted
    assert await session.read_partition_states(wanted) == wanted
    data, _ = await session.get("/brokers/topics/t/partitions/3/state")
    assert json.loads(data or b"") == {
        "version": 1,
        "leader": 1,
        "leader_epoch": 0,
        "controller_epoch": 1,
        "isr": [1, 2],
    }
    assert (await session.get("/brokers/topics/t/partitions/3"))[0] is None


async def test_one_state_that_is_there_does_not_keep_the_others_from_being_made(connect: Connect) -> None:
    session = await connect()
    term = await elected(session)
    await session.create("/brokers/topics/t", b"")
    theirs = {TopicPartition("t", 2): PartitionState(2, 5, (2,), 1)}
    await session.create_partition_states(term, theirs)
    results = await session.create_partition_states(term, states(5))
    conflict = results.pop(TopicPartition("t", 2))
    assert conflict == Conflict(theirs[TopicPartition("t", 2)])
    assert all(isinstance(each, PartitionState) for each in results.values())


async def test_a_state_is_replaced_only_in_the_version_that_was_known(connect: Connect) -> None:
    session = await connect()
    term = await elected(session)
    await session.create("/brokers/topics/t", b"")
    await session.create_partition_states(term, states(3))
    stale = TopicPartition("t", 1)
    first = await session.write_partition_states(term, {stale: replace(states(3)[stale], isr=(1,))})
    assert first[stale] == replace(states(3)[stale], isr=(1,), partition_epoch=1)
    wanted = {each: replace(state, leader=2, leader_epoch=1) for each, state in states(3).items()}
    results = await session.write_partition_states(term, wanted)
    assert results[stale] == Conflict(first[stale])
    assert results[TopicPartition("t", 0)] == replace(wanted[TopicPartition("t", 0)], partition_epoch=1)
    missing = TopicPartition("t", 9)
    assert await session.write_partition_states(term, {missing: wanted[stale]}) == {missing: Conflict(None)}


async def test_a_write_whose_answer_was_lost_counts_as_written(connect: Connect) -> None:
    session = await connect()
    term = await elected(session)
    await session.create("/brokers/topics/t", b"")
    once = await session.create_partition_states(term, states(2))
    assert await session.create_partition_states(term, states(2)) == once
    wanted = {each: replace(state, leader=2, leader_epoch=1) for each, state in states(2).items()}
    written = await session.write_partition_states(term, wanted)
    assert await session.write_partition_states(term, wanted) == written


async def test_operations_succeed_and_fail_each_for_itself(connect: Connect) -> None:
    session = await connect()
    term = await elected(session)
    operations: list[Operation] = [Create("/a"), Create("/a"), SetData("/missing", b""), SetData("/a", b"1")]
    first, second, third, fourth = await session.write_fenced(term, operations)
    assert first == "/a"
    assert isinstance(second, NodeExists)
    assert isinstance(third, NoNode)
    assert isinstance(fourth, Stat)


async def test_large_operations_are_spread_over_several_multis(connect: Connect) -> None:
    session = await connect()
    term = await elected(session)
    outcomes = await session.write_fenced(term, [Create(f"/large{number}", bytes(200_000)) for number in range(12)])
    assert outcomes == [f"/large{number}" for number in range(12)]
    many = [Create(f"/{number:0200}", bytes(900)) for number in range(2000)]
    assert len(await session.write_fenced(term, many)) == 2000


async def test_a_fenced_write_that_can_never_fit_is_refused_in_clear_words(connect: Connect) -> None:
    session = await connect()
    term = await elected(session)
    path = "/brokers/topics/t"
    await session.create(path, b"")
    with pytest.raises(TooLarge, match=r"brokers/topics/t: 5\d{6} bytes"):
        await asyncio.wait_for(session.write_fenced(term, [SetData(path, bytes(5_000_000))]), 20)
    await session.write_fenced(term, [SetData(path, bytes(1000))])


async def test_a_deleted_topic_leaves_nothing(connect: Connect) -> None:
    session = await connect()
    term = await elected(session)
    await session.create("/brokers/topics/t", b"")
    await session.create("/config/topics/t", b"")
    await session.create("/admin/delete_topics/t", None)
    await session.create_partition_states(term, states(300))
    await session.create("/brokers/topics/t/partitions/999", None)
    await session.delete_topic_nodes(term, "t")
    for parent in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
        assert await session.children(parent) == []
    await session.delete_topic_nodes(term, "t")


async def test_a_disabled_feature_node_is_enabled_and_a_richer_one_left_alone(connect: Connect) -> None:
    session = await connect()
    term = await elected(session)
    await session.create("/feature", b'{"version":2,"status":0,"features":{}}')
    await session.ensure_feature(term)
    assert (await session.get("/feature"))[0] == znodes.encode_feature()
    richer = b'{"version":2,"status":1,"features":{"x":{"max_version_level":1}}}'
    await session.set("/feature", richer)
    await session.ensure_feature(term)
    assert (await session.get("/feature"))[0] == richer
