"""The coordinator on a real replica manager and real logs: the test plays the controller and the clock."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.cluster.topic_names import TRANSACTIONS_TOPIC
from kbroker.coordinator.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EXHAUSTED_EPOCH,
    ONGOING,
    PREPARE_COMMIT,
    Answer,
    Transaction,
    TransactionRecord,
    TransactionState,
)
from kbroker.coordinator.transaction_records import read_transaction_value, transaction_key, transaction_value
from kbroker.process import GC_THRESHOLDS
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.java_hash import partition_for
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.control import ControlType
from kbroker.segment.log import AppendOrigin
from tests.fixtures.data_path import TOPIC
from tests.kbroker.coordinator.coordinated import NONE, PARTITIONS, TIMEOUT, Coordinated, leading


def refused(expected: ErrorCode) -> Any:
    """The KafkaError of a request that is refused at once."""
    return pytest.raises(KafkaError, check=lambda error: error.code is expected)


@pytest.fixture
async def coordinated(tmp_path: Path) -> AsyncIterator[Coordinated]:
    async with leading(tmp_path) as made:
        yield made


# --- a transaction's life -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_ends_with_a_marker_in_each_of_its_partitions(
    coordinated: Coordinated, commit: bool
) -> None:
    producer = await coordinated.began("id", 0, 2)
    assert (producer.error, producer.producer_id, producer.producer_epoch) == (NONE, 101, 0)
    assert await coordinated.end(producer, commit) is NONE
    await coordinated.until_state(COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    expected = [(ControlType.COMMIT if commit else ControlType.ABORT, 0)]
    assert (coordinated.markers(0), coordinated.markers(1), coordinated.markers(2)) == (expected, [], expected)
    assert await coordinated.end(producer, commit) is NONE
    assert await coordinated.end(producer, not commit) is ErrorCode.INVALID_TXN_STATE


async def test_the_coordinator_epoch_of_markers_is_the_leader_epoch(coordinated: Coordinated) -> None:
    producer = await coordinated.began()
    for _ in range(3):
        await coordinated.lead()
    await coordinated.end(producer)
    await coordinated.until_state(COMPLETE_COMMIT)
    assert coordinated.markers() == [(ControlType.COMMIT, 3)]


async def test_another_producer_fences_the_one_before(coordinated: Coordinated) -> None:
    producer = await coordinated.began()
    beginning = asyncio.ensure_future(coordinated.init())
    while coordinated.state() is ONGOING:  # noqa: ASYNC110 - nobody tells of states
        await asyncio.sleep(0)
    assert await coordinated.add(producer, 1) is ErrorCode.PRODUCER_FENCED
    second = await beginning
    assert coordinated.markers() == [(ControlType.ABORT, 0)]
    assert (second.producer_id, second.producer_epoch) == (producer.producer_id, 2)
    assert await coordinated.end(producer) is ErrorCode.PRODUCER_FENCED


async def test_a_fresh_id_is_got_when_the_epochs_of_one_are_used_up(coordinated: Coordinated) -> None:
    producer = await coordinated.init()
    transaction = coordinated.transactions.transactions()[0]
    transaction.record = transaction.record._replace(producer_epoch=0x7FFE)
    second = await coordinated.init(expected=(producer.producer_id, 0x7FFE))
    assert (second.producer_id, second.producer_epoch) == (102, 0)
    assert coordinated.given_ids == 2


async def test_many_producers_that_begin_at_once_get_one_id_each_epoch_once(coordinated: Coordinated) -> None:
    answers = await asyncio.gather(*(coordinated.init() for _ in range(5)))
    assert [(each.error, each.producer_id, each.producer_epoch) for each in answers] == [
        (NONE, 101, epoch) for epoch in range(5)
    ]
    assert len(coordinated.transactions.transactions()) == 1


async def test_partitions_are_verified_by_what_the_coordinator_knows(coordinated: Coordinated) -> None:
    producer = await coordinated.began("id", 0)
    keys = [(TOPIC, 0), (TOPIC, 1)]
    asked = producer.producer_id, producer.producer_epoch, keys
    verify = coordinated.transactions.verify
    assert verify("id", *asked) == {keys[0]: NONE, keys[1]: ErrorCode.TRANSACTION_ABORTABLE}
    assert set(verify("nobody", *asked).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert set(verify("", *asked).values()) == {ErrorCode.INVALID_REQUEST}
    await coordinated.lead(leader=2, replicas=(1, 2))
    assert set(verify("id", *asked).values()) == {ErrorCode.NOT_COORDINATOR}


# --- who may not ask ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_a_time_out_that_is_too_long_or_none_is_refused(coordinated: Coordinated, timeout_ms: int) -> None:
    with refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT):
        await coordinated.init(timeout_ms=timeout_ms)
    assert (await coordinated.init(timeout_ms=900_000)).error is NONE


async def test_an_empty_or_unknown_transactional_id_is_refused(coordinated: Coordinated) -> None:
    nobody = Answer(None, NONE, 5, 5)
    for transactional_id, expected in (
        ("", ErrorCode.INVALID_REQUEST),
        ("nobody", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ):
        with refused(expected):
            await coordinated.add(nobody, 0, transactional_id=transactional_id)
        with refused(expected):
            await coordinated.end(nobody, transactional_id=transactional_id)
    with refused(ErrorCode.INVALID_REQUEST):
        await coordinated.init("")
    with refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        coordinated.transactions.describe("nobody")


async def test_who_asks_a_broker_that_does_not_lead_or_run_is_sent_away(coordinated: Coordinated) -> None:
    producer = await coordinated.began()
    await coordinated.lead(leader=2, replicas=(1, 2))
    with refused(ErrorCode.NOT_COORDINATOR):
        await coordinated.end(producer)
    with refused(ErrorCode.NOT_COORDINATOR):
        await coordinated.init()
    assert coordinated.transactions.transactions() == []
    await coordinated.transactions.stop()
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await coordinated.end(producer)
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        coordinated.transactions.transactions()


async def test_nobody_gets_an_epoch_while_there_are_no_producer_ids(coordinated: Coordinated) -> None:
    coordinated.no_ids = True
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        await coordinated.init()
    assert coordinated.transactions.transactions() == []


async def test_a_record_the_log_does_not_take_leaves_everything_as_it_was(coordinated: Coordinated) -> None:
    await coordinated.lead(replicas=(1, 2), isr=(1,))
    producer = await coordinated.began()
    replicas, before = coordinated.played.replicas, coordinated.played.log_config
    replicas.apply_topic_config(TRANSACTIONS_TOPIC, replace(before, min_insync_replicas=2))
    partition = coordinated.transactions.partition_for("id")
    assert await coordinated.end(producer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinated.state() is ONGOING
    new = next(name for name in map(str, range(99)) if coordinated.transactions.partition_for(name) == partition)
    assert (await coordinated.init(new)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [each.transactional_id for each in coordinated.transactions.transactions()] == ["id"]
    replicas.apply_topic_config(TRANSACTIONS_TOPIC, before)
    assert await coordinated.end(producer) is NONE


# --- moves --------------------------------------------------------------------------------------------------------


async def test_the_next_coordinator_goes_on_where_the_one_before_was(coordinated: Coordinated) -> None:
    producer = await coordinated.began("id", 0, 1)
    await coordinated.init("idle")
    await coordinated.move()
    assert coordinated.transactions.describe("id").partitions == {(TOPIC, 0), (TOPIC, 1)}
    assert coordinated.state("idle") is EMPTY
    assert await coordinated.add(producer, 2) is NONE
    assert await coordinated.end(producer) is NONE
    await coordinated.until_state(COMPLETE_COMMIT)
    assert coordinated.markers(2) == [(ControlType.COMMIT, 1)]


async def test_what_was_decided_is_carried_out_by_the_next_coordinator(coordinated: Coordinated) -> None:
    producer = await coordinated.began("id", 0)
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=-1)
    assert await coordinated.end(producer) is NONE
    await asyncio.sleep(0.05)
    assert coordinated.markers() == []
    await coordinated.move()
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=1)
    await coordinated.until_state(COMPLETE_COMMIT)
    assert coordinated.markers() == [(ControlType.COMMIT, 1)]


async def test_the_markers_of_who_does_not_coordinate_any_more_are_not_sent(coordinated: Coordinated) -> None:
    producer = await coordinated.began("id", 0)
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=-1)
    await coordinated.end(producer)
    await coordinated.lead(leader=2, replicas=(1, 2))
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=1)
    await asyncio.sleep(0.3)
    assert coordinated.markers() == []


async def test_who_waits_for_a_record_is_told_when_the_partition_is_lost(coordinated: Coordinated) -> None:
    await coordinated.lead(replicas=(1, 2))  # broker 2 is in sync, and never comes
    waiting = asyncio.ensure_future(coordinated.init())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await coordinated.lead(leader=2, replicas=(1, 2))
    assert (await asyncio.wait_for(waiting, TIMEOUT)).error is ErrorCode.NOT_COORDINATOR


async def test_who_waits_for_a_record_is_told_when_the_coordinator_stops(coordinated: Coordinated) -> None:
    await coordinated.lead(replicas=(1, 2))
    waiting = asyncio.ensure_future(coordinated.init())
    await asyncio.sleep(0.05)
    await coordinated.transactions.stop()
    assert (await asyncio.wait_for(waiting, TIMEOUT)).error is ErrorCode.NOT_COORDINATOR


async def test_a_record_that_is_not_replicated_is_waited_for_as_long_as_its_transaction_may_take(
    coordinated: Coordinated,
) -> None:
    await coordinated.lead(replicas=(1, 2))  # broker 2 is in sync, and never comes
    partition = coordinated.transactions.partition_for("id")
    patient = next(name for name in map(str, range(99)) if coordinated.transactions.partition_for(name) == partition)
    waiting = asyncio.ensure_future(coordinated.init(patient))
    assert (await coordinated.init(timeout_ms=20)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not waiting.done()
    await coordinated.transactions.stop()
    await waiting


async def test_a_record_that_is_acknowledged_when_another_coordinates_changes_nothing(
    coordinated: Coordinated, caplog: pytest.LogCaptureFixture
) -> None:
    await coordinated.lead(replicas=(1, 2))  # broker 2 is in sync, and never comes
    waiting = asyncio.ensure_future(coordinated.init())
    await asyncio.sleep(0.05)
    (transaction,) = coordinated.transactions.transactions()
    coordinated.transactions._owned.resign(coordinated.transactions.partition_for("id"))
    assert (await asyncio.wait_for(waiting, TIMEOUT)).error is ErrorCode.NOT_COORDINATOR
    await coordinated.lead(replicas=(1, 2), isr=(1,))
    assert transaction.record.producer_epoch == -1
    assert coordinated.transactions.describe("id").producer_epoch == 0  # read from the log
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_who_takes_over_does_not_carry_out_what_is_being_carried_out_already(coordinated: Coordinated) -> None:
    producer = await coordinated.began("id", 0)
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=-1)
    await coordinated.end(producer)
    owned = coordinated.transactions._owned.by_number[coordinated.transactions.partition_for("id")]
    await coordinated.transactions._resume(owned)
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=1)
    await coordinated.until_state(COMPLETE_COMMIT)
    await asyncio.sleep(0.2)  # a second marker would come behind the first
    assert coordinated.markers() == [(ControlType.COMMIT, 0)]


async def test_the_last_record_is_written_when_the_log_takes_it_again(coordinated: Coordinated) -> None:
    await coordinated.lead(replicas=(1, 2), isr=(1,))
    producer = await coordinated.began("id", 0)
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=-1)
    await coordinated.end(producer)
    replicas, before = coordinated.played.replicas, coordinated.played.log_config
    replicas.apply_topic_config(TRANSACTIONS_TOPIC, replace(before, min_insync_replicas=2))
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=1)
    async with asyncio.timeout(TIMEOUT):
        while not coordinated.markers():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert coordinated.state() is PREPARE_COMMIT
    assert (await coordinated.init()).error is ErrorCode.CONCURRENT_TRANSACTIONS
    replicas.apply_topic_config(TRANSACTIONS_TOPIC, before)
    await coordinated.until_state(COMPLETE_COMMIT)


async def test_who_asks_while_the_partition_is_read_is_told_to_come_again(coordinated: Coordinated) -> None:
    producer = await coordinated.began()
    owned = coordinated.transactions._owned.by_number[coordinated.transactions.partition_for("id")]
    owned.is_loading = True
    for ask in (coordinated.end(producer), coordinated.init()):
        with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            await ask
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        coordinated.transactions.transactions()
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        coordinated.transactions.describe("id")
    owned.is_loading = False
    assert await coordinated.end(producer) is NONE


# --- time ---------------------------------------------------------------------------------------------------------


async def test_a_transaction_that_takes_too_long_is_aborted(coordinated: Coordinated) -> None:
    producer = await coordinated.began()
    coordinated.now += 60_000
    await coordinated.transactions.abort_timed_out_transactions()
    assert coordinated.state() is ONGOING
    coordinated.now += 1
    await coordinated.transactions.abort_timed_out_transactions()
    await coordinated.until_state(COMPLETE_ABORT)
    assert coordinated.markers() == [(ControlType.ABORT, 0)]
    assert await coordinated.end(producer) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("epoch", [0, EXHAUSTED_EPOCH])
async def test_the_next_coordinator_knows_what_the_producer_was_told_to_go_on_with(
    coordinated: Coordinated, epoch: int
) -> None:
    producer = replace(await coordinated.began(), producer_epoch=epoch)
    transaction = coordinated.transactions._find_known("id")[1]
    transaction.record = transaction.record._replace(producer_epoch=epoch)
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=-1)
    told = await coordinated.end_each(producer)
    assert (told.producer_id == producer.producer_id, told.producer_epoch) == ((False, 0) if epoch else (True, 1))
    await coordinated.move()
    assert await coordinated.add(told, 1) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinated.markers() == []
    await coordinated.played.lead([0])
    assert await coordinated.end_each(producer) == told, "it asks again"
    assert coordinated.markers() == [(ControlType.COMMIT, 1)]
    await coordinated.move()
    assert await coordinated.end_each(producer) == told
    assert await coordinated.add(producer, 1) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert await coordinated.add(told, 1) is NONE


@pytest.mark.parametrize("has_epoch_each", [False, True])
async def test_markers_say_whether_their_epoch_is_the_one_after_that_of_their_transaction(
    coordinated: Coordinated, has_epoch_each: bool
) -> None:
    producer = await coordinated.began()
    coordinated.played.tell(TOPIC, bytes(range(16)), [0], leader=-1)
    if has_epoch_each:
        await coordinated.end_each(producer)
    else:
        await coordinated.end(producer)
    for _ in range(2):  # the next coordinator knows it, too
        async with asyncio.timeout(TIMEOUT):
            while not (endings := coordinated.transactions._find_known("id")[0].endings):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        ending = endings["id"]
        assert ending.transaction_version == (2 if has_epoch_each else 0)
        assert ending.producer_epoch == producer.producer_epoch + has_epoch_each
        await coordinated.move()


async def test_a_time_out_leaves_the_producer_the_epoch_that_the_end_brings(coordinated: Coordinated) -> None:
    coordinated.features.transaction_version = 2
    producer = await coordinated.began()
    coordinated.now += 60_001
    await coordinated.transactions.abort_timed_out_transactions()
    told = await coordinated.end_each(producer, commit=False)
    assert (told.error, told.producer_epoch) == (NONE, 1)


async def test_ids_that_nobody_uses_are_forgotten_for_good(coordinated: Coordinated) -> None:
    busy = await coordinated.began("busy")
    await coordinated.init("idle")
    coordinated.now += 100_000
    await coordinated.init("fresh")
    await coordinated.transactions.expire_transactional_ids()
    async with asyncio.timeout(TIMEOUT):
        while len(coordinated.transactions.transactions()) > 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.002)
    await coordinated.move()
    assert {each.transactional_id for each in coordinated.transactions.transactions()} == {"busy", "fresh"}
    assert await coordinated.end(busy, transactional_id="busy") is NONE
    assert (await coordinated.init("idle")).producer_id not in (busy.producer_id, -1)


async def test_both_are_looked_for_at_their_intervals(coordinated: Coordinated) -> None:
    await coordinated.transactions.stop()
    coordinated.config.transaction_abort_timed_out_transaction_cleanup_interval_ms = 5
    coordinated.config.transaction_remove_expired_transaction_cleanup_interval_ms = 5
    await coordinated.move()
    await coordinated.began("slow")
    coordinated.now += 60_001
    await coordinated.until_state(COMPLETE_ABORT, "slow")
    coordinated.now += 100_000
    async with asyncio.timeout(TIMEOUT):
        while coordinated.transactions.transactions():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.002)


# --- many ---------------------------------------------------------------------------------------------------------

MANY = 10_000
LONGEST_S = 0.05


async def longest_turn(work: Awaitable[Any]) -> float:
    """How much of the processor's time the longest turn of the loop took, in seconds."""
    longest, is_over = 0.0, False

    async def watch() -> None:
        nonlocal longest
        last = time.thread_time()
        while not is_over:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    watching = asyncio.ensure_future(watch())
    await work
    is_over = True
    await watching
    return longest


async def with_records(coordinated: Coordinated, record: TransactionRecord, number: int) -> None:
    """Let the log hold so many ids with such a record; another coordinator is to read them."""
    await coordinated.transactions.stop()
    builders = [BatchBuilder(1 << 30) for _ in range(PARTITIONS)]
    for each in range(number):
        transactional_id = f"id-{each}"
        value = transaction_value(record._replace(producer_id=each))
        builders[partition_for(transactional_id, PARTITIONS)].append(transaction_key(transactional_id), value)
    for partition, builder in enumerate(builders):
        partition_log = coordinated.played.logs.get(TRANSACTIONS_TOPIC, partition)
        assert partition_log is not None
        partition_log.append_as_leader(builder.build(), coordinated.leader_epoch, 1, AppendOrigin.COORDINATOR)
    coordinated.transactions = coordinated.make_coordinator()
    coordinated.transactions.start()


@pytest.fixture
def little_garbage() -> Iterator[None]:
    """As in a broker's process: what is there already is not looked at again and again."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.usefixtures("little_garbage")
async def test_many_idle_ids_are_read_looked_at_and_forgotten_without_holding_up_the_loop(
    coordinated: Coordinated,
) -> None:
    await with_records(coordinated, TransactionRecord(0, 3, 60_000, EMPTY, last_update_ms=1), MANY)
    assert await longest_turn(coordinated.lead()) < LONGEST_S
    assert len(coordinated.transactions.transactions()) == MANY
    assert await longest_turn(coordinated.transactions.abort_timed_out_transactions()) < LONGEST_S
    assert await longest_turn(coordinated.transactions.expire_transactional_ids()) < LONGEST_S
    async with asyncio.timeout(TIMEOUT):
        while coordinated.transactions.transactions():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.usefixtures("little_garbage")
@pytest.mark.parametrize("state", [ONGOING, PREPARE_COMMIT])
async def test_many_transactions_are_ended_without_holding_up_the_loop(
    coordinated: Coordinated, state: TransactionState
) -> None:
    number = MANY // 5
    record = TransactionRecord(0, 3, 60_000, state, frozenset({(TOPIC, 0), (TOPIC, 1)}), 1, 1)
    await with_records(coordinated, record, number)
    expected = COMPLETE_ABORT if state is ONGOING else COMPLETE_COMMIT

    async def end_all() -> None:
        await coordinated.lead()
        await coordinated.transactions.abort_timed_out_transactions()
        async with asyncio.timeout(3 * TIMEOUT):
            while any(each.state is not expected for each in coordinated.transactions.transactions()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    assert await longest_turn(end_all()) < 2 * LONGEST_S, "in one turn it would take a quarter of a second"
    partition_log = coordinated.played.logs.get(TOPIC, 0)
    assert partition_log is not None
    assert partition_log.log_end_offset == number


@pytest.mark.slow
def test_an_idle_id_costs_little_memory() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        value = transaction_value(TransactionRecord(1 << 40, 3, 60_000, EMPTY, last_update_ms=1 << 40))
        before = tracemalloc.get_traced_memory()[0]
        kept = {}
        for number in range(1_000):
            transactional_id = f"transactional-id-{number}"
            kept[transactional_id] = Transaction(transactional_id, read_transaction_value(value))
        assert (tracemalloc.get_traced_memory()[0] - before) / len(kept) < 600
    finally:
        tracemalloc.stop()
