"""What producers are told of verification: the whole table, through Produce."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kbroker.cluster.transaction_verifier import Done, Transaction
from kbroker.config.broker_config import BrokerConfig
from kbroker.handlers.produce import produce
from kbroker.handlers.registry import CloseConnection
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.produce import ProduceResponse
from kbroker.replica.turns import SHORTEST_TURN_S
from kbroker.replica.verification import MOST_AT_ONCE, spoken
from tests.fixtures.data_path import TOPIC, TOPIC_ID, Played, one_batch
from tests.kbroker.handlers.test_produce import answers_of, request_for
from tests.kbroker.handlers.test_transactions import PRODUCER, in_transaction, marker, write
from tests.kbroker.network.serving import until

MINE = Transaction("mine", PRODUCER, 0)


class PlayedVerifier:
    """Notes what is asked; answers with `says`, at once or when told to."""

    def __init__(self, played: Played, at_once: bool = True) -> None:
        self.says: dict[Key, ErrorCode] = {}
        self.asked: list[tuple[Transaction, list[Key]]] = []
        self.added: list[tuple[Transaction, list[Key]]] = []
        self.waiting: list[Done] = []
        self.at_once = at_once
        self.here: dict[Transaction, list[Key]] = {}
        """What the coordinator in this broker knows."""
        played.replicas.verifier = self

    def known_here(self, transaction: Transaction) -> list[Key]:
        return self.here.get(transaction, [])

    def verify(self, transaction: Transaction, partitions: list[Key], done: Done, adds: bool = False) -> None:
        (self.added if adds else self.asked).append((transaction, partitions))
        if self.at_once:
            done(self.says)
        else:
            self.waiting.append(done)

    def answer(self, number: int = 0) -> None:
        self.waiting.pop(number)(self.says)


def transactional_request(*partitions: tuple[int, Any], timeout_ms: int = 2_000, acks: int = -1) -> Any:
    request = request_for(*partitions, timeout_ms=timeout_ms, acks=acks)
    request.transactional_id = "mine"
    return request


def begin(played: Played, *partitions: tuple[int, Any], version: int = 11, **rest: Any) -> Any:
    return produce(played.services, played.ctx(version), transactional_request(*partitions, **rest))


async def send(played: Played, *partitions: tuple[int, Any], version: int = 11, **rest: Any) -> list[Any]:
    answer = begin(played, *partitions, version=version, **rest)
    return answers_of(await asyncio.wait_for(answer, 20) if asyncio.isfuture(answer) else answer)


def codes(answers: Sequence[Any]) -> list[ErrorCode]:
    return [each.error_code for each in answers]


def end_offset(played: Played, partition: int = 0) -> int:
    return played.replicas.hosted[TOPIC, partition].log.log_end_offset


async def test_a_verification_begins_while_who_appends_waits_for_the_disk(played: Played) -> None:
    await played.lead()
    hosted = played.replicas.hosted[TOPIC, 0]
    verification = played.replicas._appender.verification
    with hosted.log.changing("append"):
        found = await asyncio.wait_for(asyncio.to_thread(verification, hosted, MINE, 0, False), 20)
    assert found is not None


async def test_the_first_batch_of_a_transaction_is_verified_and_the_others_are_not(played: Played) -> None:
    await played.lead((0, 1))
    verifier = PlayedVerifier(played)
    assert codes(await send(played, (0, in_transaction()), (1, in_transaction()))) == [0, 0]
    assert verifier.asked == [(MINE, [(TOPIC, 0), (TOPIC, 1)])]
    assert codes(await send(played, (0, in_transaction(sequence=1)))) == [0]
    assert len(verifier.asked) == 1
    await write(played, marker(0))
    assert codes(await send(played, (0, in_transaction(sequence=2)))) == [0]
    assert verifier.asked[1:] == [(MINE, [(TOPIC, 0)])]


async def test_what_the_coordinator_in_this_broker_knows_is_appended_without_a_question(played: Played) -> None:
    await played.lead((0, 1))
    verifier = PlayedVerifier(played, at_once=False)
    verifier.here[MINE] = [(TOPIC, 0)]
    answer = asyncio.ensure_future(send(played, (0, in_transaction()), (1, in_transaction())))
    await until(lambda: bool(verifier.waiting))
    assert verifier.asked == [(MINE, [(TOPIC, 1)])]
    assert (end_offset(played, 0), end_offset(played, 1)) == (1, 0)
    verifier.answer()
    assert codes(await answer) == [0, 0]
    del verifier.here[MINE]
    await write(played, marker(0))
    answer = asyncio.ensure_future(send(played, (0, in_transaction(sequence=1))))
    await until(lambda: bool(verifier.waiting))
    assert verifier.asked[1:] == [(MINE, [(TOPIC, 0)])], "what was known has been forgotten"
    verifier.answer()
    assert codes(await answer) == [0]


async def test_what_is_known_is_looked_at_anew_in_each_turn(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    await played.lead(range(MOST_AT_ONCE + 1))
    verifier = PlayedVerifier(played)
    looks = count(step=SHORTEST_TURN_S)
    monkeypatch.setattr("kbroker.replica.turns.monotonic", lambda: next(looks))
    verifier.here[MINE] = [(TOPIC, each) for each in range(MOST_AT_ONCE + 1)]
    request = transactional_request(*((each, in_transaction()) for each in range(MOST_AT_ONCE + 1)))
    answer = produce(played.services, played.ctx(11), request)
    assert not verifier.asked
    begun = [each for each in range(MOST_AT_ONCE + 1) if end_offset(played, each)]
    assert begun
    del verifier.here[MINE]
    verifier.says = {(TOPIC, each): ErrorCode.INVALID_TXN_STATE for each in range(MOST_AT_ONCE + 1)}
    assert not isinstance(answer, ProduceResponse | None)
    found = codes(answers_of(await asyncio.wait_for(answer, 20)))
    assert found == [ErrorCode.NONE] * len(begun) + [ErrorCode.INVALID_TXN_STATE] * (MOST_AT_ONCE + 1 - len(begun))


async def test_batches_outside_of_transactions_are_not_verified(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played)
    assert codes(await send(played, (0, one_batch()))) == [0]
    assert not verifier.asked


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        *((each, 11, ErrorCode.NOT_ENOUGH_REPLICAS) for each in (13, 14, 15, 16, 51)),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, 11, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_what_is_not_verified_is_not_appended(played: Played, said: int, version: int, told: ErrorCode) -> None:
    await played.lead((0, 1))
    verifier = PlayedVerifier(played)
    verifier.says[TOPIC, 0] = ErrorCode(said)
    answers = await send(played, (0, in_transaction()), (1, in_transaction()), version=version)
    assert codes(answers) == [told, ErrorCode.NONE]
    assert (end_offset(played, 0), end_offset(played, 1)) == (0, 1)


async def test_all_batches_of_a_request_are_one_producers(played: Played) -> None:
    await played.lead((0, 1))
    verifier = PlayedVerifier(played)
    answers = await send(played, (0, in_transaction()), (1, in_transaction(epoch=1)))
    assert codes(answers) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert end_offset(played, 0) == 0
    assert not verifier.asked


async def test_a_partition_that_is_not_here_keeps_the_others_from_nothing(played: Played) -> None:
    await played.lead()
    played.tell(TOPIC, TOPIC_ID, [1], leader=2)
    verifier = PlayedVerifier(played)
    answers = await send(played, (0, in_transaction()), (1, in_transaction()), (9, in_transaction()))
    assert codes(answers) == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert verifier.asked == [(MINE, [(TOPIC, 0)])]


async def test_other_producers_do_not_wait_for_a_verification(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played, at_once=False)
    waiting = begin(played, (0, in_transaction()))
    assert not asyncio.isfuture(produce(played.services, played.ctx(11), request_for((0, one_batch()))))
    verifier.answer()
    (answer,) = answers_of(await asyncio.wait_for(waiting, 20))
    assert (answer.error_code, answer.base_offset) == (0, 1)


async def test_the_request_is_needed_until_it_is_verified(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played, at_once=False)
    ctx = played.ctx(11)
    request = transactional_request((0, in_transaction()))
    waiting = produce(played.services, ctx, request)
    assert not ctx.may_be_overtaken, "its producer's next batch would come before it"
    assert request.topic_data[0].partition_data[0].records is not None
    verifier.answer()
    assert codes(answers_of(await waiting)) == [0]  # type: ignore[misc]


async def test_what_is_verified_at_once_is_answered_at_once(played: Played) -> None:
    await played.lead((0, 1))
    verifier = PlayedVerifier(played)
    verifier.says[TOPIC, 1] = ErrorCode.INVALID_TXN_STATE
    answer = begin(played, (0, in_transaction()), (1, in_transaction()))
    assert not asyncio.isfuture(answer)
    assert codes(answers_of(answer)) == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]


async def test_what_is_verified_at_once_lets_the_next_request_come_while_it_is_replicated(played: Played) -> None:
    await played.lead(replicas=(1, 2), isr=(1, 2))
    PlayedVerifier(played)
    ctx = played.ctx(11)
    request = transactional_request((0, in_transaction()))
    waiting = produce(played.services, ctx, request)
    assert asyncio.isfuture(waiting)
    assert not waiting.done()
    assert (end_offset(played), ctx.may_be_overtaken) == (1, True)
    assert request.topic_data[0].partition_data[0].records is None
    waiting.cancel()


async def test_what_is_verified_by_another_broker_lets_the_next_request_come_while_it_is_replicated(
    played: Played,
) -> None:
    await played.lead((0, 1), replicas=(1, 2), isr=(1, 2))
    verifier = PlayedVerifier(played, at_once=False)
    verifier.says[TOPIC, 1] = ErrorCode.INVALID_TXN_STATE
    ctx = played.ctx(11)
    let: list[Any] = []
    ctx.connection.let_overtake = let.append
    request = transactional_request((0, in_transaction()), (1, in_transaction()))
    waiting = produce(played.services, ctx, request)
    assert asyncio.isfuture(waiting)
    await asyncio.sleep(0)
    assert (let, ctx.may_be_overtaken) == ([], False)
    verifier.answer()
    assert end_offset(played) == 1
    await asyncio.sleep(0)
    assert (let, ctx.may_be_overtaken, waiting.done()) == ([ctx], True, False)
    assert [data.records for data in request.topic_data[0].partition_data] == [None, None]
    waiting.cancel()


async def test_what_a_worker_still_prepares_once_it_is_verified_lets_nothing_come_before(tmp_path: Path) -> None:
    played = Played(tmp_path, compression_type="gzip")
    await played.lead(replicas=(1, 2), isr=(1, 2))
    verifier = PlayedVerifier(played, at_once=False)
    ctx = played.ctx(11)
    let: list[Any] = []
    ctx.connection.let_overtake = let.append
    request = transactional_request((0, in_transaction(bytes(100_000))))
    waiting = produce(played.services, ctx, request)
    assert asyncio.isfuture(waiting)
    verifier.answer()
    await asyncio.sleep(0)
    assert let == []
    assert request.topic_data[0].partition_data[0].records is not None
    async with asyncio.timeout(20):
        while not end_offset(played):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.002)
    waiting.cancel()
    await played.close()


async def test_what_is_answered_once_it_is_verified_lets_nothing_come_before(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played, at_once=False)
    ctx = played.ctx(11)
    let: list[Any] = []
    ctx.connection.let_overtake = let.append
    waiting = produce(played.services, ctx, transactional_request((0, in_transaction())))
    verifier.answer()
    assert codes(answers_of(await waiting)) == [0]  # type: ignore[misc]
    await asyncio.sleep(0)
    assert let == []


async def test_an_abort_between_verification_and_append_makes_the_append_fail(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played, at_once=False)
    waiting = begin(played, (0, in_transaction()))
    assert await write(played, marker(0, commit=False)) == [ErrorCode.NONE]
    verifier.answer()
    assert codes(answers_of(await asyncio.wait_for(waiting, 20))) == [ErrorCode.INVALID_TXN_STATE]
    assert end_offset(played) == 1


async def test_a_request_sent_again_while_the_first_is_verified_is_appended_once(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played, at_once=False)
    first, second = (begin(played, (0, in_transaction())) for _ in range(2))
    verifier.answer(1)
    verifier.answer(0)
    (one,), (other,) = answers_of(await asyncio.wait_for(first, 20)), answers_of(await asyncio.wait_for(second, 20))
    assert [(each.error_code, each.base_offset) for each in (one, other)] == [(0, 0)] * 2
    assert end_offset(played) == 1


async def test_what_is_verified_when_its_time_is_over_is_not_appended(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played, at_once=False)
    assert codes(await send(played, (0, in_transaction()), timeout_ms=10)) == [ErrorCode.REQUEST_TIMED_OUT]
    verifier.answer()
    assert end_offset(played) == 0


async def test_a_leadership_lost_during_the_verification_refuses_the_append(played: Played) -> None:
    await played.lead(replicas=(1, 2), isr=(1, 2))
    verifier = PlayedVerifier(played, at_once=False)
    waiting = begin(played, (0, in_transaction()), acks=1)
    await played.lead(leader=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2), is_new=False)
    verifier.answer()
    assert codes(answers_of(await asyncio.wait_for(waiting, 20))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_a_broker_that_stood_still_during_the_verification_appends_nothing(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played, at_once=False)
    waiting = begin(played, (0, in_transaction()), acks=1)
    played.replicas.is_leadership_unproven = lambda: True
    verifier.answer()
    assert codes(answers_of(await asyncio.wait_for(waiting, 20))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert end_offset(played) == 0


async def test_with_acks_0_what_is_not_verified_ends_the_connection(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played, at_once=False)
    verifier.says[TOPIC, 0] = ErrorCode.TRANSACTION_ABORTABLE
    waiting = begin(played, (0, in_transaction()), acks=0)
    verifier.answer()
    with pytest.raises(CloseConnection):
        await asyncio.wait_for(waiting, 20)


async def test_verification_can_be_switched_off_while_the_broker_runs(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played)
    played.replicas.config = BrokerConfig(transaction_partition_verification_enable=False)
    assert codes(await send(played, (0, in_transaction()))) == [0]
    assert not verifier.asked


@pytest.mark.parametrize("rest", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_very_many_verified_batches_are_appended_in_turns(
    played: Played, monkeypatch: pytest.MonkeyPatch, rest: ErrorCode
) -> None:
    await played.lead()
    verifier = PlayedVerifier(played, at_once=False)
    batches = [(0, in_transaction(sequence=each)) for each in range(3 * MOST_AT_ONCE)]
    request = transactional_request(*batches, timeout_ms=60_000, acks=1)
    answer = asyncio.ensure_future(produce(played.services, played.ctx(11), request))  # type: ignore[arg-type]
    async with asyncio.timeout(20):
        while not verifier.waiting:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
    looks = count(step=SHORTEST_TURN_S / 2)
    monkeypatch.setattr("kbroker.replica.turns.monotonic", lambda: next(looks))
    verifier.answer()
    appended = end_offset(played)
    assert 0 < appended < len(batches)
    played.replicas.is_leadership_unproven = lambda: rest is not ErrorCode.NONE
    found = codes(answers_of(await asyncio.wait_for(answer, 20)))
    assert found == [ErrorCode.NONE] * appended + [rest] * (len(batches) - appended)


def test_an_error_that_a_client_does_not_know_is_told_as_one_it_knows() -> None:
    assert spoken(ErrorCode.TRANSACTION_ABORTABLE, knows_abortable=True) is ErrorCode.TRANSACTION_ABORTABLE
    assert spoken(ErrorCode.TRANSACTION_ABORTABLE, knows_abortable=False) is ErrorCode.INVALID_TXN_STATE
    assert spoken(ErrorCode.PRODUCER_FENCED, knows_abortable=False) is ErrorCode.PRODUCER_FENCED


# --- partitions that are added by being produced to ---------------------------------------------------------------


async def test_from_version_12_on_the_first_batch_adds_its_partition_whatever_the_setting(played: Played) -> None:
    await played.lead((0, 1))
    verifier = PlayedVerifier(played)
    for number, is_enabled in enumerate((True, False)):
        played.replicas.config = replace(played.replicas.config, transaction_partition_verification_enable=is_enabled)
        assert codes(await send(played, (number, in_transaction()), version=12)) == [0]
        assert verifier.added == [(MINE, [(TOPIC, each)]) for each in range(number + 1)]
    assert codes(await send(played, (0, in_transaction(sequence=1)), version=12)) == [0]
    assert len(verifier.added) == 2
    assert not verifier.asked


@pytest.mark.parametrize(
    ("said", "told"),
    [
        *((each, ErrorCode.NOT_ENOUGH_REPLICAS) for each in (3, 13, 14, 15, 16, 55)),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_what_is_not_added_is_not_appended(played: Played, said: int, told: ErrorCode) -> None:
    await played.lead()
    PlayedVerifier(played).says[TOPIC, 0] = ErrorCode(said)
    assert codes(await send(played, (0, in_transaction()), version=12)) == [told]
    assert end_offset(played) == 0


async def test_an_epoch_that_the_partition_has_left_behind_is_refused_without_asking(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played)
    assert codes(await send(played, (0, in_transaction()), version=12)) == [0]
    await write(played, marker(0, epoch=1))
    for version in (11, 12):
        answers = await send(played, (0, in_transaction(sequence=1)), version=version)
        assert codes(answers) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert len(verifier.added) == 1
    assert not verifier.asked


async def test_the_marker_of_the_transaction_before_leaves_the_next_one_its_right_to_append(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played)
    assert codes(await send(played, (0, in_transaction()), version=12)) == [0]
    verifier.at_once = False
    waiting = begin(played, (0, in_transaction(epoch=1)), version=12)
    await write(played, marker(0, epoch=1))  # ends the first one
    verifier.answer()
    assert codes(answers_of(await asyncio.wait_for(waiting, 20))) == [0]
    waiting = begin(played, (0, in_transaction(epoch=2)), version=12)
    await write(played, marker(0, epoch=2))
    await write(played, marker(0, epoch=3))  # and this one its own, before it was appended
    verifier.answer()
    assert codes(answers_of(await asyncio.wait_for(waiting, 20))) == [ErrorCode.INVALID_TXN_STATE]


async def test_a_producer_that_is_unknown_here_begins_its_transaction_with_sequence_nought(played: Played) -> None:
    await played.lead()
    verifier = PlayedVerifier(played, at_once=False)
    waiting = begin(played, (0, in_transaction(sequence=1)), version=12)
    verifier.answer()
    answers = answers_of(await asyncio.wait_for(waiting, 20))
    assert codes(answers) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    verifier.at_once = True
    assert codes(await send(played, (0, in_transaction()), (0, in_transaction(sequence=1)), version=12)) == [0, 0]
