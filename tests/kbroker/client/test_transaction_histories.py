"""A producer's transactions over a network with random faults: each is read whole, or nothing of it, in order.

What is committed was acknowledged as that; what was aborted is never read; nothing stays undecided; what arrives late,
because its connection had ended, changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbroker.client import sender as sender_module
from kbroker.client.client_config import ProducerConfig
from kbroker.client.errors import (
    AbortableError,
    IllegalState,
    NotEnoughReplicasError,
    OutcomeUnknown,
    ProducerFencedError,
    TransactionTimedOut,
    error_for,
)
from kbroker.client.sender import Sender
from kbroker.client.transactions import Transactions
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.transactions import InitProducerIdRequest
from kbroker.protocol.records.control import ControlType
from tests.kbroker.client.played_coordinator import PRODUCER_ID, Asked, PlayedCoordinator
from tests.kbroker.client.played_network import PARTITIONS, TOPIC, Fate

LIMIT_S = 60.0
CONFIG = ProducerConfig(
    bootstrap="played:1", linger_ms=0, retry_backoff_ms=1, retry_backoff_max_ms=1, transactional_id="x"
)
COMMIT, ABORT = True, False
Plan = tuple[int, bool]
"""So many records, and how the transaction is to end."""


async def play(
    fates: Sequence[Fate], asked: Sequence[Asked], plans: Sequence[Plan], transaction_version: int = 0
) -> tuple[PlayedCoordinator, dict[int, bool]]:
    """Run transactions; returns the number of each record with whether its transaction was committed."""
    network = PlayedCoordinator(CONFIG, fates, asked, transaction_version)
    network.sender = sender = Sender(CONFIG, cast(Any, network))
    sender.learn(TOPIC)
    transactions = sender.transactions
    assert transactions is not None
    outcomes: dict[int, bool] = {}
    number = 0
    async with asyncio.timeout(LIMIT_S):
        for count, ending in plans:
            await transactions.begin()
            mine = range(number, number + count)
            number += count
            try:
                for each in mine:
                    sender.accumulator.append(TOPIC, b"%d" % each, None, each % PARTITIONS, 1, ())
                    if each % 3 == 0:
                        await asyncio.sleep(0)
                if ending is COMMIT:
                    await transactions.commit()
            except AbortableError:
                ending = ABORT
            if ending is ABORT:
                await transactions.abort()
            outcomes |= dict.fromkeys(mine, ending)
            await asyncio.sleep(0)
        network.stray(100)
        await sender.close(1)
    return network, outcomes


@asynccontextmanager
async def open_transaction(
    asked: Sequence[Asked] = (), limit_ms: int | None = None, transaction_version: int = 0, **settings: Any
) -> AsyncIterator[tuple[PlayedCoordinator, Sender, Transactions]]:
    """A transaction with one record that is delivered; the network's faults begin behind that."""
    network = PlayedCoordinator(CONFIG, (), (), transaction_version)
    sender = Sender(replace(CONFIG, **settings), cast(Any, network))
    sender.learn(TOPIC)
    transactions = sender.transactions
    assert transactions is not None
    async with asyncio.timeout(LIMIT_S):
        await transactions.begin()
        sender.accumulator.append(TOPIC, b"1", None, 0, 1, ())
        await sender.flush()
        if limit_ms is not None:
            transactions._config = replace(CONFIG, delivery_timeout_ms=limit_ms)
        network.asked.extend(asked)
        yield network, sender, transactions
        await sender.close(1)


async def test_a_commit_without_an_answer_says_that_it_is_not_known_and_how_to_learn_it() -> None:
    async with open_transaction([Asked.ANSWER_LOST] * 10_000, limit_ms=60) as (
        network,
        sender,
        transactions,
    ):
        with pytest.raises(
            OutcomeUnknown, match=r"not known.*delivery_timeout_ms=60.*or nothing; commit\(\) asks again"
        ):
            await transactions.commit()
        for call in (transactions.begin, transactions.abort):
            with pytest.raises(IllegalState, match=r"being committed: commit\(\) asks again"):
                await call()
        with pytest.raises(IllegalState, match="being committed"):
            sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        network.asked.clear()
        await transactions.commit()
        await transactions.begin()
        assert network.read_committed(0) == ([1], [])


async def test_a_coordinator_that_is_not_found_in_one_go_is_looked_for_until_the_time_is_over() -> None:
    async with open_transaction([Asked.MOVED]) as (network, _, transactions):
        network.finds_to_refuse = 150  # more than one search asks
        await transactions.commit()
        assert network.finds_to_refuse == 0
        assert network.read_committed(0) == ([1], [])


@pytest.mark.parametrize("transaction_version", [0, 2])
async def test_topics_are_forgotten_only_between_transactions(
    transaction_version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "IDLE_S", 0.0)
    async with open_transaction(transaction_version=transaction_version) as (network, sender, transactions):
        await sender._refresh()
        sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        await transactions.commit()
        await asyncio.sleep(0.01)
        await sender._refresh()
        assert sender.accumulator.topics == {}
        sender.learn(TOPIC)
        await transactions.begin()
        sender.accumulator.append(TOPIC, b"3", None, 0, 1, ())
        await transactions.commit()
        assert network.read_committed(0) == ([1, 2, 3], [])


async def test_who_is_shut_out_behind_a_lost_answer_does_not_claim_to_know_the_outcome() -> None:
    for fate, said in ((Asked.ANSWER_LOST, "is not known"), (Asked.CONCURRENT, "is not committed")):
        async with open_transaction([fate]) as (network, _, transactions):
            committing = asyncio.create_task(transactions.commit())
            while network.asked:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
            network.epoch += 1  # another producer has begun
            with pytest.raises(ProducerFencedError, match=said):
                await committing


async def test_a_commit_interrupted_while_records_are_on_their_way_leaves_the_transaction_open() -> None:
    async with open_transaction() as (network, sender, transactions):
        network.answers_may_go.clear()
        sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        committing = asyncio.create_task(transactions.commit())
        while not sender.requests_in_flight:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        with pytest.raises(IllegalState, match="being committed"):
            sender.accumulator.append(TOPIC, b"3", None, 0, 1, ())
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
        network.answers_may_go.set()
        sender.accumulator.append(TOPIC, b"3", None, 0, 1, ())
        await transactions.commit()
        assert network.read_committed(0) == ([1, 2, 3], [])


async def test_an_abort_waits_for_what_is_on_its_way_and_sends_nothing_again() -> None:
    async with open_transaction() as (network, sender, transactions):
        network.answers_may_go.clear()
        network.fates.append(Fate.REFUSED_FOR_NOW)
        delivery = sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        assert delivery is not None
        while not sender.requests_in_flight:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        aborting = asyncio.create_task(transactions.abort())
        await asyncio.sleep(0.02)
        assert network.state == "Ongoing", "or it might land behind the marker"
        network.answers_may_go.set()
        await aborting
        assert isinstance(delivery.exception(0), NotEnoughReplicasError)
        assert network.shown[0] == [b"1", ControlType.ABORT]


async def test_what_is_not_sent_when_a_transaction_fails_is_given_up_and_names_the_cause() -> None:
    async with open_transaction(linger_ms=10_000) as (network, sender, transactions):
        delivery = sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        transactions.doom(ValueError("the cause"))
        transactions.doom(ValueError("a later one"))
        assert delivery is not None
        error = delivery.exception(0)
        assert isinstance(error, AbortableError)
        assert "not sent, as the transaction has failed: the cause" in str(error)
        with pytest.raises(AbortableError, match="it has failed: the cause"):
            await transactions.commit()
        assert network.shown[0] == [b"1"]


async def test_an_abort_that_gets_no_answer_is_gone_on_with_by_the_next_begin() -> None:
    async with open_transaction([Asked.LOST] * 10_000, limit_ms=60) as (network, sender, transactions):
        with pytest.raises(OutcomeUnknown, match=r"may not be aborted yet.*abort\(\) asks again"):
            await transactions.abort()
        network.asked.clear()
        await transactions.begin()
        sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        await transactions.commit()
        assert network.read_committed(0) == ([2], [])


async def test_a_transaction_past_its_time_out_is_over_and_the_next_succeeds_where_the_broker_lets_it_back_in() -> None:
    for lets_back_in in (True, False):
        async with open_transaction(transaction_timeout_ms=1) as (network, sender, transactions):
            network.time_out(lets_back_in)
            await asyncio.sleep(0.01)
            expected = TransactionTimedOut if lets_back_in else ProducerFencedError
            with pytest.raises(
                expected, match=r"open for .* after transaction_timeout_ms=1: nothing of it is committed"
            ):
                await transactions.commit()
            if lets_back_in:
                await transactions.abort()
                await transactions.begin()
                sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
                await transactions.commit()
                assert network.read_committed(0) == ([2], [])


@pytest.mark.parametrize("transaction_version", [0, 2])
@pytest.mark.parametrize("is_heard_of", [False, True])
async def test_an_abort_asks_for_the_end_where_nobody_said_whether_the_transaction_is_over(
    transaction_version: int, is_heard_of: bool
) -> None:
    settings = {"request_timeout_ms": 30, "transaction_version": transaction_version}
    if is_heard_of:
        settings["transaction_timeout_ms"] = 1
    async with open_transaction([Asked.LOST] * 10_000, **settings) as (network, sender, transactions):
        transactions.doom(error_for(ErrorCode.INVALID_PRODUCER_EPOCH, topic=TOPIC, partition=0))
        with pytest.raises(AbortableError, match="abort the transaction"):
            await transactions.commit()
        assert network.state == "Ongoing"
        network.asked.clear()
        if is_heard_of:  # it is over, and what said so got lost
            await asyncio.sleep(0.01)
            network.time_out(lets_back_in=True)
        await transactions.abort()
        assert network.shown[0] == [b"1", ControlType.ABORT]
        await transactions.begin()
        sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        await transactions.commit()
        assert network.read_committed(0) == ([2], [])


@pytest.mark.parametrize("transaction_version", [0, 2])
async def test_what_its_coordinator_has_aborted_is_left_without_asking_and_the_next_transaction_has_a_newer_epoch(
    transaction_version: int,
) -> None:
    settings = {"transaction_timeout_ms": 1, "request_timeout_ms": 30, "transaction_version": transaction_version}
    async with open_transaction([Asked.ANSWERED], **settings) as (network, sender, transactions):
        network.time_out(lets_back_in=True)
        await asyncio.sleep(0.01)
        network.asked.extend([Asked.LOST] * 10_000)  # whether an epoch is given is not known
        with pytest.raises(TransactionTimedOut):
            await transactions.commit()
        left = len(network.asked)
        await transactions.abort()
        assert 0 < left == len(network.asked)
        network.asked.clear()
        await transactions.begin()
        assert (network.epoch, transactions.current) == (1, (PRODUCER_ID, 1))
        sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        await transactions.commit()
        assert network.read_committed(0) == ([2], [])


@pytest.mark.parametrize("transaction_version", [0, 2])
@pytest.mark.parametrize("lost", [1, 10_000])
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_lost_answer_to_who_asks_whether_the_transaction_is_its_own_is_not_taken_for_another_producer(
    transaction_version: int, lost: int, is_cancelled: bool
) -> None:
    settings = {"request_timeout_ms": 60_000 if is_cancelled else 30, "transaction_version": transaction_version}
    async with open_transaction([Asked.ANSWER_LOST] * lost, **settings) as (network, sender, transactions):
        transactions.doom(error_for(ErrorCode.INVALID_PRODUCER_EPOCH, topic=TOPIC, partition=0))
        commit = asyncio.create_task(transactions.commit())
        if is_cancelled:
            while network.state == "Ongoing":  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
            commit.cancel()
        with pytest.raises(asyncio.CancelledError if is_cancelled else AbortableError):
            await commit
        network.asked.clear()
        await transactions.abort()
        network.asked.append(Asked.ANSWER_LOST)
        await transactions.begin()
        sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        await transactions.commit()
        assert network.read_committed(0) == ([2], [])


async def test_an_epoch_that_was_given_and_not_heard_of_is_no_other_producers() -> None:
    async with open_transaction(transaction_version=2, transaction_timeout_ms=1) as (network, sender, transactions):
        network.time_out(lets_back_in=True)
        await asyncio.sleep(0.01)
        network.asked.extend([A, A, *[AL] * 10_000])  # of the end, of what is open, then of the epoch
        commit = asyncio.create_task(transactions.commit())
        while network.state != "Empty":  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        network.asked.clear()
        with pytest.raises(AbortableError):
            await transactions.commit()
        await transactions.abort()
        await transactions.begin()
        sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        await transactions.commit()
        assert network.read_committed(0) == ([2], [])


@pytest.mark.parametrize("transaction_version", [0, 2])
@pytest.mark.parametrize("hears_of_it", [True, False])
@pytest.mark.parametrize("limit_ms", [60_000, 1])
async def test_who_is_shut_out_by_another_producer_leaves_that_ones_transaction_alone(
    transaction_version: int, hears_of_it: bool, limit_ms: int
) -> None:
    settings = {"transaction_timeout_ms": limit_ms}
    async with open_transaction((), None, transaction_version, **settings) as (network, _, transactions):
        await asyncio.sleep(0.01)  # past the shorter one: it may also have been aborted by itself
        network.carry_out(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1))
        begun = network.carry_out(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1))
        network.state = "Ongoing"
        if hears_of_it:
            transactions.doom(error_for(ErrorCode.INVALID_PRODUCER_EPOCH, topic=TOPIC, partition=0))
        with pytest.raises(ProducerFencedError):
            await transactions.commit()
        assert (network.epoch, network.state) == (begun.producer_epoch, "Ongoing")


async def test_the_epoch_is_raised_only_after_something_that_may_still_arrive() -> None:
    async with open_transaction() as (network, sender, transactions):
        await transactions.abort()
        await transactions.begin()
        assert network.epoch == 0
        network.fates.append(Fate.LOST)
        sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        await asyncio.sleep(0.01)
        await sender.flush()
        await transactions.commit()
        assert network.epoch == 0, "it was sent again"
        await transactions.begin()
        network.fates.append(Fate.REFUSED)
        delivery = sender.accumulator.append(TOPIC, b"3", None, 0, 1, ())
        assert delivery is not None
        with pytest.raises(AbortableError):
            await transactions.commit()
        await transactions.abort()
        await transactions.begin()
        assert (network.epoch, transactions.current) == (1, (PRODUCER_ID, 1))


A, L, AL = Asked.ANSWERED, Asked.LOST, Asked.ANSWER_LOST
S = Fate.STORED


async def test_each_transaction_has_the_epoch_that_the_end_of_the_one_before_has_brought() -> None:
    async with open_transaction(transaction_version=2) as (network, sender, transactions):
        for number in range(3):
            assert (network.epoch, transactions.current) == (number, (PRODUCER_ID, number))
            network.asked.append(Asked.ANSWER_LOST)  # asked again, with the epoch of the transaction
            await (transactions.abort() if number == 1 else transactions.commit())
            await transactions.begin()
            sender.accumulator.append(TOPIC, b"%d" % (number + 2), None, 0, 1, ())
            await sender.flush()
        await transactions.commit()
    assert network.read_committed(0) == ([1, 3, 4], [])


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_transaction_that_took_too_long_is_aborted_and_its_producer_goes_on_with_the_next_epoch(
    is_commit: bool,
) -> None:
    async with open_transaction(transaction_version=2, transaction_timeout_ms=1) as (network, sender, transactions):
        network.time_out(lets_back_in=True)
        await asyncio.sleep(0.005)
        if is_commit:
            with pytest.raises(TransactionTimedOut):
                await transactions.commit()
        await transactions.abort()
        await transactions.begin()
        assert (network.epoch, transactions.current) == (1, (PRODUCER_ID, 1))
        sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        await transactions.commit()
        assert network.read_committed(0) == ([2], [])


async def test_the_first_transaction_with_an_epoch_of_its_own_shares_none_with_those_before() -> None:
    async with open_transaction() as (network, sender, transactions):
        await transactions.commit()
        network.has_epoch_each = True
        await transactions.begin()
        assert (network.epoch, transactions.current) == (1, (PRODUCER_ID, 1))
        assert transactions.newest_produce is None
        sender.accumulator.append(TOPIC, b"2", None, 0, 1, ())
        await transactions.commit()
        network.has_epoch_each = False
        await transactions.begin()
        assert (network.epoch, transactions.current) == (3, (PRODUCER_ID, 3))
        assert transactions.newest_produce == 11


@pytest.mark.slow
@pytest.mark.parametrize("transaction_version", [0, 2])
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([fate for fate in Fate if fate is not Fate.NOT_SENT]), max_size=20),
    st.lists(st.sampled_from(list(Asked)), max_size=25),
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=8),
)
@example([Fate.LOST], [], [(4, ABORT), (4, COMMIT)])  # what is aborted arrives in the next transaction
@example([S, Fate.LOST_AND_TOO_LATE], [], [(4, COMMIT), (4, COMMIT)])
@example([], [A, A, AL], [(4, COMMIT), (4, COMMIT)])  # committed, and nobody hears of it
@example([], [A, L], [(4, ABORT), (4, COMMIT)])  # the coordinator may have heard of it, or not
@example([], [A, Asked.ABORTABLE], [(4, COMMIT), (4, COMMIT)])
@example([Fate.REFUSED], [], [(4, COMMIT), (4, COMMIT)])
@example([Fate.TOO_LARGE], [], [(9, COMMIT)])
@example([Fate.OUT_OF_ORDER], [], [(4, COMMIT), (4, COMMIT)])
def test_whatever_the_network_does_a_transaction_is_read_whole_or_not_at_all(
    transaction_version: int, fates: list[Fate], asked: list[Asked], plans: list[Plan]
) -> None:
    network, outcomes = asyncio.run(play(fates, asked, plans, transaction_version))
    for partition in range(PARTITIONS):
        committed, undecided = network.read_committed(partition)
        assert committed == [number for number, ok in outcomes.items() if ok and number % PARTITIONS == partition]
        assert undecided == []
