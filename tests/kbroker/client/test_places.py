"""Where partitions begin, and what becomes of answers that come too late."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from kbroker.client import errors
from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.partition_state import COMMITTED
from kbroker.client.places import ask_about
from kbroker.client.producer import Producer
from kbroker.client.types import EARLIEST, OffsetAndMetadata, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataResponse
from kbroker.protocol.records.record import Record

KEY = TopicPartition("t", 0)
FORMER_ID = b"a.former.topicid"


async def test_a_commit_looked_up_for_a_partition_given_up_and_back_is_dropped() -> None:
    async with Consumer("127.0.0.1:1") as consumer:
        assignment, places = consumer._assignment, consumer._fetcher.places
        state = assignment.begin(KEY, COMMITTED)

        async def committed(keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
            assert list(keys) == [KEY]
            assignment.begin(KEY, COMMITTED)
            return {KEY: OffsetAndMetadata(50)}

        await places._ask_group(committed, ask_about([state]))
        assert (assignment.states[KEY].offset, assignment.states[KEY].reset_to) == (-1, COMMITTED)
        await places._ask_group(places_of(20), ask_about([assignment.states[KEY]]))
        assert assignment.states[KEY].offset == 20


def places_of(offset: int):  # type: ignore[no-untyped-def]
    async def committed(keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        return dict.fromkeys(keys, OffsetAndMetadata(offset))

    return committed


async def test_a_partition_without_a_leader_does_not_keep_others_from_beginning(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_and_wait(topic, b"x", partition=0)
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([(topic, 0), (topic, 1)])
        del consumer.cluster.metadata.topics[topic].partitions[1]
        consumer._assignment.begin(TopicPartition(f"{topic}-of-nobody", 0), -2)
        assert [record.value for record in await consumer.poll(20)] == [b"x"]


async def test_a_position_that_cannot_be_found_in_time_is_an_error(bootstrap: str, topic: str) -> None:
    async with Consumer(bootstrap, auto_offset_reset="earliest", request_timeout_ms=300) as consumer:
        nobodys = TopicPartition(f"{topic}-of-nobody", 0)
        consumer._assignment.begin(nobodys, -2)
        with pytest.raises(errors.RequestTimedOutError, match=r"no offsets found of .*of-nobody-0"):
            await consumer.position(nobodys)


async def test_positions_are_found_whatever_was_sought(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(3):
            await producer.send(topic, b"x", partition=0, timestamp_ms=1_000 + number)
    async with Admin(bootstrap) as admin, Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await admin.delete_records({TopicPartition(topic, 0): 1})
        await consumer.assign([(topic, 0)])
        assert await consumer.position((topic, 0)) == 1
        for timestamp, offset in ((1_002, 2), (9_000, 3)):
            await consumer.seek_to_timestamp(timestamp)
            assert await consumer.position((topic, 0)) == offset
        await consumer.seek_to_end()
        async with asyncio.timeout(20):
            assert await consumer.position((topic, 0)) == 3


def tell_of_topic(consumer: Consumer, topic_id: bytes) -> None:
    """A broker's metadata say by which id the topic goes."""
    leader = MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1)
    partition = MetadataResponse.MetadataResponsePartition(
        error_code=ErrorCode.NONE, partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
    )
    topic = MetadataResponse.MetadataResponseTopic(
        error_code=ErrorCode.NONE, name=KEY.topic, topic_id=topic_id, partitions=[partition]
    )
    consumer.cluster.metadata.update(MetadataResponse(brokers=[leader], topics=[topic]), 0.0)
    consumer._fetcher.places._see_metadata()


BY_HAND: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}


@pytest.mark.parametrize(
    ("arguments", "followed", "place"),
    [
        ({"group_id": "g", "auto_offset_reset": "earliest"}, (), (-1, EARLIEST, 0)),
        ({"group_id": "g"}, (), (-1, COMMITTED, 0)),
        (BY_HAND, (), (-1, COMMITTED, 0)),
        ({}, (KEY.topic,), (-1, EARLIEST, 0)),
        ({}, (), (50, None, 1)),
    ],
    ids=["in a group", "where only what is new counts", "who commits by hand", "alone", "assigned"],
)
async def test_a_topic_made_again_is_begun_as_one_that_is_new(
    arguments: dict[str, Any], followed: Iterable[str], place: tuple[int, int | None, int]
) -> None:
    async with Consumer("127.0.0.1:1", **arguments) as consumer:
        state = consumer._assignment.begin(KEY, offset=50)
        consumer._fetcher.places.follow(followed)
        for same in (FORMER_ID, bytes(16), FORMER_ID):
            tell_of_topic(consumer, same)
            assert state.offset == 50
        consumer._assignment.put_ahead(state, [Record(40, 0, 0, None, b"decoded")])
        tell_of_topic(consumer, b"present.topic.id")
        assert (state.offset, state.reset_to, consumer._assignment.records_ahead) == place
        state.move(7)
        tell_of_topic(consumer, FORMER_ID)  # by a broker that is cut off from the others
        tell_of_topic(consumer, b"present.topic.id")
        assert state.offset == 7
        consumer._assignment.drop([KEY])


async def test_what_is_looked_up_is_of_the_topic_as_it_is_known_then() -> None:
    async with Consumer("127.0.0.1:1", group_id="g", enable_auto_commit=False) as consumer:
        consumer._fetcher.places.committed = places_of(20)
        tell_of_topic(consumer, FORMER_ID)
        state = consumer._assignment.begin(KEY, COMMITTED)
        consumer._fetcher.places.plan()
        tell_of_topic(consumer, b"present.topic.id")
        assert state.generation == 1, "the answer is of the former topic's commits"
