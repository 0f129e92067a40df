"""Transactions on a real broker, request by request, in every version."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers import load_all
from kbroker.handlers.registry import HANDLERS
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.topics import CreateTopicsRequest
from kbroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.schema import schema_of
from kbroker.replica.reply import Reply
from tests.kbroker.asking import Ask, coordinator_of

NONE = ErrorCode.NONE
TIMEOUT = 20.0
_numbers = count()


class Producer:
    """A transactional producer, by hand."""

    def __init__(self, ask: Ask, topic: str) -> None:
        self.ask = ask
        self.topic = topic
        self.transactional_id = f"handlers-{next(_numbers)}"
        self.producer_id, self.epoch = -1, -1

    async def begin(self) -> Producer:
        await coordinator_of(self.ask, self.transactional_id)
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        answer = await self.ask(request, 4)
        assert answer.error_code is NONE
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return self

    async def add(
        self, *partitions: int, version: int = 3, epoch: int | None = None, topic: str = ""
    ) -> dict[int, Any]:
        """Errors by partition."""
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic or self.topic, partitions=partitions)]
        epoch = self.epoch if epoch is None else epoch
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
            (result,) = (await self.ask(request, version)).results_by_topic_v3_and_below
        else:
            answer = await self.ask(AddPartitionsToTxnRequest(transactions=[self._asked(topics, epoch)]), version)
            assert answer.error_code is NONE
            (result,) = answer.results_by_transaction[0].topic_results
        return {each.partition_index: each.partition_error_code for each in result.results_by_partition}

    def _asked(self, topics: Any, epoch: int, verify_only: bool = False) -> Any:
        return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=topics,
        )

    def verification(self, *partitions: int, epoch: int | None = None) -> Any:
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=self.topic, partitions=partitions)]
        return self._asked(topics, self.epoch if epoch is None else epoch, verify_only=True)

    async def end(self, commit: bool = True, version: int = 4, epoch: int | None = None) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )
        code: ErrorCode = (await self.ask(request, version)).error_code
        return code

    async def describe(self) -> Any:
        answer = await self.ask(DescribeTransactionsRequest(transactional_ids=[self.transactional_id]), 0)
        return answer.transaction_states[0]

    async def until(self, state: str) -> None:
        async with asyncio.timeout(TIMEOUT):
            while (await self.describe()).transaction_state != state:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)


@pytest.fixture
async def producer(ask: Ask) -> Producer:
    topic = f"transactional-{next(_numbers)}"
    wanted = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=3, replication_factor=1, assignments=[], configs=[]
    )
    answer = await ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
    assert answer.topics[0].error_code in (NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    return await Producer(ask, topic).begin()


@pytest.mark.parametrize("version", range(6))
async def test_every_version_adds_partitions(producer: Producer, version: int) -> None:
    assert await producer.add(0, 2, version=version) == {0: NONE, 2: NONE}
    assert await producer.add(0, version=version) == {0: NONE}
    found = await producer.describe()
    assert [(topic.topic, list(topic.partitions)) for topic in found.topics] == [(producer.topic, [0, 2])]


@pytest.mark.parametrize("version", range(6))
async def test_one_unknown_partition_keeps_the_others_out(producer: Producer, version: int) -> None:
    assert await producer.add(0, 9, version=version) == {
        0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (await producer.describe()).transaction_state == "Empty"


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
@pytest.mark.parametrize("version", range(4))
async def test_clients_add_no_partition_of_the_topics_of_coordinators(
    producer: Producer, version: int, topic: str
) -> None:
    """What is behind a marker there could not be read any more, and offsets go with their group."""
    assert await producer.add(0, version=version, topic=topic) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert (await producer.describe()).transaction_state == "Empty"


@pytest.mark.parametrize("version", range(6))
async def test_a_fenced_producer_learns_it_in_the_words_of_its_version(producer: Producer, version: int) -> None:
    expected = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
    assert await producer.add(0, version=version, epoch=7) == {0: expected}
    if version < 5:
        assert await producer.end(version=version, epoch=7) is expected
        offsets = AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=7,
            group_id="g",
        )
        assert (await producer.ask(offsets, version)).error_code is expected


@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_ask_for_many_transactions_at_once(producer: Producer, ask: Ask, version: int) -> None:
    other = await Producer(ask, producer.topic).begin()
    await producer.add(0)
    fenced = other.verification(0, epoch=5)
    request = AddPartitionsToTxnRequest(transactions=[producer.verification(0, 1), fenced])
    first, second = (await ask(request, version)).results_by_transaction
    assert (first.transactional_id, second.transactional_id) == (producer.transactional_id, other.transactional_id)
    found = {each.partition_index: each.partition_error_code for each in first.topic_results[0].results_by_partition}
    assert found == {0: NONE, 1: ErrorCode.TRANSACTION_ABORTABLE}
    assert second.topic_results[0].results_by_partition[0].partition_error_code is ErrorCode.PRODUCER_FENCED
    assert (await other.describe()).transaction_state == "Empty"


@pytest.mark.parametrize("version", range(5))
async def test_the_partition_of_a_group_takes_part(producer: Producer, version: int) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id="g",
    )
    assert (await producer.ask(request, version)).error_code is NONE
    (topic,) = (await producer.describe()).topics
    assert (topic.topic, len(topic.partitions)) == ("__consumer_offsets", 1)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commit", [True, False])
async def test_every_version_ends_a_transaction(producer: Producer, version: int, commit: bool) -> None:
    assert await producer.end(commit, version) is ErrorCode.INVALID_TXN_STATE
    await producer.add(0, 1)
    assert await producer.end(commit, version) is NONE
    await producer.until("CompleteCommit" if commit else "CompleteAbort")
    assert await producer.end(commit, version) is NONE
    assert await producer.end(not commit, version) is ErrorCode.INVALID_TXN_STATE


async def test_an_id_that_nobody_has_is_refused(producer: Producer) -> None:
    for transactional_id, expected in (
        ("", ErrorCode.INVALID_REQUEST),
        ("handlers-nobody", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ):
        producer.transactional_id = transactional_id
        assert await producer.add(0) == {0: expected}
        assert await producer.add(0, version=4) == {0: expected}
        assert await producer.end() is expected


async def test_a_transaction_is_described_as_it_stands(producer: Producer, ask: Ask) -> None:
    begun = time.time() * 1000
    await producer.add(1)
    names = [producer.transactional_id, "handlers-nobody", producer.transactional_id, "", "handlers-nobody"]
    request = DescribeTransactionsRequest(transactional_ids=names)  # those named twice are told once
    found, unknown, empty = (await ask(request, 0)).transaction_states
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (NONE, "Ongoing", 60_000)
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert abs(found.transaction_start_time_ms - begun) < 5_000
    assert (unknown.error_code, unknown.transaction_state) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "")
    assert empty.error_code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 1])
async def test_transactions_are_listed_by_state_producer_and_age(producer: Producer, ask: Ask, version: int) -> None:
    other = await Producer(ask, producer.topic).begin()
    await producer.add(0)

    async def listed(**filters: Any) -> set[str]:
        fields = {"state_filters": [], "producer_id_filters": [], **filters}
        answer = await ask(ListTransactionsRequest(**fields), version)
        assert answer.error_code is NONE
        assert list(answer.unknown_state_filters) == [name for name in fields["state_filters"] if name == "Odd"]
        ours = {producer.transactional_id, other.transactional_id}
        return ours & {each.transactional_id for each in answer.transaction_states}

    assert await listed() == {producer.transactional_id, other.transactional_id}
    assert await listed(state_filters=["Ongoing", "Odd"]) == {producer.transactional_id}
    assert await listed(producer_id_filters=[other.producer_id]) == {other.transactional_id}
    assert await listed(state_filters=["Dead"]) == set()
    if version == 1:
        assert producer.transactional_id not in await listed(duration_filter=3_600_000)
        await asyncio.sleep(0.005)
        assert producer.transactional_id in await listed(duration_filter=1)


# --- an epoch for each transaction ----------------------------------------------------------------------------------


class EachProducer(Producer):
    """One whose transactions have an epoch of their own, from version 12 of Produce on; else it goes as before."""

    async def produce(self, partition: int, version: int, epoch: int, sequence: int = 0) -> ErrorCode:
        builder = BatchBuilder()
        builder.append(b"k", b"of epoch %d" % epoch, (), 1_000)
        records = builder.build(self.producer_id, epoch, sequence, transactional=True)
        data = ProduceRequest.PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=20_000,
            topic_data=[ProduceRequest.TopicProduceData(name=self.topic, partition_data=[data])],
        )
        async with asyncio.timeout(TIMEOUT):
            while True:
                answer = await self.ask(request, version)
                code: ErrorCode = answer.responses[0].partition_responses[0].error_code
                if not code.retriable:
                    return code
                await asyncio.sleep(0.01)

    async def end_each(self, commit: bool = True, epoch: int | None = None) -> Any:
        """Asks again while the markers are being written."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )
        async with asyncio.timeout(TIMEOUT):
            while True:
                answer = await self.ask(request, 5)
                if answer.error_code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    return answer
                await asyncio.sleep(0.01)


@pytest.fixture
async def each(producer: Producer) -> EachProducer:
    made = EachProducer(producer.ask, producer.topic)
    await made.begin()
    return made


@pytest.mark.parametrize(
    ("has_epoch_each", "told"), [(False, NONE), (True, ErrorCode.INVALID_PRODUCER_EPOCH)], ids=["as before", "refused"]
)
async def test_a_late_produce_of_an_ended_transaction_gets_into_the_next_one_only_without_an_epoch_for_each(
    each: EachProducer, has_epoch_each: bool, told: ErrorCode
) -> None:
    version, first = 12 if has_epoch_each else 11, each.epoch
    if not has_epoch_each:
        assert await each.add(0, 1) == {0: NONE, 1: NONE}
    assert await each.produce(0, version, first) is NONE  # another for partition 1 is still on its way
    if has_epoch_each:
        each.epoch = (await each.end_each()).producer_epoch
    else:
        assert await each.end() is NONE
        await each.until("CompleteCommit")
        assert await each.add(0, 1) == {0: NONE, 1: NONE}
    assert await each.produce(0, version, each.epoch, sequence=0 if has_epoch_each else 1) is NONE
    assert await each.produce(1, version, first) is told, "it arrives now"


async def test_who_produces_takes_part_in_the_transaction_and_its_end_brings_the_next_epoch(each: EachProducer) -> None:
    for commit in (True, False, True):
        before = each.epoch
        for partition in (0, 2):
            assert await each.produce(partition, 12, before) is NONE
        found = await each.describe()
        assert (found.transaction_state, [list(topic.partitions) for topic in found.topics]) == ("Ongoing", [[0, 2]])
        answer = await each.end_each(commit)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NONE, each.producer_id, before + 1)
        again = await each.end_each(commit)
        assert (again.error_code, again.producer_epoch) == (NONE, before + 1), "its answer might have been lost"
        assert (await each.end_each(not commit)).error_code is ErrorCode.INVALID_TXN_STATE
        each.epoch = answer.producer_epoch
    answer = await each.end_each(commit=False)  # of nothing
    assert (answer.error_code, answer.producer_epoch) == (NONE, each.epoch + 1)


async def test_a_producer_whose_epoch_another_has_raised_is_fenced_also_where_it_produces(each: EachProducer) -> None:
    assert await each.produce(0, 12, each.epoch) is NONE
    old = each.epoch
    async with asyncio.timeout(TIMEOUT):
        while True:
            request = InitProducerIdRequest(transactional_id=each.transactional_id, transaction_timeout_ms=60_000)
            answer = await each.ask(request, 5)
            if answer.error_code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await asyncio.sleep(0.01)
    assert answer.producer_epoch > old
    assert await each.produce(1, 12, old) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await each.produce(0, 12, old, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await each.end_each(epoch=old)).error_code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("request_", "ends"),
    [
        (AddPartitionsToTxnRequest(), True),
        (AddOffsetsToTxnRequest(transactional_id="id", producer_id=1, producer_epoch=0, group_id="g"), True),
        (InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=1), True),
        (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), False),
        (EndTxnRequest(transactional_id="id", producer_id=1, producer_epoch=0, committed=True), False),
    ],
)
async def test_what_begins_something_ends_with_its_connection_from_the_first_moment(request_: Any, ends: bool) -> None:
    """Nobody would be left to end what it begins; a decision, however, is carried out whoever hears of it."""
    load_all()
    asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    services: Any = SimpleNamespace(
        transactions=SimpleNamespace(add_partitions=lambda *_: asked, end=lambda *_: asked),
        metadata=SimpleNamespace(knows=lambda *_: True),
    )
    context = SimpleNamespace(ends_with_connection=False, api_version=0, is_large=False)
    waiting = HANDLERS[schema_of(type(request_)).api_key].handler(services, context, request_)
    assert context.ends_with_connection is ends
    if isinstance(waiting, Reply):
        waiting.cancel()
        assert asked.cancelled()
    else:
        waiting.close()


def test_a_leader_that_only_verifies_is_answered_at_once() -> None:
    """Batches wait for it: no task, no turn of the loop (there is none here)."""
    load_all()
    key = ("orders", 0)
    services: Any = SimpleNamespace(transactions=SimpleNamespace(verify=lambda *_: {key: ErrorCode.PRODUCER_FENCED}))
    context = SimpleNamespace(ends_with_connection=False, api_version=4, is_large=False)
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="orders", partitions=[0])]
    asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id="mine", producer_id=1, producer_epoch=0, verify_only=True, topics=topics
    )
    request = AddPartitionsToTxnRequest(transactions=[asked])
    answer = HANDLERS[schema_of(AddPartitionsToTxnRequest).api_key].handler(services, context, request)
    (result,) = answer.results_by_transaction
    assert result.transactional_id == "mine"
    (told,) = result.topic_results[0].results_by_partition
    assert (told.partition_index, told.partition_error_code) == (0, ErrorCode.PRODUCER_FENCED)
