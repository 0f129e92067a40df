from __future__ import annotations

import asyncio

import pytest

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.fetch import FetchResponse
from kbroker.replica.follower_log import follow, lacks_nothing, truncation_offset
from kbroker.replica.hosted import HostedPartition
from kbroker.segment.log_config import LogConfig
from tests.fixtures.copies import Copies, until
from tests.fixtures.data_path import Played, one_batch


async def with_epochs(played: Played, *epochs: int) -> HostedPartition:
    """A log with two records of each epoch."""
    for epoch in epochs:
        await played.lead(leader_epoch=epoch, partition_epoch=epoch)
        played.replicas.hosted["orders", 0].log.append_as_leader(one_batch(b"a", b"b"), epoch, 0)
    return played.replicas.hosted["orders", 0]


@pytest.mark.parametrize(
    ("epoch", "end_offset", "cut_at"),
    [
        (4, 3, 3),  # the leader has less of epoch 4 than we have
        (4, 9, 4),  # it has more: its records from there on come next
        (6, 5, 5),
        (5, 7, 4),  # an epoch that we do not have: to the end of the next lower one
        (1, 1, 0),  # older than all we have: from the beginning
        (9, 3, 3),  # newer than all we have
    ],
)
async def test_where_a_log_is_cut(played: Played, epoch: int, end_offset: int, cut_at: int) -> None:
    hosted = await with_epochs(played, 2, 4, 6)
    assert truncation_offset(hosted.log, epoch, end_offset) == cut_at


async def test_a_log_without_epochs_is_cut_where_the_leader_says(played: Played) -> None:
    hosted = await with_epochs(played, 2)
    hosted.log.leader_epochs.clear()
    assert truncation_offset(hosted.log, 1, 1) == 1


@pytest.mark.parametrize(("end_offset", "start", "promised"), [(7, 3, 7), (3, 3, 0), (12, 3, 10)])
async def test_a_log_that_begins_beyond_what_it_shares_with_its_leader_begins_anew_with_the_leaders(
    played: Played, end_offset: int, start: int, promised: int
) -> None:
    hosted = await with_epochs(played, 2)
    log = hosted.log
    log.truncate_fully_and_start_at(10)
    for _ in range(5):
        log.append_as_leader(one_batch(b"a"), 2, 0)
    diverging = FetchResponse.EpochEndOffset(epoch=1, end_offset=end_offset)
    answer = FetchResponse.PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        high_watermark=0,
        log_start_offset=3,
        diverging_epoch=diverging,
        aborted_transactions=None,
        records=None,
    )
    follow(hosted, answer, 0)
    assert (log.log_start_offset, log.promised_offset) == (start, promised)
    assert log.log_end_offset == log.log_start_offset == log.high_watermark


async def test_what_must_be_flushed_is_on_disk_before_the_leader_hears_of_it(copies: Copies) -> None:
    for broker in copies.brokers.values():
        broker.log_config = LogConfig(flush_messages=1)
    await copies.elect(1, is_new=True)
    assert await copies.produce(b"a") is ErrorCode.NONE
    assert [copies.hosted(broker_id).log.recovery_point for broker_id in (1, 2, 3)] == [1, 1, 1]


async def test_the_log_start_moves_with_the_leaders(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a", b"b")
    hosted = copies.hosted(1)
    hosted.log.delete_records(1)
    hosted.changed()
    await until(lambda: copies.hosted(2).log.log_start_offset == copies.hosted(3).log.log_start_offset == 1)
    await until(lambda: hosted.low_watermark({2, 3}) == 1)


async def test_a_log_lacks_nothing_while_somebody_who_changes_it_waits_for_the_disk(played: Played) -> None:
    hosted = await with_epochs(played, 2)
    hosted.log.promised_offset = 9
    with hosted.log.changing("append"):
        await asyncio.wait_for(asyncio.to_thread(lacks_nothing, hosted.log), 20)
    assert not hosted.log.is_short
