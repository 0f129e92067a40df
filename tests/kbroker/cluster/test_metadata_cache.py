from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.protocol.errors import KafkaError
from kbroker.protocol.messages.replication import LEADER_BEING_DELETED
from kbroker.protocol.messages.replication import UpdateMetadataRequest as Update
from kbroker.protocol.primitives import ZERO_UUID

TOPIC_ID = b"i" * 16


def update(*partitions: int, leader: int = 1, topic: str = "orders", topic_id: bytes = TOPIC_ID, **more: Any) -> Update:
    return Update(
        controller_id=more.get("controller_id", 1),
        controller_epoch=1,
        topic_states=[
            Update.UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=topic_id,
                partition_states=[
                    Update.UpdateMetadataPartitionState(
                        partition_index=partition,
                        controller_epoch=1,
                        leader=leader,
                        leader_epoch=3,
                        isr=[1],
                        zk_version=2,
                        replicas=[1, 2],
                        offline_replicas=[2],
                    )
                    for partition in partitions
                ],
            )
        ],
        live_brokers=[
            Update.UpdateMetadataBroker(
                id=1,
                rack="r1",
                endpoints=[
                    Update.UpdateMetadataEndpoint(port=9092, host="h", listener="PLAINTEXT", security_protocol=0)
                ],
            )
        ],
    )


def test_partitions_are_merged_and_brokers_replaced() -> None:
    cache = MetadataCache()
    cache.update(update(0))
    cache.update(update(1))
    assert sorted(cache.topics["orders"].partitions) == [0, 1]
    assert cache.endpoint(1, "PLAINTEXT") == ("h", 9092)
    assert cache.endpoint(1, "SSL") is None
    assert cache.is_alive(1)
    assert not cache.is_alive(2)
    found = cache.partition("orders", 1)
    assert found is not None
    assert (found.leader, found.leader_epoch, found.isr, found.offline_replicas) == (1, 3, (1,), (2,))


def test_a_topic_ends_with_its_last_partition() -> None:
    cache = MetadataCache()
    cache.update(update(0, 1))
    assert cache.update(update(0, leader=LEADER_BEING_DELETED)) == [("orders", 0)]
    assert cache.topic_by_id(TOPIC_ID) is cache.topics["orders"]
    cache.update(update(1, leader=LEADER_BEING_DELETED))
    assert cache.topics == {}
    assert cache.topic_by_id(TOPIC_ID) is None


def test_a_topic_made_anew_has_its_new_id() -> None:
    cache = MetadataCache()
    cache.update(update(0))
    cache.update(update(0, topic_id=b"n" * 16))
    assert cache.topic_by_id(TOPIC_ID) is None
    assert cache.topic_by_id(b"n" * 16) is not None
    cache.update(update(0, topic_id=ZERO_UUID))
    assert cache.topic_by_id(b"n" * 16) is None


def test_a_topic_made_anew_has_none_of_the_former_ones_partitions() -> None:
    cache = MetadataCache()
    cache.update(update(0, 1, 2))
    assert cache.update(update(0, topic_id=b"n" * 16)) == [("orders", 0), ("orders", 1), ("orders", 2)]
    assert list(cache.topics["orders"].partitions) == [0]
    assert cache.update(update(1, topic_id=b"n" * 16)) == []


def test_no_controller_is_none() -> None:
    cache = MetadataCache()
    cache.update(update(0, controller_id=-1))
    assert cache.controller_id is None


async def test_waiting_ends_with_the_update_that_was_waited_for() -> None:
    cache = MetadataCache()
    waiting = asyncio.create_task(cache.wait_for(lambda known: "orders" in known.topics, 60))
    await asyncio.sleep(0)
    cache.update(update(0, topic="bills"))
    await asyncio.sleep(0)
    assert not waiting.done()
    cache.update(update(0))
    assert await asyncio.wait_for(waiting, 20)
    assert not await cache.wait_for(lambda known: False, 0.01)
    assert cache._waiters == []


async def test_who_waits_for_much_looks_at_little_of_it_with_each_update() -> None:
    cache, looked_at = MetadataCache(), 0

    def is_there(partition: int) -> bool:
        nonlocal looked_at
        looked_at += 1
        return cache.knows("orders", partition)

    waiting = asyncio.create_task(cache.wait_for_all(range(100), is_there, 60))
    for partition in range(100):
        await asyncio.sleep(0)
        assert not waiting.done()
        cache.update(update(partition))
    assert await asyncio.wait_for(waiting, 20) == []
    assert looked_at <= 201
    assert await cache.wait_for_all([98, 200, 99, 300], is_there, 0.01) == [200, 300]


async def test_nobody_waits_for_updates_of_a_broker_that_stops() -> None:
    cache = MetadataCache()
    cache.update(update(0))
    waiting = asyncio.create_task(cache.wait_for(lambda known: False, 60))
    async with cache.while_reached(1, "PLAINTEXT"):
        await asyncio.sleep(0)
        cache.end()
        assert not await asyncio.wait_for(waiting, 20)
        assert not await asyncio.wait_for(cache.wait_for(lambda known: False, 60), 20)
        assert await cache.wait_for(lambda known: "orders" in known.topics, 60)
        await asyncio.sleep(0)  # whom it asks is still there


async def test_what_a_broker_is_asked_is_given_up_once_it_is_gone_or_elsewhere() -> None:
    cache = MetadataCache()
    cache.update(update(0))
    answer = asyncio.get_running_loop().create_future()

    async def ask() -> Any:
        async with cache.while_reached(1, "PLAINTEXT"):
            return await asyncio.shield(answer)

    asking = [asyncio.create_task(ask()) for _ in range(2)]
    await asyncio.sleep(0)
    cache.update(update(1, leader=2))
    answer.set_result("answer")
    assert await asking[0] == "answer"
    assert await asking[1] == "answer"
    answer = asyncio.get_running_loop().create_future()
    asking = [asyncio.create_task(ask()) for _ in range(2)]
    await asyncio.sleep(0)
    asking[0].cancel()
    gone = update(1)
    gone.live_brokers = []
    cache.update(gone)
    with pytest.raises(asyncio.CancelledError):
        await asking[0]
    with pytest.raises(KafkaError, match="broker 1 has left the cluster"):
        await asking[1]
    with pytest.raises(KafkaError, match="broker 1 has left the cluster"):
        await ask()
    assert cache._waiters == []


async def test_a_time_out_of_what_a_broker_is_asked_is_told_as_it_is() -> None:
    cache = MetadataCache()
    cache.update(update(0))
    with pytest.raises(TimeoutError):
        async with cache.while_reached(1, "PLAINTEXT"):
            raise TimeoutError
    assert cache._waiters == []


async def test_a_failing_predicate_reaches_who_waits() -> None:
    cache = MetadataCache()

    def broken(known: MetadataCache) -> bool:
        if known.updates:
            raise ZeroDivisionError
        return False

    waiting = asyncio.create_task(cache.wait_for(broken, 60))
    await asyncio.sleep(0)
    cache.update(update(0))
    with pytest.raises(ZeroDivisionError):
        await waiting


async def test_topics_that_went_unnoticed_are_forgotten_and_whoever_waits_is_told() -> None:
    cache = MetadataCache()
    cache.update(update(0, 1))
    waiting = asyncio.create_task(cache.wait_for(lambda now: "orders" not in now.topics, 60))
    await asyncio.sleep(0)
    assert cache.forget(["orders", "unknown"]) == [("orders", 0), ("orders", 1)]
    assert await waiting
    assert cache.topic_by_id(TOPIC_ID) is None
    assert cache.forget(["orders"]) == []


def test_the_names_of_the_topics_are_one_object_as_long_as_none_comes_or_goes() -> None:
    cache = MetadataCache()
    assert cache.names == frozenset()
    cache.update(update(0))
    names = cache.names
    assert names == {"orders"}
    cache.update(update(1))
    assert cache.names is names, "what many keep is kept once"
    cache.update(update(0, topic="bills", topic_id=b"j" * 16))
    assert cache.names == {"orders", "bills"}
    cache.forget(["orders"])
    assert cache.names == {"bills"}
