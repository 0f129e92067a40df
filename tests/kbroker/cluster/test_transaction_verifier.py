"""Transactions verified at their coordinators, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any

import pytest

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.cluster.topic_names import TRANSACTIONS_TOPIC
from kbroker.cluster.transaction_verifier import Errors, Transaction, TransactionVerifier
from kbroker.network.connection import Connection
from kbroker.network.dispatch import PENDING
from kbroker.network.server import Listener, Server
from kbroker.protocol.codec import decode
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import Key
from kbroker.protocol.headers import encode_response, read_request_header
from kbroker.protocol.java_hash import partition_for
from kbroker.protocol.messages.api_versions import ApiVersionsResponse
from kbroker.protocol.messages.replication import UpdateMetadataRequest
from kbroker.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

Response = AddPartitionsToTxnResponse
Asked = list[tuple[str, int, int, bool, list[Key]]]
MINE = Transaction("mine", 7, 1)
BOTH: list[Key] = [("orders", 0), ("orders", 1)]


class Coordinator:
    """Answers each partition with `says`, once `lets_go` is set; notes the requests."""

    def __init__(self) -> None:
        self.says: dict[Key, ErrorCode] = {}
        self.error = ErrorCode.NONE
        self.newest = 5
        self.gone = 0
        """So many requests end their connection."""
        self.asked: list[Asked] = []
        self.versions: list[int] = []
        self.was_asked = asyncio.Event()
        self.lets_go = asyncio.Event()
        self.lets_go.set()
        self.server = Server(self.dispatch)
        self.server.bind([Listener("PLAINTEXT", "127.0.0.1", 0)])
        self.server.start()
        self.port = self.server.ports["PLAINTEXT"]

    def dispatch(self, connection: Connection, frame: memoryview) -> Any:
        header, position = read_request_header(frame)
        if header.api_key == 18:
            entry = ApiVersionsResponse.ApiVersion(api_key=24, min_version=0, max_version=self.newest)
            versions = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[entry])
            return encode_response(versions, header.api_version, header.correlation_id)
        self.versions.append(header.api_version)
        request = decode(AddPartitionsToTxnRequest, frame, header.api_version, position)
        self.answering = asyncio.ensure_future(self.answer(request))

        def answered(done: asyncio.Future[Any]) -> None:
            if done.result() is None:
                connection.close("gone")
            else:
                connection.answer(encode_response(done.result(), header.api_version, header.correlation_id))

        self.answering.add_done_callback(answered)
        return PENDING

    async def answer(self, request: AddPartitionsToTxnRequest) -> Response | None:
        asked: Asked = []
        for each in request.transactions:
            keys = [(topic.name, partition) for topic in each.topics for partition in topic.partitions]
            asked.append((each.transactional_id, each.producer_id, each.producer_epoch, each.verify_only, keys))
        self.asked.append(asked)
        self.was_asked.set()
        await self.lets_go.wait()
        if self.gone:
            self.gone -= 1
            return None
        results = [
            Response.AddPartitionsToTxnResult(
                transactional_id=transactional_id,
                topic_results=[
                    Response.AddPartitionsToTxnTopicResult(
                        name=topic,
                        results_by_partition=[
                            Response.AddPartitionsToTxnPartitionResult(
                                partition_index=partition,
                                partition_error_code=self.says.get((topic, partition), ErrorCode.NONE),
                            )
                        ],
                    )
                    for topic, partition in keys
                ],
            )
            for transactional_id, _, _, _, keys in asked
        ]
        return Response(error_code=self.error, results_by_transaction=results if not self.error else [])


class Here:
    """A coordinator in the broker: answers what `says` begins with to who adds."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.added: list[Any] = []
        self.says: list[ErrorCode] = []

    def verify(self, *asked: Any) -> Mapping[Key, ErrorCode]:
        self.asked.append(asked)
        return {("orders", 0): ErrorCode.NONE, ("orders", 1): ErrorCode.PRODUCER_FENCED}

    def partitions_of(self, *asked: Any) -> frozenset[Key]:
        self.asked.append(asked)
        return frozenset(BOTH)

    def add_by_produce(self, *added: Any) -> None:
        *asked, done = added
        self.added.append(tuple(asked))
        done(self.says.pop(0))


def told(port: int, leader: int = 2, more: int = 0) -> UpdateMetadataRequest:
    """Broker 2 is at this port; one broker leads all partitions of __transaction_state, nobody those added since."""
    request = UpdateMetadataRequest
    return request(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=1,
        topic_states=[
            request.UpdateMetadataTopicState(
                topic_name=TRANSACTIONS_TOPIC,
                topic_id=bytes(16),
                partition_states=[
                    request.UpdateMetadataPartitionState(
                        partition_index=partition,
                        controller_epoch=1,
                        leader=leader if partition < 4 else -1,
                        leader_epoch=0,
                        isr=[leader],
                        zk_version=0,
                        replicas=[leader],
                    )
                    for partition in range(4 + more)
                ],
            )
        ],
        live_brokers=[
            request.UpdateMetadataBroker(
                id=2,
                rack=None,
                endpoints=[
                    request.UpdateMetadataEndpoint(
                        port=port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0
                    )
                ],
            )
        ],
    )


def of_four(transactional_id: str) -> int:
    return partition_for(transactional_id, 4)


class Verified:
    """A verifier in broker 1, and a coordinator in broker 2."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.metadata = MetadataCache()
        self.metadata.update(told(self.coordinator.port))
        self.verifier = TransactionVerifier(self.metadata, 1, "PLAINTEXT", of_four, 5_000)

    def ask(
        self, transaction: Transaction = MINE, partitions: list[Key] = BOTH, adds: bool = False
    ) -> Awaitable[Errors]:
        future: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
        self.verifier.verify(transaction, partitions, future.set_result, adds)
        return asyncio.wait_for(future, 20)

    async def until_asked(self) -> None:
        await asyncio.wait_for(self.coordinator.was_asked.wait(), 20)


@pytest.fixture
async def verified() -> AsyncIterator[Verified]:
    made = Verified()
    yield made
    await made.verifier.close()
    await made.coordinator.server.stop(0.1)


async def test_the_coordinator_is_asked_to_verify_and_to_add_nothing(verified: Verified) -> None:
    assert await verified.ask() == {}
    assert verified.coordinator.asked == [[("mine", 7, 1, True, BOTH)]]
    assert verified.coordinator.versions == [5]


@pytest.mark.parametrize(
    ("said", "told_to_producers"),
    [
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
async def test_each_partition_has_its_own_error(
    verified: Verified, said: ErrorCode, told_to_producers: ErrorCode
) -> None:
    verified.coordinator.says["orders", 1] = said
    assert await verified.ask() == {("orders", 1): told_to_producers}


async def test_that_this_broker_may_not_ask_is_no_business_of_producers(verified: Verified) -> None:
    verified.coordinator.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await verified.ask() == dict.fromkeys(BOTH, ErrorCode.INVALID_TXN_STATE)
    verified.coordinator.error = ErrorCode.NOT_COORDINATOR
    assert await verified.ask() == dict.fromkeys(BOTH, ErrorCode.NOT_COORDINATOR)


async def test_a_broker_too_old_to_verify_is_believed(verified: Verified) -> None:
    verified.coordinator.newest = 3
    verified.coordinator.says["orders", 1] = ErrorCode.TRANSACTION_ABORTABLE
    assert await verified.ask() == {}
    assert not verified.coordinator.asked


async def test_a_lost_connection_is_told_and_the_next_question_goes_by_a_new_one(verified: Verified) -> None:
    verified.coordinator.gone = 1
    assert await verified.ask() == dict.fromkeys(BOTH, ErrorCode.NETWORK_EXCEPTION)
    assert await verified.ask() == {}


async def test_without_a_coordinator_nothing_is_known(verified: Verified) -> None:
    unknown = dict.fromkeys(BOTH, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    verified.metadata.update(told(verified.coordinator.port, leader=-1))
    assert await verified.ask() == unknown
    verified.metadata.update(told(verified.coordinator.port, leader=3))
    assert await verified.ask() == unknown
    verified.verifier = TransactionVerifier(MetadataCache(), 1, "PLAINTEXT", of_four)
    assert await verified.ask() == unknown


async def test_partitions_added_to_the_topic_move_no_coordinator(verified: Verified) -> None:
    verified.metadata.update(told(verified.coordinator.port, more=60))
    for number in range(10):
        assert await verified.ask(Transaction(f"id {number}", number, 0)) == {}


async def test_a_coordinator_in_this_broker_is_asked_directly(verified: Verified) -> None:
    here = Here()
    verified.metadata.update(told(verified.coordinator.port, leader=1))
    verified.verifier.here = here
    answers: list[Errors] = []
    verified.verifier.verify(MINE, BOTH, answers.append)
    assert answers == [{("orders", 1): ErrorCode.INVALID_PRODUCER_EPOCH}], "at once"
    assert here.asked == [("mine", 7, 1, BOTH)]


async def test_only_of_the_coordinator_in_this_broker_is_known_what_it_says_at_this_moment(verified: Verified) -> None:
    here = Here()
    assert not verified.verifier.known_here(MINE)
    verified.verifier.here = here
    assert not verified.verifier.known_here(MINE), "another broker is the coordinator"
    assert not here.asked
    verified.metadata.update(told(verified.coordinator.port, leader=1))
    assert verified.verifier.known_here(MINE) == frozenset(BOTH)
    assert here.asked == [MINE]
    await verified.verifier.close()
    assert not verified.verifier.known_here(MINE)


async def test_partitions_are_added_at_the_coordinator_in_this_broker(verified: Verified) -> None:
    here = Here()
    here.says = [ErrorCode.NONE, ErrorCode.PRODUCER_FENCED]
    verified.metadata.update(told(verified.coordinator.port, leader=1))
    verified.verifier.here = here
    answers: list[Errors] = []
    for _ in range(2):
        verified.verifier.verify(MINE, BOTH, answers.append, adds=True)
    assert answers == [{}, dict.fromkeys(BOTH, ErrorCode.INVALID_PRODUCER_EPOCH)], "at once"
    assert here.added == [("mine", 7, 1, BOTH)] * 2


async def test_who_adds_while_the_transaction_before_is_being_ended_is_asked_for_again(verified: Verified) -> None:
    here = Here()
    here.says = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3 + [ErrorCode.NONE]
    verified.metadata.update(told(verified.coordinator.port, leader=1))
    verified.verifier.here = here
    assert await verified.ask(MINE, BOTH, adds=True) == {}
    assert len(here.added) == 4
    here.says = [ErrorCode.CONCURRENT_TRANSACTIONS] * 100_000
    assert await verified.ask(MINE, BOTH, adds=True) == dict.fromkeys(BOTH, ErrorCode.CONCURRENT_TRANSACTIONS)


async def test_partitions_are_added_at_another_broker_and_those_that_come_meanwhile_go_together(
    verified: Verified,
) -> None:
    verified.coordinator.lets_go.clear()
    verified.coordinator.says["orders", 2] = ErrorCode.PRODUCER_FENCED
    first = asyncio.ensure_future(verified.ask(MINE, [("orders", 0)], adds=True))
    await verified.until_asked()
    others = [asyncio.ensure_future(verified.ask(MINE, [("orders", number)], adds=True)) for number in (1, 2, 1)]
    await asyncio.sleep(0)
    verified.coordinator.lets_go.set()
    assert await first == {}
    fenced = {("orders", 2): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert await asyncio.gather(*others) == [fenced] * 3, "whoever asked looks for its own"
    assert [[(*each[:4], sorted(each[4])) for each in asked] for asked in verified.coordinator.asked] == [
        [("mine", 7, 1, False, [("orders", 0)])],
        [("mine", 7, 1, False, [("orders", 1), ("orders", 2)])],
    ]


async def test_a_coordinator_that_cannot_add_is_no_reason_to_append(verified: Verified) -> None:
    verified.coordinator.newest = 3
    assert await verified.ask(MINE, BOTH, adds=True) == dict.fromkeys(BOTH, ErrorCode.UNSUPPORTED_VERSION)
    assert not verified.coordinator.asked


async def test_one_request_is_on_its_way_and_the_next_takes_all_that_came_meanwhile(verified: Verified) -> None:
    verified.coordinator.lets_go.clear()
    answers = [asyncio.ensure_future(verified.ask(Transaction("first", 1, 0)))]
    await verified.until_asked()
    answers += [asyncio.ensure_future(verified.ask(Transaction(f"{n}", n, 0), [("orders", n)])) for n in range(3)]
    await asyncio.sleep(0.02)
    assert len(verified.coordinator.asked) == 1
    verified.coordinator.lets_go.set()
    assert await asyncio.gather(*answers) == [{}] * 4
    assert [[each[0] for each in asked] for asked in verified.coordinator.asked] == [["first"], ["0", "1", "2"]]


@pytest.mark.parametrize(
    ("epoch", "before", "after"),
    [
        (1, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NONE),
        (2, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE),
        (0, ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
    ids=["tries again", "fences", "is fenced"],
)
async def test_of_two_questions_of_one_transactional_id_that_wait_one_is_asked(
    verified: Verified, epoch: int, before: ErrorCode, after: ErrorCode
) -> None:
    verified.coordinator.lets_go.clear()
    other = asyncio.ensure_future(verified.ask(Transaction("other", 1, 0)))
    await verified.until_asked()
    answers = [asyncio.ensure_future(verified.ask(each)) for each in (MINE, MINE._replace(producer_epoch=epoch))]
    await asyncio.sleep(0)
    verified.coordinator.lets_go.set()
    assert await asyncio.gather(*answers) == [
        {} if error is ErrorCode.NONE else dict.fromkeys(BOTH, error) for error in (before, after)
    ]
    assert await other == {}
    assert [each[2] for each in verified.coordinator.asked[1]] == [max(1, epoch)]


async def test_a_producer_with_another_id_is_not_judged_by_the_epoch_of_the_one_before(verified: Verified) -> None:
    verified.coordinator.lets_go.clear()
    other = asyncio.ensure_future(verified.ask(Transaction("other", 1, 0)))
    await verified.until_asked()
    last = MINE._replace(producer_epoch=32_766)
    fresh = MINE._replace(producer_id=MINE.producer_id + 1, producer_epoch=0)
    answers = [asyncio.ensure_future(verified.ask(each)) for each in (last, fresh)]
    await asyncio.sleep(0)
    verified.coordinator.lets_go.set()
    assert await asyncio.gather(*answers) == [dict.fromkeys(BOTH, ErrorCode.NETWORK_EXCEPTION), {}]
    assert await other == {}


async def one_asks_and_one_waits(verified: Verified) -> asyncio.Future[tuple[Errors, Errors]]:
    """The coordinator lets neither go."""
    verified.coordinator.lets_go.clear()
    first = asyncio.ensure_future(verified.ask())
    await verified.until_asked()
    second = asyncio.ensure_future(verified.ask(Transaction("other", 1, 0)))
    await asyncio.sleep(0)
    return asyncio.gather(first, second)


async def test_who_waits_when_the_broker_stops_is_told_that_nothing_is_known(verified: Verified) -> None:
    waiting = await one_asks_and_one_waits(verified)
    await verified.verifier.close()
    verified.coordinator.lets_go.set()
    assert [*await waiting] == [dict.fromkeys(BOTH, ErrorCode.NETWORK_EXCEPTION)] * 2


async def test_a_coordinator_that_hangs_is_waited_for_no_longer_than_it_is_in_the_cluster(verified: Verified) -> None:
    waiting = await one_asks_and_one_waits(verified)
    gone = told(verified.coordinator.port, leader=3)
    gone.live_brokers = []
    verified.metadata.update(gone)
    async with asyncio.timeout(2):
        assert [*await waiting] == [dict.fromkeys(BOTH, ErrorCode.NETWORK_EXCEPTION)] * 2
    verified.coordinator.lets_go.set()
    verified.metadata.update(told(verified.coordinator.port))
    assert await verified.ask() == {}


async def test_what_an_answer_does_not_name_is_not_verified(verified: Verified) -> None:
    async def nothing(request: AddPartitionsToTxnRequest) -> Response:
        return Response(error_code=ErrorCode.NONE, results_by_transaction=[])

    verified.coordinator.answer = nothing  # type: ignore[method-assign]
    assert await verified.ask() == dict.fromkeys(BOTH, ErrorCode.INVALID_TXN_STATE)
