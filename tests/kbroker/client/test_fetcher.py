"""Answers and plans of a fetcher without a broker: what an answer is taken for, and what ends nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kbroker.client import errors
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.consumer import Consumer
from kbroker.client.fetcher import Fetcher, fetch_request
from kbroker.client.metadata import Node, PartitionMetadata, TopicMetadata
from kbroker.client.partition_state import COMMITTED, Chunk, PartitionState
from kbroker.client.places import answered, ask_about
from kbroker.client.producer import Producer
from kbroker.client.types import EARLIEST, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.fetch import FetchResponse
from kbroker.protocol.records.builder import BatchBuilder

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(base_offset: int, count: int) -> bytearray:
    builder = BatchBuilder()
    for index in range(count):
        builder.append(None, b"%d" % (base_offset + index))
    return builder.build(base_offset=base_offset)


def answer(*partitions: FetchResponse.PartitionData) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=list(partitions))
    return FetchResponse(error_code=ErrorCode.NONE, session_id=0, responses=[topic])


def data(index: int, records: bytes | None, error: ErrorCode = ErrorCode.NONE, **fields: Any) -> Any:
    return FetchResponse.PartitionData(
        partition_index=index,
        error_code=error,
        records=records,
        aborted_transactions=None,
        **{"high_watermark": 100, **fields},
    )


def take(fetcher: Fetcher, one: FetchResponse, *states: PartitionState) -> None:
    """Ask about the states and get this answer."""
    asked = ask_about(states)
    fetcher._take_all(one, asked, 1)
    answered(asked)


@pytest.fixture
async def consumer() -> AsyncIterator[Consumer]:
    """One whose cluster never answers; broker 1 leads partitions 0 and 1."""
    async with Consumer("127.0.0.1:1", auto_offset_reset="earliest") as consumer:
        metadata = consumer.cluster.metadata
        metadata.nodes = {1: Node(1, "127.0.0.1", 1)}
        led = {index: PartitionMetadata(index, 1, 0, (1,), (1,), (), ErrorCode.NONE) for index in (0, 1)}
        metadata.topics["t"] = TopicMetadata("t", bytes(16), False, ErrorCode.NONE, led)
        metadata.updated_at = asyncio.get_running_loop().time()
        yield consumer


@pytest.fixture
def fetcher(consumer: Consumer) -> Fetcher:
    return consumer._fetcher


def test_a_partition_given_up_and_back_does_not_take_the_old_answer(fetcher: Fetcher) -> None:
    before = fetcher.assignment.begin(KEY, COMMITTED)
    before.move(50)
    asked = ask_about([before])
    fetcher.assignment.drop([KEY])
    again = fetcher.assignment.begin(KEY, COMMITTED)
    again.move(0)
    assert again.generation == 1, "as the other had when it was asked about"
    fetcher._take_all(answer(data(0, bytes(batch(50, 50)))), asked, 1)
    assert (list(again.chunks), again.fetch_offset) == ([], 0)
    take(fetcher, answer(data(0, bytes(batch(0, 50)))), again)
    assert (len(again.chunks), again.fetch_offset) == (1, 50)


async def test_a_partition_taken_away_between_plan_and_request_stops_nothing(fetcher: Fetcher) -> None:
    fetcher.assignment.begin(KEY, offset=0)
    kept = fetcher.assignment.begin(OTHER, offset=0)
    fetcher._plan()
    began = kept.is_fetching
    fetcher.assignment.drop([KEY])
    async with asyncio.timeout(20):
        while kept.is_fetching:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert began
    assert not fetcher.background.problems
    assert OTHER in fetcher.background.lost, "there is no broker 1: its leader is looked up"


async def test_what_cannot_be_understood_of_one_partition_is_its_own_problem(
    consumer: Consumer, fetcher: Fetcher
) -> None:
    states = [fetcher.assignment.begin(key, offset=0) for key in (KEY, OTHER)]
    odd = data(0, None, preferred_read_replica="none")
    take(fetcher, answer(odd, data(1, bytes(batch(0, 3)))), *states)
    with pytest.raises(TypeError):
        await consumer.poll(1)
    assert [record.offset for record in await consumer.poll(1)] == [0, 1, 2]


async def test_what_was_fetched_is_delivered_before_the_place_is_reset(consumer: Consumer, fetcher: Fetcher) -> None:
    state = fetcher.assignment.begin(KEY, offset=5)
    take(fetcher, answer(data(0, bytes(batch(5, 3)))), state)
    refused = answer(data(0, None, ErrorCode.OFFSET_OUT_OF_RANGE))
    take(fetcher, refused, state)
    assert (state.reset_to, state in fetcher.assignment.full) == (None, True)
    assert [record.offset for record in await consumer.poll(1)] == [5, 6, 7]
    take(fetcher, refused, state)
    assert state.reset_to == EARLIEST


def test_a_seek_drops_what_was_asked_before(fetcher: Fetcher) -> None:
    state = fetcher.assignment.begin(KEY, offset=0)
    asked = ask_about([state])
    state.move(7)
    assert not state.is_fetching, "it may be asked about at once"
    fetcher._take_all(answer(data(0, bytes(batch(0, 3)))), asked, 1)
    assert (list(state.chunks), state.fetch_offset) == ([], 7)


async def test_a_poisoned_batch_is_named_and_can_be_skipped(consumer: Consumer) -> None:
    bad = batch(3, 2)
    bad[-1] ^= 1
    records = bytes(batch(0, 3) + bad + batch(5, 1))
    state = consumer._assignment.begin(KEY, offset=0)
    state.add(Chunk(records))
    assert [record.offset for record in await consumer.poll(1)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(errors.CorruptMessageError, match=r"t-0: offset 3 .* before offset 5"):
            await consumer.poll(1)
    state.move(5)
    state.add(Chunk(records))
    assert [record.offset for record in await consumer.poll(1)] == [5]


async def test_a_batch_that_lies_about_its_offset_is_named_behind_what_can_be_read(
    consumer: Consumer, fetcher: Fetcher
) -> None:
    state = fetcher.assignment.begin(KEY, offset=0)
    answered = answer(data(0, bytes(batch(0, 3) + batch(1 << 40, 2)), high_watermark=5))
    for values in ([0, 1, 2], []):
        take(fetcher, answered if values else answer(data(0, bytes(batch(1 << 40, 2)), high_watermark=5)), state)
        assert not values or [record.offset for record in await consumer.poll(1)] == values
        with pytest.raises(
            errors.CorruptMessageError, match=r"t-0: offset 3 cannot be read: .* the partition ends at 5"
        ):
            await consumer.poll(1)


async def test_the_next_request_is_under_way_before_an_answer_is_decoded(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, batch_size=1000) as producer:
        for _ in range(50):
            await producer.send(topic, b"x" * 1000, partition=0)
    async with Consumer(bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=2000) as consumer:
        await consumer.assign([(topic, 0)])
        fetcher = consumer._fetcher
        async with asyncio.timeout(20):
            while not consumer._assignment.states[TopicPartition(topic, 0)].chunks:
                fetcher.background.arrived.clear()
                await fetcher.background.arrived.wait()
        assert fetcher._busy


async def test_who_was_left_out_of_an_answer_does_not_rest(fetcher: Fetcher) -> None:
    left_out, at_its_end = (fetcher.assignment.begin(key, offset=0) for key in (KEY, OTHER))
    full = fetcher.assignment.begin(TopicPartition("t", 2), offset=0)
    take(
        fetcher,
        answer(data(0, None), data(1, None, high_watermark=0), data(2, bytes(batch(0, 50)))),
        left_out,
        at_its_end,
        full,
    )
    assert (left_out.rests_until, at_its_end.rests_until > 0, full.rests_until) == (0.0, True, 0.0)
    take(fetcher, answer(data(0, None)), left_out)
    assert left_out.rests_until > 0, "nobody's records came: asking again at once brings nothing"


async def test_a_partition_that_others_left_no_room_is_read_before_those_are_done(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, batch_size=1) as producer:
        for partition in (*[0] * 10, 1):
            await producer.send(topic, b"x" * 2000, partition=partition)
    one_batch = {"fetch_max_bytes": 1000, "max_partition_fetch_bytes": 1000, "fetch_max_wait_ms": 60_000}
    async with Consumer(bootstrap, auto_offset_reset="earliest", **one_batch) as consumer:
        await consumer.assign([(topic, 0), (topic, 1)])
        states = consumer._assignment.states
        arrived = consumer._fetcher.background.arrived
        async with asyncio.timeout(20):  # nothing is decoded meanwhile
            while not all(states[TopicPartition(topic, partition)].chunks for partition in (0, 1)):
                arrived.clear()
                await arrived.wait()


async def test_what_was_asked_before_a_seek_is_given_to_nobody(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, batch_size=1) as producer:
        for number in range(20):
            await producer.send(topic, b"%d" % number, partition=0)
    async with Consumer(bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=1) as consumer:
        await consumer.assign([(topic, 0)])
        state = consumer._assignment.states[TopicPartition(topic, 0)]
        async with asyncio.timeout(20):
            for offset in (15, 3, 10, 0, 17, 5):
                while not (state.is_fetching and state.offset >= 0):  # noqa: ASYNC110 - an answer is on its way
                    await asyncio.sleep(0)
                before = state.generation
                consumer.pause((topic, 0))
                consumer.seek((topic, 0), offset)
                consumer.resume((topic, 0))
                assert state.generation > before
            found: list[int] = []
            while len(found) < 15:
                batch = await consumer.next_batch(timeout=10)
                assert batch is not None
                found += batch["offset"].to_pylist()
        assert found == list(range(5, 20))


def test_a_follower_with_a_damaged_batch_is_not_read_again_under_its_leader() -> None:
    config = ConsumerConfig(bootstrap="b:1", client_rack="r2")
    state, other = PartitionState(KEY, 0), PartitionState(OTHER, 0)
    state.leader_epoch = other.leader_epoch = 4
    assert fetch_request(config, ask_about([state, other]), True).rack_id == "r2"
    state.prefer(1, 4, 1e9)
    assert state.distrust(4)
    state.leader_epoch = 4
    assert fetch_request(config, ask_about([state, other]), True).rack_id == ""
    assert fetch_request(config, ask_about([other]), True).rack_id == "r2"
    state.leader_epoch = 5
    assert fetch_request(config, ask_about([state]), True).rack_id == "r2"


def test_what_was_fetched_says_whether_a_follower_gave_it(fetcher: Fetcher) -> None:
    state = PartitionState(KEY, 0)
    state.leader_epoch = 4
    state.prefer(1, 4, 1e9)
    take(fetcher, answer(data(0, bytes(batch(0, 3)))), state)
    state.replica = -1  # as after a fetch that failed
    take(fetcher, answer(data(0, bytes(batch(3, 3)))), state)
    state.prefer(1, 3, 1e9)  # the follower of then leads now
    take(fetcher, answer(data(0, bytes(batch(6, 3)))), state)
    assert [chunk.follower_in for chunk in state.chunks] == [4, None, None]


def test_a_follower_that_says_that_a_batch_is_damaged_is_given_up_for_its_leader(fetcher: Fetcher) -> None:
    state = PartitionState(KEY, 0)
    state.leader_epoch = 0
    state.prefer(1, 0, 1e9)
    take(fetcher, answer(data(0, None, ErrorCode.CORRUPT_MESSAGE)), state)
    assert (state.problem, state.replica, state.distrusted_in) == (None, -1, 0)
    take(fetcher, answer(data(0, None, ErrorCode.CORRUPT_MESSAGE)), state)
    assert isinstance(state.problem, errors.CorruptMessageError)
