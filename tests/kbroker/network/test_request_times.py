"""What is counted of requests, and how few of them are timed where many come."""

import asyncio
from typing import Any

from kbroker import handlers
from kbroker.handlers.registry import HANDLERS
from kbroker.network import request_times
from kbroker.network.dispatch import Dispatcher
from kbroker.network.request_times import MOST_BETWEEN, ApiRequests, Times, Timing
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import encode_request
from kbroker.protocol.messages.fetch import FetchRequest
from tests.fixtures.data_path import TOPIC_ID, Played, one_batch
from tests.kbroker.handlers.test_produce import request_for
from tests.kbroker.network.serving import connected, serving, until
from tests.protocol.frames import joined


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_phases_of_a_request_add_up_to_its_total(monkeypatch: Any) -> None:
    clock = Clock()
    monkeypatch.setattr(request_times, "monotonic", clock)
    requests = ApiRequests("Fetch", 2)
    timing = Timing(requests, 1, received=99.0, begun=100.0, size=300)
    for seconds, event in ((2, timing.handled), (4, timing.answered), (8, timing.sending), (16, timing.sent)):
        clock.now += seconds
        event()
    times = requests.times
    sums = [getattr(times, phase).sum for phase in request_times.PHASES]
    assert sums == [1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 31000.0]
    assert times.size.sum == 300


def test_a_request_that_skips_phases_spends_no_time_in_them(monkeypatch: Any) -> None:
    clock = Clock()
    monkeypatch.setattr(request_times, "monotonic", clock)
    requests = ApiRequests("Produce", 2)
    timing = Timing(requests, 1, received=100.0, begun=100.0, size=1)
    clock.now += 3
    timing.handled()
    timing.sent()  # acks=0: nothing is sent
    assert (requests.times.local.sum, requests.times.remote.sum, requests.times.total.sum) == (3000.0, 0.0, 3000.0)


def test_where_many_requests_come_few_are_timed_and_count_for_the_others(monkeypatch: Any) -> None:
    clock = Clock()
    monkeypatch.setattr(request_times, "monotonic", clock)
    requests = ApiRequests("Produce", 2)
    timed = 0
    for _ in range(20_000):  # of a second
        clock.now += 0.00005
        if requests.to_skip:
            requests.to_skip -= 1
        else:
            timed += 1
            requests.timing(clock.now, 1).sent()
    assert 20_000 / MOST_BETWEEN <= timed < 20_000 / MOST_BETWEEN + 20
    assert abs(requests.times.total.count - 20_000) < 2 * MOST_BETWEEN
    clock.now += 10
    requests.timing(clock.now, 1)
    assert requests.every == 1, "seldom asked for: every request is timed"


def test_followers_and_consumers_fetches_are_told_apart() -> None:
    requests = ApiRequests("Fetch", 2)
    requests.from_brokers, requests.from_consumers = Times(), Times()
    for is_from_broker in (True, False, False):
        timing = Timing(requests, 1, 0.0, 0.0, 1)
        timing.is_from_broker = is_from_broker
        timing.sent()
    counts = [times.total.count for times in (requests.times, requests.from_brokers, requests.from_consumers)]
    assert counts == [3, 1, 2]


handlers.load_all()


def frame(request: Any, version: int) -> bytes:
    return joined(encode_request(request, version, 1, "test"))


async def test_requests_of_a_connection_are_counted_and_timed_until_they_are_out(played: Played) -> None:
    await played.lead()
    dispatcher = Dispatcher(played.services)
    async with serving(dispatcher) as server, connected(server) as client:
        client.send(frame(request_for((0, one_batch(b"a"))), 9))
        await client.receive()
        waiting = FetchRequest(
            max_wait_ms=50,
            min_bytes=100_000,
            max_bytes=1 << 20,
            topics=[
                FetchRequest.FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)],
                )
            ],
            forgotten_topics_data=[],
            session_epoch=-1,
        )
        client.send(frame(waiting, 13))
        await client.receive()
        fetches, produces = dispatcher.apis[1].requests, dispatcher.apis[0].requests
        await until(lambda: fetches.times.total.count == 1)
    assert produces.by_version[9] == fetches.by_version[13] == 1
    assert produces.times.total.count == 1
    assert fetches.times.remote.sum > 40 > fetches.times.local.sum
    assert fetches.times.total.sum >= fetches.times.remote.sum
    assert fetches.from_consumers is not None
    assert fetches.from_consumers.total.count == 1


async def test_a_produce_without_an_answer_is_timed_as_well(played: Played) -> None:
    await played.lead()
    dispatcher = Dispatcher(played.services)
    produces = dispatcher.apis[0].requests
    async with serving(dispatcher) as server, connected(server) as client:
        client.send(frame(request_for((0, one_batch(b"a")), acks=0), 9))
        await until(lambda: produces.times.total.count == 1)


def test_every_api_that_is_served_is_counted() -> None:
    assert HANDLERS
    dispatcher = Dispatcher(None)  # type: ignore[arg-type]
    assert all(len(api.requests.by_version) == api.max_version + 1 for api in dispatcher.apis.values())


async def test_an_answer_behind_others_waits_in_the_response_queue(played: Played) -> None:
    """A sync answer behind a Produce that waits for its flush: its timing goes out with it."""
    await played.lead(replicas=(1, 2), isr=(1, 2))
    dispatcher = Dispatcher(played.services)
    async with serving(dispatcher) as server, connected(server) as client:
        client.send(frame(request_for((0, one_batch(b"a")), acks=-1), 9))
        await until(lambda: dispatcher.apis[0].requests.by_version[9] == 1)
        client.send(frame(request_for((0, one_batch(b"b")), acks=1), 9))
        await until(lambda: dispatcher.apis[0].requests.by_version[9] == 2)
        await asyncio.sleep(0.02)
        played.replicas.hosted["orders", 0].fail_acks(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await client.receive()
        await client.receive()
        times = dispatcher.apis[0].requests.times
        await until(lambda: times.total.count == 2)
    assert times.response_queue.sum >= 10
