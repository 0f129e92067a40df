"""Some large requests are in work at once; the others wait in line, undecoded."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers.context import RequestContext
from kbroker.handlers.demands import nothing
from kbroker.handlers.registry import CloseConnection, handles
from kbroker.network.dispatch import PENDING, Dispatcher
from kbroker.network.large_requests import MOST_AT_WORK, MOST_SMALL_CHANGES, PATIENCE_S, LargeRequests
from kbroker.network.limits import LARGE_FRAME, MOST_AT_ONCE
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.reassignments import ElectLeadersRequest, ElectLeadersResponse
from kbroker.protocol.messages.replication import StopReplicaRequest
from kbroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kbroker.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kbroker.protocol.schema import Message
from kbroker.replica.turns import in_turns, is_long_work_under_way, only_waits
from tests.controller.conftest import until
from tests.kbroker.network.test_dispatch import Peer, frame_of, handlers, metadata_answer, metadata_frame

__all__ = ["handlers"]

MANY = 3 * MOST_AT_WORK
STEPS = 30


@pytest.fixture(autouse=True)
async def _ends() -> AsyncIterator[None]:
    """Nothing is left to be worked off, or let go of, when a test is over."""
    yield
    await until(lambda: not is_long_work_under_way())


class Serving:
    """A dispatcher whose handlers note who is at work, and work until they are told to end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.at_work: Counter[str] = Counter()
        self.most = 0
        self.may_end = False

    def handle(self, request_type: type[Message], answer: Callable[[], Any] = lambda: None) -> None:
        """Answer such requests after work in turns."""

        @handles(request_type, nothing("a test"))
        def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
            return in_turns(self._work(ctx.connection.principal, answer))

    def _work(self, name: str, answer: Callable[[], Any]) -> Generator[None, None, Any]:
        self.begun.append(name)
        self.at_work[name] += 1
        self.most = max(self.most, self.at_work.total())
        for _ in range(STEPS):
            yield
        while not self.may_end:
            yield
        self.at_work[name] -= 1
        return answer()


def ask(dispatcher: Dispatcher, number: int, frame: memoryview, *, of_broker: bool = False) -> Peer:
    """Let a client of its own send a large request."""
    peer: Any = Peer(takes_brokers=of_broker)
    peer.principal = f"User:{number}"
    assert dispatcher(peer, frame) is PENDING
    return peer  # type: ignore[no-any-return]


def new_dispatcher() -> Dispatcher:
    return Dispatcher(SimpleNamespace())  # type: ignore[arg-type]


def change_frame(request_type: Any, size: int) -> memoryview:
    """About users' passwords, or topics, of more bytes than that."""
    times = 1 + size // 10
    if request_type is CreateTopicsRequest:
        topic = CreateTopicsRequest.CreatableTopic(
            name="topic", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        return frame_of(CreateTopicsRequest(topics=[topic] * times), 7)
    if request_type is DeleteTopicsRequest:
        return frame_of(DeleteTopicsRequest(topic_names=["some-topic"] * times, timeout_ms=1), 5)
    if request_type is DescribeUserScramCredentialsRequest:
        user = DescribeUserScramCredentialsRequest.UserName(name="somebody-else")
        return frame_of(DescribeUserScramCredentialsRequest(users=[user] * times), 0)
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="somebody", mechanism=1)
    return frame_of(AlterUserScramCredentialsRequest(deletions=[deletion] * times, upsertions=[]), 0)


def stop_frame() -> memoryview:
    topic = StopReplicaRequest.StopReplicaTopicV1(name="t", partition_indexes=list(range(5 * MOST_AT_ONCE)))
    return frame_of(StopReplicaRequest(controller_id=1, controller_epoch=1, topics=[topic]), 2)


def produce_frame() -> memoryview:
    data = [ProduceRequest.PartitionProduceData(index=0, records=b"")] * (MOST_AT_ONCE + 1)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=data)
    return frame_of(ProduceRequest(acks=0, timeout_ms=1, topic_data=[topic]), 7)


async def test_only_some_are_in_work_at_once_and_all_have_their_turn_in_order(
    handlers: dict[int, Any], short_turns: None
) -> None:
    serving = Serving()
    serving.handle(MetadataRequest, lambda: metadata_answer(1))
    dispatcher = new_dispatcher()
    peers = [ask(dispatcher, number, metadata_frame(MOST_AT_ONCE + 1)) for number in range(MANY)]
    await until(lambda: len(serving.begun) == MOST_AT_WORK)
    serving.may_end = True
    for peer in peers:
        assert await asyncio.wait_for(peer.answers.get(), 30)
    assert serving.most == MOST_AT_WORK
    assert serving.begun == [f"User:{number}" for number in range(MANY)]


async def test_small_requests_that_ask_for_much_wait_in_line_too_and_others_do_not(
    handlers: dict[int, Any], short_turns: None
) -> None:
    serving = Serving()

    @handles(MetadataRequest, nothing("a test"), asks_for_much=lambda request: request.topics is None)
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        if request.topics is not None:
            return metadata_answer(1)
        return in_turns(serving._work(ctx.connection.principal, lambda: metadata_answer(1)))

    dispatcher = new_dispatcher()
    everything = frame_of(MetadataRequest(topics=None), 8)
    peers = [ask(dispatcher, number, everything) for number in range(MANY)]
    await until(lambda: len(serving.begun) == MOST_AT_WORK)
    assert type(dispatcher(Peer(), metadata_frame(1))) is list  # type: ignore[arg-type]
    assert dispatcher.waiting == MANY - MOST_AT_WORK
    serving.may_end = True
    for peer in peers:
        assert await asyncio.wait_for(peer.answers.get(), 30)
    assert serving.most == MOST_AT_WORK


async def test_those_that_wait_for_others_hold_up_nobody(handlers: dict[int, Any]) -> None:
    waiting: list[asyncio.Future[Any]] = []

    @handles(MetadataRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    dispatcher = new_dispatcher()
    peers = [ask(dispatcher, number, metadata_frame(MOST_AT_ONCE + 1)) for number in range(MANY)]
    await until(lambda: len(waiting) == MANY)
    for each in waiting:
        each.set_result(metadata_answer(1))
    for peer in peers:
        assert await asyncio.wait_for(peer.answers.get(), 30)


@pytest.mark.parametrize(
    ("request_type", "answer"),
    [
        (AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse(results=[])),
        (
            DescribeUserScramCredentialsRequest,
            DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, results=[]),
        ),
        (CreateTopicsRequest, CreateTopicsResponse(topics=[])),
        (DeleteTopicsRequest, DeleteTopicsResponse(responses=[])),
    ],
)
async def test_what_is_changed_one_by_one_is_in_work_for_some_at_once_though_it_waits(
    handlers: dict[int, Any], request_type: Any, answer: Message
) -> None:
    """Its work goes on when a client has left: else whoever comes and goes would have the broker hold ever more."""
    begun: list[asyncio.Future[Any]] = []

    @handles(request_type, nothing("a test"))
    async def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        begun.append(asyncio.get_running_loop().create_future())
        await begun[-1]
        return answer

    dispatcher = new_dispatcher()
    large = [ask(dispatcher, number, change_frame(request_type, LARGE_FRAME)) for number in range(MOST_AT_WORK + 2)]
    await until(lambda: len(begun) == MOST_AT_WORK)
    await asyncio.sleep(3 * PATIENCE_S)
    assert (len(begun), dispatcher.waiting) == (MOST_AT_WORK, 2)
    (await asyncio.wait_for(large[-1].waiting.get(), 30)).cancel()
    small = [ask(dispatcher, number, change_frame(request_type, 0)) for number in range(MOST_SMALL_CHANGES + 1)]
    await until(lambda: len(begun) == MOST_AT_WORK + MOST_SMALL_CHANGES)
    for number in range(MOST_AT_WORK + MOST_SMALL_CHANGES + 2):
        await until(lambda: len(begun) > number)  # noqa: B023
        begun[number].set_result(None)
    for peer in large[:-1] + small:
        assert await asyncio.wait_for(peer.answers.get(), 30)
    assert isinstance(await asyncio.wait_for(large[-1].answers.get(), 30), CloseConnection)


async def test_a_change_that_is_made_keeps_no_place_while_its_answer_waits_for_others(handlers: dict[int, Any]) -> None:
    waiting: list[asyncio.Future[Any]] = []

    @handles(ElectLeadersRequest, nothing("a test"))
    async def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        only_waits()
        waiting.append(asyncio.get_running_loop().create_future())
        return await waiting[-1]

    dispatcher = new_dispatcher()
    frame = frame_of(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1), 2)
    peers = [ask(dispatcher, number, frame) for number in range(MOST_SMALL_CHANGES + 1)]
    await until(lambda: len(waiting) == len(peers))
    for each in waiting:
        each.set_result(ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=[]))
    for peer in peers:
        assert await asyncio.wait_for(peer.answers.get(), 30)


async def test_what_only_waits_for_others_ends_with_its_connection_and_not_before(handlers: dict[int, Any]) -> None:
    begun: list[asyncio.Future[Any]] = []

    @handles(ElectLeadersRequest, nothing("a test"))
    async def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        begun.append(asyncio.get_running_loop().create_future())
        await begun[-1]
        only_waits()
        await asyncio.get_running_loop().create_future()

    frame = frame_of(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1), 2)
    peer = ask(new_dispatcher(), 1, frame)
    await until(lambda: bool(begun))
    assert peer.waiting.empty()
    begun[0].set_result(None)
    (await asyncio.wait_for(peer.waiting.get(), 30)).cancel()
    assert isinstance(await asyncio.wait_for(peer.answers.get(), 30), CloseConnection)


async def test_brokers_do_not_wait_behind_clients(handlers: dict[int, Any], short_turns: None) -> None:
    serving = Serving()
    serving.handle(MetadataRequest)
    serving.handle(StopReplicaRequest)
    dispatcher = new_dispatcher()
    for number in range(MANY):
        ask(dispatcher, number, metadata_frame(MOST_AT_ONCE + 1))
    await until(lambda: len(serving.begun) == MOST_AT_WORK)
    ask(dispatcher, MANY, stop_frame(), of_broker=True)
    await until(lambda: f"User:{MANY}" in serving.begun)
    assert len(serving.begun) == MOST_AT_WORK + 1
    serving.may_end = True


async def test_who_leaves_the_line_is_not_served_unless_nobody_would_tell_him_so(
    handlers: dict[int, Any], short_turns: None
) -> None:
    serving = Serving()
    serving.handle(MetadataRequest, lambda: metadata_answer(1))
    serving.handle(ProduceRequest)
    dispatcher = new_dispatcher()
    peers = [ask(dispatcher, number, metadata_frame(MOST_AT_ONCE + 1)) for number in range(MOST_AT_WORK + 2)]
    producer = ask(dispatcher, MANY, produce_frame())
    leaving, last = peers[-2:]
    (await asyncio.wait_for(leaving.waiting.get(), 30)).cancel()
    assert isinstance(await asyncio.wait_for(leaving.answers.get(), 30), CloseConnection)
    assert producer.waiting.empty()
    serving.may_end = True
    for peer in (last, producer):
        await asyncio.wait_for(peer.answers.get(), 30)
    assert leaving.principal not in serving.begun
    assert serving.begun[-2:] == [last.principal, producer.principal]


async def test_what_is_decoded_and_worked_off_ends_with_its_connection_only_where_it_says_so(
    handlers: dict[int, Any], short_turns: None
) -> None:
    serving = Serving()
    serving.handle(MetadataRequest, lambda: metadata_answer(1))
    dispatcher = new_dispatcher()
    peers = [ask(dispatcher, number, metadata_frame(MOST_AT_ONCE + 1)) for number in range(MOST_AT_WORK + 1)]
    serving.may_end = True
    await asyncio.wait_for(peers[-1].answers.get(), 30)
    assert [peers[-1].waiting.get_nowait() is None for _ in range(2)] == [False, True]
    assert peers[0].waiting.empty()


async def test_a_place_that_is_given_to_who_has_just_left_goes_to_the_next() -> None:
    line = LargeRequests()
    places = [await line.enter() for _ in range(MOST_AT_WORK)]
    leaving, next_one = (asyncio.create_task(line.enter()) for _ in range(2))
    await asyncio.sleep(0)
    places.pop().leave()
    leaving.cancel()
    async with asyncio.timeout(30):
        places.append(await next_one)
    assert leaving.cancelled()
    for place in places:
        place.leave()
        place.leave()
    assert line.at_work == 0


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_request_that_cannot_be_read_or_answered_leaves_its_place(
    handlers: dict[int, Any], is_broken: bool
) -> None:
    @handles(MetadataRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        raise CloseConnection("enough")

    dispatcher = new_dispatcher()
    frame = metadata_frame(MOST_AT_ONCE + 1)
    peers = [ask(dispatcher, number, frame[:-2] if is_broken else frame) for number in range(MANY)]
    for peer in peers:
        assert isinstance(await asyncio.wait_for(peer.answers.get(), 30), CloseConnection)


async def test_a_request_that_ends_its_connection_is_let_go_of_at_once(handlers: dict[int, Any]) -> None:
    """Not when the garbage collector looks at what is old, once in minutes."""

    @handles(MetadataRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        request.topics = [object.__new__(MetadataRequest.MetadataRequestTopic) for _ in request.topics]
        raise CloseConnection("enough")

    gc.collect()
    gc.disable()
    try:
        peer = ask(new_dispatcher(), 1, metadata_frame(MOST_AT_ONCE + 1))
        assert isinstance(await asyncio.wait_for(peer.answers.get(), 30), CloseConnection)
        del peer
        await until(lambda: not is_long_work_under_way())
        await asyncio.sleep(0)
        assert gc.collect() < 10
    finally:
        gc.enable()


async def test_long_texts_make_a_request_large_and_an_answer(handlers: dict[int, Any], short_turns: None) -> None:
    name = "t" * 30_000

    @handles(MetadataRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        assert ctx.is_large == (len(request.topics) > 1)
        topic = MetadataResponse.MetadataResponseTopic(error_code=ErrorCode.NONE, name=name, partitions=[])
        return MetadataResponse(brokers=[], controller_id=1, topics=[topic] * 100)

    for names in (1, 100):
        topics = [MetadataRequest.MetadataRequestTopic(name=name)] * names
        peer = ask(new_dispatcher(), 1, frame_of(MetadataRequest(topics=topics), 8))
        parts = await asyncio.wait_for(peer.answers.get(), 30)
        assert sum(map(len, parts)) > 100 * len(name)
