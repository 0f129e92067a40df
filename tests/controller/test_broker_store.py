"""The broker's znodes in a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kbroker.controller import broker_store, znodes
from kbroker.controller.broker_store import ConfigChange, NewTopic
from kbroker.controller.znode_operations import (
    BadVersion,
    BrokerIdTaken,
    ControllerMoved,
    NodeExists,
    NoNode,
    Stat,
    TooLarge,
)
from kbroker.controller.znodes import BrokerRegistration, Endpoint, ReplicaAssignment, TopicAssignment
from tests.controller.conftest import Connect, until
from tests.controller.sessions import expire, tell_of_change
from tests.fixtures.others import Others

BROKER = BrokerRegistration(1, (Endpoint("PLAINTEXT", "h1", 9092),), rack="r1", timestamp_ms=5)


def topic(name: str, partitions: int = 1) -> NewTopic:
    return NewTopic(name, os.urandom(16), {number: [1] for number in range(partitions)}, {"retention.ms": "1"})


async def test_top_level_paths_hold_null(connect: Connect) -> None:
    session = await connect()
    for path in znodes.TOP_LEVEL_PATHS:
        assert (await session.get(path))[0] is None, path


async def test_the_first_cluster_id_is_everybodys(connect: Connect) -> None:
    session = await connect()
    assert await session.read_cluster_id() is None
    assert await session.cluster_id("a" * 22) == "a" * 22
    assert await session.cluster_id("b" * 22) == "a" * 22
    data, _ = await session.get("/cluster/id")
    assert json.loads(data or b"") == {"version": "1", "id": "a" * 22}


async def test_generated_broker_ids_start_above_the_reserved_ones(connect: Connect) -> None:
    session = await connect()
    assert [await session.generate_broker_id(1000) for _ in range(2)] == [1001, 1002]


async def test_a_broker_registers_with_its_creation_zxid_as_epoch(connect: Connect) -> None:
    session = await connect()
    epoch = await session.register_broker(BROKER)
    _, stat = await session.get("/brokers/ids/1")
    assert stat.czxid == epoch
    assert stat.version == 1
    assert stat.ephemeral_owner == session.session_id
    assert (await session.brokers())[1].epoch == epoch
    assert await session.register_broker(BROKER) == epoch


async def test_another_live_brokers_id_is_not_taken(connect: Connect) -> None:
    one, other = await connect(), await connect()
    await one.register_broker(BROKER)
    with pytest.raises(BrokerIdTaken, match="broker id 1 is in use"):
        await other.register_broker(BROKER)
    waiting = asyncio.create_task(other.register_broker(BROKER, wait_ms=5_000))
    await asyncio.sleep(0.05)
    await one.close()
    assert await asyncio.wait_for(waiting, 20) > 0


async def test_what_a_dead_process_of_the_same_broker_has_left_goes_at_once(connect: Connect) -> None:
    dead, present = await connect(), await connect()
    before = await dead.register_broker(BROKER)
    assert await dead.elect_controller(1, 0) is not None
    await present.end_former_life(1, {dead.session_id})
    assert await present.brokers() == {}
    assert await present.read_controller() is None
    assert await present.register_broker(BROKER) > before


async def test_what_the_dead_process_sent_last_does_not_keep_the_id(connect: Connect) -> None:
    dead, present = await connect(), await connect()
    assert await dead.elect_controller(1, 0) is not None
    await present.end_former_life(1, {dead.session_id})
    before = await dead.register_broker(BROKER)  # was on its way
    assert await present.register_broker(BROKER) > before


@pytest.mark.parametrize("is_any_dead", [True, False])
async def test_what_belongs_to_others_stays_when_a_former_life_is_ended(connect: Connect, is_any_dead: bool) -> None:
    dead, other, present = await connect(), await connect(), await connect()
    epoch = await other.register_broker(BROKER)
    assert await other.elect_controller(2, 0) is not None
    await present.end_former_life(1, {dead.session_id} if is_any_dead else set())
    assert (await present.brokers())[1].epoch == epoch
    assert await present.read_controller() is not None


async def test_a_controller_elected_while_a_former_life_is_ended_stays(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, other, present = await connect(), await connect(), await connect()
    assert await dead.elect_controller(1, 0) is not None
    exists = present.exists

    async def exists_until_told(path: str) -> Stat | None:
        found = await exists(path)
        if path == znodes.CONTROLLER:
            await dead.delete(path)
            assert await other.elect_controller(2, 0) is not None
        return found

    monkeypatch.setattr(present, "exists", exists_until_told)
    await present.end_former_life(1, {dead.session_id})
    controller = await present.read_controller()
    assert controller is not None
    assert controller.broker_id == 2


async def test_after_an_expired_session_the_epoch_is_a_new_one(connect: Connect) -> None:
    session = await connect()
    before = await session.register_broker(BROKER)
    established = asyncio.Event()
    session.on_session_established.append(established.set)
    await expire(session)
    await asyncio.wait_for(established.wait(), 20)
    assert await session.register_broker(BROKER) > before


async def test_topics_are_made_with_their_configurations_or_not_at_all(connect: Connect) -> None:
    session = await connect()
    first = topic("a", 3)
    assert await session.create_topics([first, topic("b")]) == {"a": None, "b": None}
    again = await session.create_topics([NewTopic("a", bytes(16), {0: [2]}, {"x": "y"}), topic("c")])
    assert isinstance(again["a"], NodeExists)
    assert again["c"] is None
    read = await session.read_topics()
    assert sorted(read) == ["a", "b", "c"]
    assert read["a"] == TopicAssignment(first.topic_id, {number: ReplicaAssignment((1,)) for number in range(3)})
    assert await session.read_config("topics", "a") == {"retention.ms": "1"}


async def test_a_topic_whose_creation_was_not_answered_is_not_taken_for_somebody_elses(connect: Connect) -> None:
    session = await connect()
    wanted = topic("a", 2)
    assert await session.create_topics([wanted]) == {"a": None}  # and the connection was lost before the answer came
    assert await session.create_topics([wanted]) == {"a": None}
    assert await session.create_topics([wanted, topic("b")]) == {"a": None, "b": None}


async def test_partitions_whose_addition_was_not_answered_are_added_once(connect: Connect) -> None:
    session = await connect()
    await session.create_topics([topic("a", 2)])
    known = (await session.read_topics(["a"]))["a"]
    more = replace(known, partitions={**known.partitions, 2: ReplicaAssignment((1,))})
    await session.write_topic_assignment("a", more)
    await session.write_topic_assignment("a", more)
    with pytest.raises(BadVersion):
        await session.write_topic_assignment("a", known)


async def test_a_configuration_left_over_from_a_deleted_topic_is_replaced(connect: Connect) -> None:
    session = await connect()
    await session.create("/config/topics/a", znodes.encode_config({"old": "1"}))
    assert await session.create_topics([topic("a")]) == {"a": None}
    assert await session.read_config("topics", "a") == {"retention.ms": "1"}


async def test_a_topic_of_ten_thousand_partitions_fits_into_its_node(connect: Connect) -> None:
    session = await connect()
    assignment = {number: [1001, 1002, 1003] for number in range(10_000)}
    assert await session.create_topics([NewTopic("big", os.urandom(16), assignment, {})]) == {"big": None}
    assert len((await session.read_topics(["big"]))["big"].partitions) == 10_000


@pytest.mark.slow
async def test_many_large_topics_are_made_at_once_and_one_that_cannot_be_is_told_of(connect: Connect) -> None:
    session = await connect()
    topics = [NewTopic(f"t{number}", os.urandom(16), {each: [1] for each in range(9_000)}, {}) for number in range(5)]
    topics.append(NewTopic("huge", os.urandom(16), {each: [1, 2, 3] for each in range(300_000)}, {}))
    results = await asyncio.wait_for(session.create_topics(topics), 60)
    assert isinstance(results.pop("huge"), TooLarge)
    assert results == {f"t{number}": None for number in range(5)}
    assert not await session.topic_exists("huge")


async def test_topics_are_decoded_in_turns(connect: Connect, others: Others, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await connect()
    names = [f"t{number}" for number in range(6)]
    await session.create_topics([topic(name) for name in names])
    decoded: Counter[int] = Counter()
    decode = znodes.decode_topic

    def noted(*node: Any) -> TopicAssignment:
        decoded[others.turns] += 1
        return decode(*node)

    monkeypatch.setattr(znodes, "decode_topic", noted)
    monkeypatch.setattr(broker_store, "DECODED_AT_ONCE", 2 * (broker_store.SMALL_NODE + 100))
    assert sorted(await session.read_topics(names)) == names
    assert max(decoded.values()) <= 2


async def test_a_malformed_topic_is_left_out(connect: Connect) -> None:
    session = await connect()
    await session.create_topics([topic("good")])
    await session.create("/brokers/topics/bad", b"{")
    assert list(await session.read_topics()) == ["good"]


async def test_marking_a_topic_for_deletion_needs_the_topic(connect: Connect) -> None:
    session = await connect()
    with pytest.raises(NoNode):
        await session.mark_topic_deleted("a")
    await session.create_topics([topic("a")])
    await session.mark_topic_deleted("a")
    await session.mark_topic_deleted("a")
    assert await session.topics_to_delete() == {"a"}
    assert (await session.get("/admin/delete_topics/a"))[0] is None


def setting(**changes: str) -> ConfigChange:
    async def change(present: dict[str, str]) -> dict[str, str]:
        return {**present, **changes}

    return change


async def nothing(present: dict[str, str]) -> dict[str, str]:
    return {}


async def test_configurations_are_written_under_the_controllers_eyes(connect: Connect) -> None:
    session = await connect()
    with pytest.raises(ControllerMoved):
        await session.change_config("brokers", "1", setting(a="b"))
    assert await session.change_config("brokers", "2", setting(a="b"), needs_controller=False) == {"a": "b"}
    await session.elect_controller(1, 5)
    await session.change_config("brokers", "1", setting(a="b"))
    assert await session.change_config("brokers", "1", setting(a="c")) == {"a": "c"}
    await session.change_config("users", "bob/clients/c%201", setting(producer_byte_rate="1"))
    assert await session.read_all_configs("brokers") == {"1": {"a": "c"}, "2": {"a": "b"}}
    assert await session.read_config("users", "bob/clients/c%201") == {"producer_byte_rate": "1"}
    assert len(await session.children("/config/changes")) == 4
    for broker in ("1", "2"):
        await session.delete(f"/config/brokers/{broker}")
    assert await session.config_entities("brokers") == []


async def test_changes_of_one_entity_by_many_brokers_at_once_are_all_kept(connect: Connect) -> None:
    sessions = [await connect() for _ in range(4)]
    await sessions[0].elect_controller(1, 5)
    keys = [f"{number}.{each}" for number in range(4) for each in range(5)]
    await asyncio.gather(
        *(sessions[index % 4].change_config("users", "ann", setting(**{key: "1"})) for index, key in enumerate(keys))
    )
    assert await sessions[0].read_config("users", "ann") == dict.fromkeys(keys, "1")
    assert len(await sessions[0].children("/config/changes")) == len(keys)


async def test_what_others_wrote_between_reading_and_writing_is_read_again(connect: Connect) -> None:
    session, other = await connect(), await connect()
    await session.elect_controller(1, 5)
    seen = []

    async def change(present: dict[str, str]) -> dict[str, str]:
        seen.append(dict(present))
        if len(seen) == 1:
            await other.change_config("users", "ann", setting(theirs="1"))
        elif len(seen) == 2:
            await other.change_config("users", "ann", nothing)
        return {**present, "ours": "1"}

    assert await session.change_config("users", "ann", change) == {"ours": "1"}
    assert seen == [{}, {"theirs": "1"}, {}]


async def test_a_change_whose_answer_was_lost_is_not_made_twice(connect: Connect) -> None:
    session = await connect()
    await session.elect_controller(1, 5)
    await session.change_config("users", "ann", setting(a="1"))
    calls = []

    async def deletion(present: dict[str, str]) -> dict[str, str]:
        calls.append(dict(present))
        if len(calls) == 1:
            await session.change_config("users", "ann", nothing)  # as if it had been this very write
        del present["a"]
        return present

    assert await session.change_config("users", "ann", deletion) == {}
    assert calls == [{"a": "1"}]
    assert await session.config_entities("users") == []  # a user without overrides has no node


async def test_a_user_without_overrides_stays_as_long_as_clients_have_some(connect: Connect) -> None:
    session = await connect()
    await session.elect_controller(1, 5)
    await session.change_config("users", "ann/clients/app", setting(producer_byte_rate="1"))
    await session.change_config("users", "ann", setting(a="1"))
    await session.change_config("users", "ann", nothing)
    assert await session.read_config("users", "ann/clients/app") == {"producer_byte_rate": "1"}
    assert await session.config_entities("users") == ["ann"]


async def test_every_configuration_change_is_told_once_and_in_order(connect: Connect) -> None:
    writer, reader = await connect(), await connect()
    await tell_of_change(writer, "topics", "before")
    told: list[tuple[str, str]] = []

    async def take(entity_type: str, entity: str) -> None:
        await asyncio.sleep(0)
        told.append((entity_type, entity))

    await reader.watch_config_changes(take)
    assert told == [("topics", "before")]
    await writer.create("/config/changes/config_change_", b"nonsense", sequential=True)
    for number in range(20):
        await tell_of_change(writer, "topics", f"t{number}")
    await until(lambda: len(told) == 21)
    assert told[1:] == [("topics", f"t{number}") for number in range(20)]


async def test_producer_id_blocks_follow_each_other_whoever_asks(connect: Connect) -> None:
    one, other = await connect(), await connect()
    blocks = await asyncio.gather(*(each.next_producer_id_block(7) for each in (one, other) * 5))
    assert sorted(block.first for block in blocks if block) == [1000 * number for number in range(10)]
    data, _ = await one.get("/latest_producer_id_block")
    assert json.loads(data or b"") == {"version": 1, "broker": 7, "block_start": "9000", "block_end": "9999"}


async def test_a_log_directory_failure_is_notified(connect: Connect) -> None:
    session = await connect()
    await session.notify_log_dir_failure(1)
    found = await session.read_notifications("/log_dir_event_notification")
    assert [json.loads(data or b"") for data in found.values()] == [{"version": 1, "broker": 1, "event": 1}]


async def test_the_feature_node_is_read_when_it_comes(connect: Connect) -> None:
    session = await connect()
    fired: list[str] = []
    session.watch("/feature", fired.append)
    assert await session.read_feature(watch=True) is None
    term = await session.elect_controller(1, 5)
    assert term is not None
    await session.ensure_feature(term)
    await until(lambda: fired == ["/feature"])
    assert await session.read_feature() == (znodes.encode_feature(), 0)


async def test_levels_are_changed_by_whoever_has_seen_the_last_change(connect: Connect) -> None:
    session, other = await connect(), await connect()
    term = await session.elect_controller(1, 5)
    assert term is not None
    await session.ensure_feature(term, {"x": 1})
    seen: list[Mapping[str, int]] = []

    async def change(levels: dict[str, int]) -> Mapping[str, int]:
        seen.append(levels)
        if len(seen) == 1:
            await other.set("/feature", znodes.encode_feature({"x": 2}))
        return {**levels, "y": 1}

    await session.update_features(change)
    assert seen == [{"x": 1}, {"x": 2}]
    assert await session.read_feature() == (znodes.encode_feature({"x": 2, "y": 1}), 2)
    await session.update_features(change)
    assert await session.read_feature() == (znodes.encode_feature({"x": 2, "y": 1}), 2), "nothing has changed"
