from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers.fetch import fetch
from kbroker.handlers.transactions import write_txn_markers
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.transactions import WriteTxnMarkersRequest
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.control import ControlType, read_marker
from kbroker.replica.delayed import DelayedAnswer
from kbroker.replica.workers import Workers
from tests.fixtures.data_path import TOPIC, Played
from tests.kbroker.handlers.test_fetch import ask, fetch_request, partitions_of
from tests.kbroker.replica.test_appending import busy

PRODUCER = 7


def in_transaction(value: bytes = b"value", sequence: int = 0, epoch: int = 0) -> bytearray:
    builder = BatchBuilder()
    builder.append(b"k", value, (), 1_000)
    return builder.build(PRODUCER, epoch, sequence, transactional=True)


def append(played: Played, records: bytearray, partition: int = 0) -> Any:
    answer = DelayedAnswer(1000, list)
    played.replicas.append(TOPIC, partition, records, 1, played.now, answer)
    return answer.results[0]


def marker(
    *partitions: int,
    commit: bool = True,
    epoch: int = 0,
    coordinator_epoch: int = 3,
    topic: str = TOPIC,
    transaction_version: int = 0,
) -> WriteTxnMarkersRequest.WritableTxnMarker:
    return WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )


async def write(played: Played, *markers: WriteTxnMarkersRequest.WritableTxnMarker) -> list[ErrorCode]:
    answer = write_txn_markers(played.services, played.ctx(1), WriteTxnMarkersRequest(markers=list(markers)))
    response: Any = await asyncio.wait_for(answer, 20) if isinstance(answer, Awaitable) else answer
    assert [each.producer_id for each in response.markers] == [PRODUCER] * len(markers)
    return [each.error_code for one in response.markers for topic in one.topics for each in topic.partitions]


@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_decides_the_transaction_for_who_reads_committed(played: Played, commit: bool) -> None:
    await played.lead((0, 1))
    for partition in (0, 1):
        append(played, in_transaction(), partition)
    (before,) = partitions_of(ask(played, fetch_request((0, 0), isolation_level=1)))
    assert (before.last_stable_offset, before.high_watermark, len(before.records)) == (0, 1, 0)
    assert await write(played, marker(0, 1, commit=commit)) == [ErrorCode.NONE] * 2
    (after,) = partitions_of(ask(played, fetch_request((0, 0), isolation_level=1)))
    assert (after.last_stable_offset, after.high_watermark) == (2, 2)
    aborted = [(each.producer_id, each.first_offset) for each in after.aborted_transactions]
    assert aborted == ([] if commit else [(PRODUCER, 0)])
    log = played.replicas.hosted[TOPIC, 1].log
    control = log.read(1, 1000).read()
    assert read_marker(control) == (ControlType.COMMIT if commit else ControlType.ABORT, 3)


async def test_each_partition_has_its_own_error(played: Played) -> None:
    await played.lead((0,))
    await played.lead((1,), leader=2, replicas=(1, 2))
    assert await write(played, marker(0, 1, 9)) == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_a_coordinator_that_was_replaced_is_fenced(played: Played) -> None:
    await played.lead()
    append(played, in_transaction())
    assert await write(played, marker(0, coordinator_epoch=4)) == [ErrorCode.NONE]
    append(played, in_transaction(sequence=1))
    assert await write(played, marker(0, coordinator_epoch=3)) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert played.replicas.hosted[TOPIC, 0].log.last_stable_offset == 2


async def test_a_marker_of_a_newer_epoch_fences_the_producer_and_one_of_an_older_epoch_is_refused(
    played: Played,
) -> None:
    await played.lead()
    append(played, in_transaction())
    assert await write(played, marker(0, commit=False, epoch=1)) == [ErrorCode.NONE]
    refused = append(played, in_transaction(sequence=1))
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await write(played, marker(0, epoch=0)) == [ErrorCode.INVALID_PRODUCER_EPOCH]


async def test_a_marker_that_comes_late_a_second_time_does_not_end_the_next_transaction(played: Played) -> None:
    await played.lead()
    ended = marker(0, epoch=1, transaction_version=2)
    append(played, in_transaction(epoch=0))
    assert await write(played, ended) == [ErrorCode.NONE]
    assert await write(played, ended) == [ErrorCode.NONE], "nothing is open: its coordinator asks again"
    first = append(played, in_transaction(epoch=1)).base_offset
    assert await write(played, ended) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    log = played.replicas.hosted[TOPIC, 0].log
    assert log.last_stable_offset == first
    assert append(played, in_transaction(sequence=1, epoch=1)).base_offset == first + 1
    assert await write(played, marker(0, epoch=2, transaction_version=2)) == [ErrorCode.NONE]
    assert log.last_stable_offset == log.log_end_offset


async def test_where_transactions_share_an_epoch_a_marker_has_that_of_its_transaction(played: Played) -> None:
    await played.lead()
    for transaction in range(2):
        append(played, in_transaction(sequence=transaction))
        assert await write(played, marker(0, epoch=0)) == [ErrorCode.NONE]
    log = played.replicas.hosted[TOPIC, 0].log
    assert log.last_stable_offset == log.log_end_offset


async def test_a_marker_counts_when_all_in_sync_have_it(played: Played) -> None:
    await played.lead(replicas=(1, 2), isr=(1, 2))
    append(played, in_transaction())
    answer = asyncio.ensure_future(write(played, marker(0)))
    await asyncio.sleep(0.02)
    assert not answer.done()
    ask(played, fetch_request((0, 2), replica_id=2, current_leader_epoch=0))
    assert await asyncio.wait_for(answer, 20) == [ErrorCode.NONE]


async def test_too_few_in_sync_refuse_a_marker(tmp_path: Path) -> None:
    played = Played(tmp_path, min_insync_replicas=2)
    await played.lead(replicas=(1, 2), isr=(1,))
    assert await write(played, marker(0)) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert played.replicas.hosted[TOPIC, 0].log.log_end_offset == 0
    await played.close()


async def test_a_broker_that_may_lead_no_more_writes_no_markers(played: Played) -> None:
    await played.lead()
    played.replicas.is_leadership_unproven = lambda: True
    with pytest.raises(KafkaError) as refusal:
        await write(played, marker(0))
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_marker_waits_behind_the_batches_that_came_before_it(tmp_path: Path) -> None:
    played = Played(tmp_path, workers=Workers(preparing_threads=1), compression_type="zstd")
    await played.lead()
    slow = DelayedAnswer(5000, list)
    with busy(played.replicas.workers.preparing):
        played.replicas.append(TOPIC, 0, in_transaction(bytes(100_000)), 1, played.now, slow)
        answer = asyncio.ensure_future(write(played, marker(0)))
        await asyncio.sleep(0.02)
        assert not answer.done()
    assert await asyncio.wait_for(answer, 20) == [ErrorCode.NONE]
    log = played.replicas.hosted[TOPIC, 0].log
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
    await played.close()


async def test_markers_of_offsets_are_told_to_the_group_coordinator(played: Played) -> None:
    ended: list[tuple[int, int, bool]] = []
    played.services.groups = SimpleNamespace(transaction_ended=lambda *told: ended.append(told))  # type: ignore[assignment]
    await played.lead((0, 1), topic="__consumer_offsets")
    await write(played, marker(0, 5, topic="__consumer_offsets"), marker(1, commit=False, topic="__consumer_offsets"))
    assert ended == [(0, PRODUCER, True), (1, PRODUCER, False)]


async def test_offsets_are_decided_when_their_marker_counts_whatever_else_its_request_waits_for(played: Played) -> None:
    ended: list[tuple[int, int, bool]] = []
    played.services.groups = SimpleNamespace(transaction_ended=lambda *told: ended.append(told))  # type: ignore[assignment]
    await played.lead(topic="__consumer_offsets", topic_id=bytes(range(16)))
    await played.lead(replicas=(1, 2), isr=(1, 2))
    answer = asyncio.ensure_future(write(played, marker(0, topic="__consumer_offsets"), marker(0, commit=False)))
    log = played.replicas.hosted[TOPIC, 0].log
    async with asyncio.timeout(20):
        while log.log_end_offset == 0:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert ended == [(0, PRODUCER, True)], "a next transaction may begin before the other marker counts"
    assert not answer.done()
    ask(played, fetch_request((0, 1), replica_id=2, current_leader_epoch=0))
    assert await asyncio.wait_for(answer, 20) == [ErrorCode.NONE] * 2
    assert len(ended) == 1


async def test_a_reader_of_what_is_committed_waits_for_the_marker_and_counts_nothing_before_it(played: Played) -> None:
    await played.lead()
    request = fetch_request((0, 0), isolation_level=1, max_wait_ms=5_000)
    waiting: Any = fetch(played.services, played.ctx(12), request)
    append(played, in_transaction())
    append(played, in_transaction(bytes(1_000), sequence=1))
    await asyncio.sleep(0.05)
    assert not waiting.done(), "min.bytes are there, but undecided"
    assert await write(played, marker(0)) == [ErrorCode.NONE]
    (answer,) = partitions_of(await asyncio.wait_for(waiting, 20))
    assert (answer.last_stable_offset, len(answer.records) > 1_000) == (3, True)


async def test_a_follower_tells_consumers_what_was_aborted_below_its_own_high_watermark(
    played: Played, tmp_path: Path
) -> None:
    await played.lead()
    append(played, in_transaction())
    await write(played, marker(0, commit=False))
    append(played, in_transaction(sequence=1, epoch=0))
    leader = played.replicas.hosted[TOPIC, 0].log
    follower = Played(tmp_path / "follower")
    await follower.lead(leader=2, replicas=(1, 2))
    log = follower.replicas.hosted[TOPIC, 0].log
    log.append_as_follower(leader.read(0, 1 << 20).read())
    seen = []
    for high_watermark in range(4):
        log.update_high_watermark(high_watermark)
        request = fetch_request((0, 0), isolation_level=1)
        (answer,) = partitions_of(ask(follower, request))
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
        seen.append((answer.last_stable_offset, bool(answer.records), aborted))
    assert seen == [(0, False, []), (0, False, []), (2, True, [(PRODUCER, 0)]), (2, True, [(PRODUCER, 0)])]
    await follower.close()


async def test_records_of_an_open_transaction_can_be_deleted_and_the_last_stable_offset_goes_with_them(
    played: Played,
) -> None:
    await played.lead()
    for sequence in range(3):
        append(played, in_transaction(sequence=sequence))
    log = played.replicas.hosted[TOPIC, 0].log
    assert log.last_stable_offset == 0
    assert log.delete_records(2) == 2
    assert log.last_stable_offset == 2
    log.remove_expired_producers(0)
    log.remove_expired_producers(1 << 60)
    assert await write(played, marker(0, commit=False)) == [ErrorCode.NONE]
    (answer,) = partitions_of(ask(played, fetch_request((0, 2), isolation_level=1)))
    aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
    assert (answer.last_stable_offset, aborted) == (4, [(PRODUCER, 0)]), "its producer was not forgotten"


async def test_a_marker_that_is_old_in_both_ways_is_told_of_its_producers_epoch(played: Played) -> None:
    await played.lead()
    assert await write(played, marker(0, epoch=1, coordinator_epoch=4)) == [ErrorCode.NONE]
    assert await write(played, marker(0, epoch=0, coordinator_epoch=3)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
