from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.fetch import FetchResponse
from kbroker.replica.fetcher import Answered
from kbroker.replica.partition import Role
from kbroker.replica.replication import Replication
from kbroker.replica.workers import FOLLOWING_THREADS
from tests.fixtures.copies import Copies, until
from tests.fixtures.data_path import TOPIC, one_batch


async def test_an_acknowledged_record_is_on_every_replica(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    assert await copies.produce(b"a", b"b") is ErrorCode.NONE
    assert [copies.hosted(broker_id).log.log_end_offset for broker_id in (1, 2, 3)] == [2, 2, 2]
    await copies.until_equal()


async def test_the_new_leader_goes_on_where_the_old_one_ended(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    await copies.elect(2)
    assert await copies.produce(b"b") is ErrorCode.NONE
    await copies.until_equal()
    assert [copies.hosted(each).log.leader_epochs.entries for each in (1, 2, 3)] == [((0, 0), (1, 1))] * 3


async def test_what_the_old_leader_had_alone_is_cut_off(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a", b"b")
    await copies.elect(2)
    await copies.produce(b"c")
    await copies.stop(1)
    old = copies.start(1)
    log = old.logs.get(TOPIC, 0)
    assert log is not None
    log.append_as_leader(one_batch(*(b"alone",) * 9), 1, 0)
    await copies.elect(3, isr=(2, 3))
    assert await copies.produce(b"d") is ErrorCode.NONE
    await copies.until_equal()
    assert b"alone" not in copies.content(1)


async def test_a_log_far_behind_its_leaders_begins_anew(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    await copies.stop(3)
    for _ in range(3):
        await copies.produce(b"x", acks=1)
    await until(lambda: copies.hosted(2).log.log_end_offset == 4)
    copies.hosted(1).log.update_log_start_offset(3)
    copies.start(3)
    await copies.elect(1, isr=(1, 2))
    await until(lambda: copies.hosted(3).log.log_end_offset == 4)
    assert copies.hosted(3).log.log_start_offset == 3
    await until(lambda: sorted(copies.hosted(1).state.isr) == [1, 2, 3])


async def test_a_log_longer_than_that_of_an_uncleanly_elected_leader_is_cut(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.stop(3)
    copies.isr = (1, 2)
    await copies.produce(b"a", b"b", acks=1)
    await until(lambda: copies.hosted(2).log.log_end_offset == 2)
    await copies.stop(1)
    copies.start(3)
    await copies.elect(3, isr=(3,))
    assert await copies.produce(b"c") is ErrorCode.NONE
    await copies.until_equal()
    assert copies.hosted(2).log.log_end_offset == 1


async def test_a_partition_that_becomes_leader_is_fetched_no_more(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.elect(2)
    assert copies.hosted(2).state.role is Role.LEADER
    replication = copies.brokers[2].replicas.replication
    assert copies.hosted(2) not in replication._fetched  # type: ignore[union-attr]


async def test_a_partition_taken_away_is_fetched_no_more(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    follower = copies.brokers[2].replicas
    hosted = copies.hosted(2)
    async with follower.quiet([(TOPIC, 0)]):
        follower.drop((TOPIC, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await copies.produce(b"a", acks=1)
    await until(lambda: copies.hosted(3).log.log_end_offset == 1)
    assert hosted.log.log_end_offset == 0


async def test_many_partitions_share_the_connections(copies: Copies) -> None:
    partitions = range(20)
    for broker in copies.brokers.values():
        broker.config.num_replica_fetchers = 2
    await copies.elect(1, partitions=partitions, is_new=True)
    answers = await asyncio.gather(*(copies.produce(b"x", partition=each) for each in partitions))
    assert set(answers) == {ErrorCode.NONE}
    assert len(copies.brokers[2].replicas.replication._fetchers) == 2  # type: ignore[union-attr]
    for partition in partitions:
        await copies.until_equal(partition)


async def test_a_changed_number_of_connections_is_taken_over(copies: Copies) -> None:
    partitions = range(20)
    await copies.elect(1, partitions=partitions, is_new=True)
    replicas = copies.brokers[2].replicas
    assert replicas.replication is not None
    replicas.config.num_replica_fetchers = 3
    await replicas.replication.redistribute()
    assert len(replicas.replication._fetchers) == 3  # type: ignore[attr-defined]
    answers = await asyncio.gather(*(copies.produce(b"x", partition=each) for each in partitions))
    assert set(answers) == {ErrorCode.NONE}
    for partition in partitions:
        await copies.until_equal(partition)


async def test_a_new_leader_waits_for_what_a_thread_still_appends_of_the_former(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    go_on = threading.Event()
    hosted = copies.hosted(3)
    pool = copies.brokers[3].replicas.workers.following(hosted.log.log_dir)
    busy = [pool.submit(go_on.wait, 60) for _ in range(FOLLOWING_THREADS)]
    try:
        await copies.produce(bytes(300_000), acks=1)
        await asyncio.sleep(0.2)
        assert hosted.log.log_end_offset == 1
        electing = asyncio.ensure_future(copies.elect(3))
        await asyncio.sleep(0.2)
        assert not electing.done()
    finally:
        go_on.set()
    assert all(each.result(60) for each in busy)
    await asyncio.wait_for(electing, 60)
    assert hosted.log.log_end_offset == 2
    assert hosted.state.leader_epoch_start_offset == 2
    await copies.produce(b"b")
    await copies.until_equal()


async def test_who_changes_its_role_does_not_wait_for_the_other_disks_of_an_answer(tmp_path: Path) -> None:
    copies = Copies(tmp_path)
    copies.start(1)
    replicas = copies.start(3, more_dirs=("other",)).replicas
    for partition, name in enumerate(("logs", "other")):
        replicas.logs.prefer(TOPIC, partition, str(tmp_path / "broker-3" / name))
    await copies.elect(1, partitions=(0, 1), is_new=True)
    hangs, elsewhere = copies.hosted(3, 0), copies.hosted(3, 1)
    replication = replicas.replication
    assert isinstance(replication, Replication)
    fetched = [replication._fetched[each] for each in (hangs, elsewhere)]
    go_on = threading.Event()
    pool = replicas.workers.following(hangs.log.log_dir)
    busy = [pool.submit(go_on.wait, 60) for _ in range(FOLLOWING_THREADS)]
    nothing = FetchResponse.PartitionData(
        partition_index=0, error_code=ErrorCode.NONE, high_watermark=0, aborted_transactions=None, records=None
    )
    answers = [Answered(each, nothing) for _, each in fetched]
    following = asyncio.ensure_future(fetched[0][0]._follow_in_threads(answers))
    try:
        await asyncio.sleep(0)
        await asyncio.wait_for(replication.release([elsewhere]), 10)
        change = asyncio.ensure_future(replication.release([hangs]))
        await asyncio.sleep(0)
        assert not change.done()
    finally:
        go_on.set()
    await asyncio.wait_for(change, 20)
    assert (await following, [each.result(60) for each in busy]) == ([None, None], [True] * len(busy))
    for broker_id in (1, 3):
        await copies.stop(broker_id)
