"""Markers on their way: to a broker played by a real server on loopback, to ourselves, to nobody yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from math import inf
from struct import unpack_from
from time import monotonic
from typing import Any

import pytest

from kbroker.cluster.metadata_cache import BrokerInfo, MetadataCache, PartitionInfo, TopicInfo
from kbroker.coordinator import marker_sender
from kbroker.coordinator.marker_sender import Ending, MarkerSender
from kbroker.protocol.codec import decode, encode
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.protocol.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kbroker.protocol.schema import schema_of
from kbroker.replica import turns
from tests.fixtures.streams import stop_listening

US, OTHER, THIRD = 1, 2, 3
TIMEOUT = 30.0
LONG_AGO = -inf

Answering = Callable[[Key], ErrorCode]


class PlayedBroker:
    """Reads WriteTxnMarkers requests from a socket and answers what the test says."""

    def __init__(self) -> None:
        self.requests: list[WriteTxnMarkersRequest] = []
        self.answering: Answering = lambda key: ErrorCode.NONE
        self.is_silent = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.connections: list[asyncio.StreamWriter] = []
        self.newest = 2
        """Version of the request."""

    async def start(self) -> tuple[str, int]:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self.server.sockets[0].getsockname()
        return host, port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                api_key, version = unpack_from(">hh", frame)
                if api_key == schema_of(ApiVersionsRequest).api_key:
                    body = frame[4:8] + encode(self._versions(), version)
                else:
                    assert (api_key, version) == (schema_of(WriteTxnMarkersRequest).api_key, self.newest)
                    client_id = int.from_bytes(frame[8:10], "big")
                    request = decode(WriteTxnMarkersRequest, frame, version, 10 + client_id + 1)
                    self.requests.append(request)
                    await self.may_answer.wait()
                    if self.is_silent:
                        continue
                    body = frame[4:8] + b"\0" + encode(self._answer(request), version)
                writer.write(len(body).to_bytes(4, "big") + body)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    def _versions(self) -> ApiVersionsResponse:
        served = ((ApiVersionsRequest, 0, 3), (WriteTxnMarkersRequest, 0, self.newest))
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=schema_of(each).api_key, min_version=oldest, max_version=newest)
                for each, oldest, newest in served
            ],
        )

    def _answer(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        response = WriteTxnMarkersResponse
        return response(
            markers=[
                response.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        response.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                response.WritableTxnMarkerPartitionResult(
                                    partition_index=partition, error_code=self.answering((topic.name, partition))
                                )
                                for partition in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def asked(self) -> list[list[Key]]:
        """The partitions of each request."""
        return [
            sorted((t.name, p) for marker in request.markers for t in marker.topics for p in t.partition_indexes)
            for request in self.requests
        ]

    def hang_up(self) -> None:
        for writer in self.connections:
            writer.transport.abort()
        self.connections.clear()


class Local:
    """The partitions that we lead."""

    def __init__(self) -> None:
        self.written: list[Key] = []
        self.errors: dict[Key, list[ErrorCode]] = {}

    def write_marker(self, ending: Ending, key: Key, done: Callable[[ErrorCode], None]) -> None:
        self.written.append(key)
        waiting = self.errors.get(key)
        done(waiting.pop(0) if waiting else ErrorCode.NONE)


class Cluster:
    """The sender with its neighbours."""

    def __init__(self) -> None:
        self.metadata = MetadataCache()
        self.local = Local()
        self.other, self.third = PlayedBroker(), PlayedBroker()
        self.done: list[str] = []
        self.since = LONG_AGO
        """When this broker became the coordinator."""
        self.sender = MarkerSender(US, self.metadata, "INTERNAL", self.local, 60_000)

    async def start(self) -> None:
        for broker_id, broker in ((OTHER, self.other), (THIRD, self.third)):
            address = await broker.start()
            self.metadata.brokers[broker_id] = BrokerInfo(broker_id, None, {"INTERNAL": address})

    def lead(self, leader: int, *partitions: int, topic: str = "t") -> None:
        """As if an UpdateMetadata had come."""
        known = self.metadata.topics.setdefault(topic, TopicInfo(topic, b"t" * 16))
        for partition in partitions:
            known.partitions[partition] = PartitionInfo(partition, leader, 0, (), (), (), 0)
        self.metadata.updates += 1
        self.metadata._wake()

    def send(self, *keys: Key, name: str = "id", producer_id: int = 7, commit: bool = True) -> Ending:
        ending = Ending(name, producer_id, 2, commit, 5, self.since, set(keys), lambda: self.done.append(name))
        self.sender.send(ending)
        return ending

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not condition():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        await self.sender.close()
        for broker in (self.other, self.third):
            broker.may_answer.set()
            await stop_listening(broker.server)
            broker.hang_up()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def no_turn_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent at once is on its way at once: on a machine that stands still the rest goes with a next request."""
    monkeypatch.setattr(turns, "monotonic", lambda: 0.0)


def keys(*partitions: int, topic: str = "t") -> list[Key]:
    return [(topic, partition) for partition in partitions]


@pytest.mark.usefixtures("no_turn_ends")
async def test_each_broker_gets_its_own_partitions_and_ours_are_written_at_once(cluster: Cluster) -> None:
    cluster.lead(US, 0)
    cluster.lead(OTHER, 1, 2)
    cluster.lead(THIRD, 3)
    cluster.send(*keys(0, 1, 2, 3), commit=False)
    await cluster.until(lambda: cluster.done)
    assert cluster.local.written == keys(0)
    assert cluster.other.asked() == [keys(1, 2)]
    assert cluster.third.asked() == [keys(3)]
    (marker,) = cluster.third.requests[0].markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 2, 5)
    assert marker.transaction_result is False


@pytest.mark.parametrize(("newest", "told"), [(1, 0), (2, 2)])
async def test_a_broker_that_knows_of_epochs_for_each_transaction_is_told_which_rules_hold(
    cluster: Cluster, newest: int, told: int
) -> None:
    cluster.other.newest = newest
    cluster.lead(OTHER, 0)
    ending = Ending("id", 7, 2, True, 5, LONG_AGO, set(keys(0)), lambda: None, transaction_version=2)
    cluster.sender.send(ending)
    await cluster.until(lambda: ending.is_over)
    (request,) = cluster.other.requests
    assert [marker.transaction_version for marker in request.markers] == [told]


@pytest.mark.usefixtures("no_turn_ends")
async def test_one_request_is_under_way_and_what_comes_meanwhile_goes_with_the_next(cluster: Cluster) -> None:
    cluster.lead(OTHER, 0, 1)
    cluster.other.may_answer.clear()
    cluster.send(*keys(0), name="a", producer_id=1)
    await cluster.until(lambda: cluster.other.requests)
    for number in range(5):
        cluster.send(*keys(0, 1), name=f"b{number}", producer_id=2 + number)
    await asyncio.sleep(0.05)
    assert len(cluster.other.requests) == 1
    cluster.other.may_answer.set()
    await cluster.until(lambda: len(cluster.done) == 6)
    assert [len(request.markers) for request in cluster.other.requests] == [1, 5]


async def test_a_transaction_without_partitions_ends_at_once(cluster: Cluster) -> None:
    cluster.send()
    assert cluster.done == []
    await cluster.until(lambda: cluster.done)


@pytest.mark.parametrize("code", [3, 6, 7, 19, 20, 56, 2, 31])
async def test_what_another_try_may_mend_is_tried_again(cluster: Cluster, code: int) -> None:
    cluster.lead(US, 0)
    cluster.local.errors[("t", 0)] = [ErrorCode(code), ErrorCode(code)]
    cluster.send(*keys(0))
    await cluster.until(lambda: cluster.done)
    assert len(cluster.local.written) == 3


async def test_a_marker_that_is_tried_again_for_long_makes_no_other_wait_as_long(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for(predicate: Any, longer_s: float) -> bool:
        """Whatever is more than the first pause takes for ever."""
        if longer_s > 0:
            await asyncio.Event().wait()
        return False

    monkeypatch.setattr(cluster.metadata, "wait_for", wait_for)
    cluster.lead(US, 0, 1)
    cluster.local.errors[("t", 0)] = [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    cluster.send(*keys(0), name="stuck")
    await cluster.until(lambda: len(cluster.local.written) == 2)
    cluster.local.errors[("t", 1)] = [ErrorCode.NOT_ENOUGH_REPLICAS]
    cluster.send(*keys(1), name="other", producer_id=8)
    await cluster.until(lambda: cluster.done == ["other"])
    assert cluster.local.written == keys(0, 0, 1, 1)


@pytest.mark.parametrize("code", [47, 52])
async def test_a_transaction_that_somebody_newer_ends_is_given_up(cluster: Cluster, code: int) -> None:
    cluster.lead(US, 0, 1)
    cluster.local.errors[("t", 0)] = [ErrorCode(code)]
    ending = cluster.send(*keys(0, 1))
    await cluster.until(lambda: ending.is_over)
    await asyncio.sleep(0.1)
    assert cluster.done == []
    assert cluster.local.written.count(("t", 0)) == 1


@pytest.mark.parametrize("code", [43, 35])
async def test_a_partition_that_can_take_no_marker_needs_none(cluster: Cluster, code: int) -> None:
    cluster.lead(OTHER, 0)
    cluster.other.answering = lambda key: ErrorCode(code)
    cluster.send(*keys(0))
    await cluster.until(lambda: cluster.done)
    assert len(cluster.other.requests) == 1


@pytest.mark.usefixtures("no_turn_ends")
async def test_a_marker_follows_the_leadership(cluster: Cluster) -> None:
    cluster.lead(OTHER, 0, 1)
    cluster.other.answering = lambda key: ErrorCode.NOT_LEADER_OR_FOLLOWER if key[1] == 0 else ErrorCode.NONE
    ending = cluster.send(*keys(0, 1))
    await cluster.until(lambda: len(cluster.other.requests) >= 2)
    assert ending.partitions == set(keys(0))
    cluster.lead(THIRD, 0)
    await cluster.until(lambda: cluster.done)
    assert cluster.third.asked() == [keys(0)]


async def test_a_marker_waits_for_a_leader(cluster: Cluster) -> None:
    cluster.lead(-1, 0)
    cluster.send(*keys(0))
    await asyncio.sleep(0.1)
    assert cluster.done == []
    assert cluster.sender.parked == 1
    cluster.lead(US, 0)
    await cluster.until(lambda: cluster.done)
    assert cluster.sender.parked == 0


async def test_who_has_just_become_the_coordinator_waits_for_what_it_may_not_have_heard_of(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.since = monotonic()
    cluster.send(*keys(0), name="late")
    await asyncio.sleep(0.1)
    assert cluster.done == []
    cluster.lead(US, 0)
    await cluster.until(lambda: cluster.done == ["late"])
    assert cluster.local.written == keys(0)
    monkeypatch.setattr(marker_sender, "ABSENT_S", 0.1)
    cluster.send(*keys(9), name="gone")
    await cluster.until(lambda: cluster.done == ["late", "gone"])
    assert cluster.local.written == keys(0)


async def test_no_marker_of_a_deleted_topic_waits_for_the_next_of_its_name(cluster: Cluster) -> None:
    cluster.send(*keys(0))
    await cluster.until(lambda: cluster.done)
    cluster.lead(US, 0)
    await asyncio.sleep(0.1)
    assert cluster.local.written == []


async def test_a_marker_that_fails_unexpectedly_is_tried_again_and_keeps_no_other_from_its_way(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.lead(US, 0, 1)
    write, failures = cluster.local.write_marker, 2

    def write_at_last(ending: Ending, key: Key, done: Any) -> None:
        nonlocal failures
        if key == ("t", 0) and failures > 0:
            failures -= 1
            raise ValueError("nobody expects this")
        write(ending, key, done)

    monkeypatch.setattr(cluster.local, "write_marker", write_at_last)
    cluster.send(*keys(0), name="fails", producer_id=1)
    cluster.send(*keys(1), name="other", producer_id=2)
    await cluster.until(lambda: cluster.done == ["other", "fails"])
    cluster.lead(OTHER, 2, 3)

    def fail() -> None:
        raise ValueError("nobody expects this")

    cluster.sender.send(Ending("raises", 3, 0, True, 0, LONG_AGO, {("t", 2)}, fail))
    cluster.send(*keys(3), name="behind", producer_id=4)
    await cluster.until(lambda: cluster.done[2:] == ["behind"])


async def test_a_request_that_cannot_be_made_is_made_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.lead(OTHER, 0)
    make, failures = marker_sender._request, 2

    def make_at_last(items: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ValueError("nobody expects this")
        return make(items)

    monkeypatch.setattr(marker_sender, "_request", make_at_last)
    cluster.send(*keys(0))
    await cluster.until(lambda: cluster.done)


async def test_a_connection_that_ends_is_made_again_and_the_markers_are_sent_again(cluster: Cluster) -> None:
    cluster.lead(OTHER, 0)
    cluster.other.is_silent = True
    cluster.send(*keys(0))
    await cluster.until(lambda: cluster.other.requests)
    cluster.other.is_silent = False
    cluster.other.hang_up()
    await cluster.until(lambda: cluster.done)
    assert len(cluster.other.requests) == 2


async def test_what_waits_for_a_broker_that_hangs_up_is_sent_too_but_for_what_is_over(cluster: Cluster) -> None:
    cluster.lead(OTHER, 0, 1)
    cluster.other.is_silent = True
    cluster.send(*keys(0), name="sent")
    await cluster.until(lambda: cluster.other.requests)
    cluster.send(*keys(1), name="waiting", producer_id=8)
    over = cluster.send(*keys(1), name="over", producer_id=9)
    await asyncio.sleep(0.02)
    over.is_over = True
    cluster.other.is_silent = False
    cluster.other.hang_up()
    await cluster.until(lambda: sorted(cluster.done) == ["sent", "waiting"])
    sent = {marker.producer_id for request in cluster.other.requests for marker in request.markers}
    assert sent == {7, 8}


async def test_what_is_over_by_the_time_of_the_next_request_is_left_out(cluster: Cluster) -> None:
    cluster.lead(OTHER, 0)
    cluster.other.may_answer.clear()
    cluster.send(*keys(0), name="a")
    await cluster.until(lambda: cluster.other.requests)
    over = cluster.send(*keys(0), name="over", producer_id=8)
    cluster.send(*keys(0), name="b", producer_id=9)
    await asyncio.sleep(0.02)
    over.is_over = True
    cluster.other.may_answer.set()
    await cluster.until(lambda: cluster.done == ["a", "b"])
    assert [marker.producer_id for marker in cluster.other.requests[1].markers] == [9]


async def test_a_broker_that_hangs_is_left_as_soon_as_it_leaves_the_cluster(cluster: Cluster) -> None:
    cluster.lead(OTHER, 0)
    cluster.other.is_silent = True
    cluster.send(*keys(0))
    await cluster.until(lambda: cluster.other.requests)
    del cluster.metadata.brokers[OTHER]
    cluster.lead(THIRD, 0)
    await cluster.until(lambda: cluster.done)


async def test_an_answer_that_leaves_a_partition_out_does_not_end_it(cluster: Cluster) -> None:
    cluster.lead(OTHER, 0)
    whole: Callable[[WriteTxnMarkersRequest], WriteTxnMarkersResponse] = cluster.other._answer
    cluster.other._answer = lambda request: WriteTxnMarkersResponse(markers=[])  # type: ignore[method-assign]
    cluster.send(*keys(0))
    await cluster.until(lambda: len(cluster.other.requests) >= 2)
    assert cluster.done == []
    cluster.other._answer = whole  # type: ignore[assignment, method-assign]
    await cluster.until(lambda: cluster.done)


async def test_what_is_over_is_not_sent(cluster: Cluster) -> None:
    cluster.lead(-1, 0)
    ending = cluster.send(*keys(0))
    await asyncio.sleep(0.02)
    ending.is_over = True
    cluster.lead(US, 0)
    await asyncio.sleep(0.2)
    assert (cluster.local.written, cluster.done) == ([], [])


async def test_a_transaction_of_many_partitions_goes_in_several_requests_and_turns(cluster: Cluster) -> None:
    cluster.lead(US, *range(1_000))
    cluster.lead(OTHER, *range(1_000, 3_500))
    cluster.other.may_answer.clear()
    passed = 0

    async def count() -> None:
        nonlocal passed
        while not cluster.done:
            passed += 1
            if not cluster.sender._is_routing:
                cluster.other.may_answer.set()
            await asyncio.sleep(0)

    cluster.send(*keys(*range(3_500)))
    await asyncio.wait_for(count(), TIMEOUT)
    assert passed > 5
    assert sum(len(asked) for asked in cluster.other.asked()) == 2_500
    assert max(len(asked) for asked in cluster.other.asked()) == marker_sender.MOST_PER_REQUEST


async def test_a_closed_sender_sends_no_more(cluster: Cluster) -> None:
    cluster.lead(OTHER, 0)
    await cluster.sender.close()
    cluster.send(*keys(0))
    await asyncio.sleep(0.05)
    assert cluster.other.requests == []
