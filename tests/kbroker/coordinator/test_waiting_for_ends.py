"""What a producer asks for while its transaction is being ended waits for that, on the coordinator of real logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster.topic_names import TRANSACTIONS_TOPIC
from kbroker.coordinator.marker_sender import MarkerSender
from kbroker.coordinator.transaction import COMPLETE_COMMIT, PREPARE_COMMIT, Answer
from kbroker.handlers.transactional_ids import end_txn
from kbroker.protocol.errors import COORDINATOR_MOVED, ErrorCode, KafkaError
from kbroker.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from kbroker.protocol.records.control import ControlType
from kbroker.replica.replica_manager import FOLLOWERS_EXPECTED_MS
from tests.fixtures.data_path import TOPIC
from tests.kbroker.coordinator.coordinated import NONE, TIMEOUT, TOPIC_ID, Coordinated, leading
from tests.kbroker.handlers.test_fetch import ask, fetch_request, partitions_of


@pytest.fixture
async def coordinated(tmp_path: Path) -> AsyncIterator[Coordinated]:
    async with leading(tmp_path) as made:
        yield made


def without_leader(coordinated: Coordinated) -> None:
    """Nobody takes the markers of partition 0 for now."""
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=-1)


def with_leader(coordinated: Coordinated) -> None:
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=1)


def add_by_produce(coordinated: Coordinated, producer: Answer, partition: int) -> list[ErrorCode]:
    """Let a partition take part as a Produce does; returns where its outcome will be."""
    told: list[ErrorCode] = []
    asked = "id", producer.producer_id, producer.producer_epoch, [(TOPIC, partition)]
    coordinated.transactions.add_by_produce(*asked, told.append)
    return told


async def until_told(told: list[ErrorCode]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not told:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("version", [1, 5])
async def test_the_end_is_answered_in_the_turn_in_which_it_comes_before_its_markers_are_looked_at(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    producer = await coordinated.began("id", 0, 1, 2)
    routed: list[Any] = []
    route = MarkerSender._route

    def noted(sender: MarkerSender, *what: Any) -> None:
        routed.append(what)
        route(sender, *what)

    monkeypatch.setattr(MarkerSender, "_route", noted)
    request = EndTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    services: Any = SimpleNamespace(transactions=coordinated.transactions)
    ctx: Any = SimpleNamespace(api_version=version)
    answer = end_txn(services, ctx, request)
    assert isinstance(answer, EndTxnResponse)
    assert answer.error_code is NONE
    assert (coordinated.state(), routed) == (PREPARE_COMMIT, [])
    await coordinated.until_state(COMPLETE_COMMIT)
    assert len(routed) == 3


async def test_what_comes_while_a_transaction_is_being_ended_waits_for_that(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinated.transactions._waiting, "_longest_s", TIMEOUT)
    producer = await coordinated.began("id", 0)
    told: list[ErrorCode] = []
    asked = "id", producer.producer_id, producer.producer_epoch
    without_leader(coordinated)
    assert await coordinated.end(producer) is NONE
    coordinated.transactions.add_by_produce(*asked, [(TOPIC, 2)], told.append)
    waiting: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(question)
        for question in (coordinated.end(producer), coordinated.add(producer, 1), coordinated.init())
    ]
    at_once = coordinated.transactions.add_partitions(*asked, [(TOPIC, 1)], may_wait=False)
    assert (await at_once).error is ErrorCode.CONCURRENT_TRANSACTIONS
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in waiting)
    assert (coordinated.markers(), told) == ([], [])
    with_leader(coordinated)
    ended, added, begun = await asyncio.gather(*waiting)
    # In turn: a Produce begins the next transaction, which is ended; one more; another producer fences that one.
    assert told == [ended] == [added] == [NONE]
    assert (begun.error, begun.producer_epoch) == (NONE, 2)
    assert [what for what, _ in coordinated.markers(2)] == [ControlType.COMMIT]
    assert [what for what, _ in coordinated.markers(1)] == [ControlType.ABORT]


@pytest.mark.parametrize("stops", [False, True])
async def test_who_waits_for_an_end_is_told_that_another_carries_it_out(coordinated: Coordinated, stops: bool) -> None:
    producer = await coordinated.began()
    without_leader(coordinated)
    await coordinated.end(producer)
    told = add_by_produce(coordinated, producer, 1)
    waiting = asyncio.ensure_future(coordinated.add(producer, 1))
    await asyncio.sleep(0)
    await (coordinated.transactions.stop() if stops else coordinated.lead(leader=2, replicas=(1, 2)))
    with pytest.raises(KafkaError, check=lambda error: error.code in COORDINATOR_MOVED):
        await waiting
    await until_told(told)
    assert told[0] in COORDINATOR_MOVED


async def test_a_produce_that_comes_in_the_turn_in_which_the_coordinator_stops_is_told(
    coordinated: Coordinated,
) -> None:
    producer = await coordinated.began()
    without_leader(coordinated)
    await coordinated.end(producer)
    told = add_by_produce(coordinated, producer, 1)
    await coordinated.transactions.stop()
    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("failure", [KafkaError(ErrorCode.NOT_COORDINATOR), ArithmeticError("of the test")])
async def test_a_produce_is_told_of_what_goes_wrong_while_it_waits(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    async def fails() -> Answer:
        raise failure

    monkeypatch.setattr(coordinated.transactions, "add_partitions", lambda *asked: fails())
    told: list[ErrorCode] = []
    coordinated.transactions.add_by_produce("id", 1, 0, [(TOPIC, 1)], told.append)
    await until_told(told)
    known = isinstance(failure, KafkaError)
    assert told == [ErrorCode.NOT_COORDINATOR if known else ErrorCode.COORDINATOR_NOT_AVAILABLE]


async def test_an_end_that_does_not_come_is_waited_for_no_longer_than_a_moment(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinated.transactions._waiting, "_longest_s", 0.01)
    producer = await coordinated.began("id", 0)
    without_leader(coordinated)
    await coordinated.end(producer)
    told = add_by_produce(coordinated, producer, 2)
    assert await coordinated.add(producer, 1) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert (await coordinated.init()).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert told == [ErrorCode.CONCURRENT_TRANSACTIONS]


async def test_who_went_away_while_it_waited_begins_no_transaction(coordinated: Coordinated) -> None:
    producer = await coordinated.began("id", 0)
    without_leader(coordinated)
    await coordinated.end(producer)
    waiting = asyncio.ensure_future(coordinated.add(producer, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with_leader(coordinated)
    await coordinated.until_state(COMPLETE_COMMIT)
    assert await coordinated.end(producer) is NONE
    assert coordinated.state() is COMPLETE_COMMIT


def follow(coordinated: Coordinated, data: bool = True, max_wait_ms: int = 0) -> Any:
    """Ask as a follower that has all there is, of the transactions first; return the answer, or what it waits for."""
    played, transactions = coordinated.played, coordinated.transactions.partition_for("id")

    def wanted(topic: str, partition: int, **values: Any) -> Any:
        partition_log = played.logs.get(topic, partition)
        assert partition_log is not None
        return fetch_request((partition, partition_log.log_end_offset), **values)

    request = wanted(TRANSACTIONS_TOPIC, transactions, topic_id=TOPIC_ID, replica_id=2, max_wait_ms=max_wait_ms)
    if data:
        request.topics += wanted(TOPIC, 0).topics
    return ask(played, request)


async def test_a_fetch_that_tells_of_the_last_marker_is_answered_with_the_record_that_follows_from_it(
    coordinated: Coordinated,
) -> None:
    both = (1, 2)
    await coordinated.lead(replicas=both, isr=both)
    await coordinated.played.lead(replicas=both, isr=both, leader_epoch=1, partition_epoch=1)
    coordinated.played.now += FOLLOWERS_EXPECTED_MS

    async def commits() -> None:
        await coordinated.end(await coordinated.began("id", 0))

    committed = asyncio.ensure_future(commits())
    async with asyncio.timeout(TIMEOUT):
        while not (committed.done() and coordinated.markers()):
            follow(coordinated, data=False)
            await asyncio.sleep(0)
    found, _ = partitions_of(await asyncio.wait_for(follow(coordinated, max_wait_ms=60_000), TIMEOUT))
    assert found.records
    assert coordinated.state() is PREPARE_COMMIT
    follow(coordinated)
    assert coordinated.state() is COMPLETE_COMMIT
