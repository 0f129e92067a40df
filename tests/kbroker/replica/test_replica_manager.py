from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.protocol.errors import ErrorCode
from kbroker.replica.replica_manager import EXPECTED_FOLLOWER_WAIT_MS, FOLLOWERS_EXPECTED_MS
from tests.controller.conftest import until
from tests.fixtures.data_path import BROKER, TOPIC, TOPIC_ID, Played
from tests.kbroker.handlers.test_fetch import append, ask, fetch_request, partitions_of


async def test_where_a_partition_is_not_found(played: Played) -> None:
    await played.lead()
    played.tell(TOPIC, TOPIC_ID, [1], leader=2)
    find = played.replicas.find
    assert find("nowhere", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert find(TOPIC, 9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert find(TOPIC, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert find(TOPIC, 0) is played.replicas.hosted[TOPIC, 0]
    assert played.replicas.leader_replica(TOPIC, 0) is played.replicas.hosted[TOPIC, 0]


async def test_a_lost_directory_takes_its_partitions_along_and_is_told_once(played: Played) -> None:
    await played.replicas.start()
    await played.lead((0, 1))
    append(played)
    waiting = ask(played, fetch_request((0, 1), max_wait_ms=5_000))
    await asyncio.get_running_loop().run_in_executor(
        None, played.logs.mark_offline, played.logs.live_dirs[0], OSError(5, "the disk is gone")
    )
    (found,) = partitions_of(await asyncio.wait_for(waiting, 20))
    assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert played.replicas.find(TOPIC, 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert played.failures == 1


async def test_the_high_watermark_survives_a_restart(tmp_path: Path) -> None:
    played = Played(tmp_path)
    await played.lead()
    append(played, 0, b"a", b"b")
    await played.replicas.shutdown()
    played.logs.shutdown()
    again = Played(tmp_path)
    await again.lead(leader_epoch=1, partition_epoch=1, is_new=False)
    assert again.replicas.hosted[TOPIC, 0].log.high_watermark == 2
    await again.close()


async def test_what_lies_in_a_log_that_is_to_be_flushed_from_now_on_is_flushed_too(played: Played) -> None:
    """After a loss of power nobody could tell that such a log lacks its beginning."""
    await played.lead()
    append(played, 0, b"a", b"b")
    hosted = played.replicas.hosted[TOPIC, 0]
    assert hosted.log.disk.flushed_to == 0
    played.replicas.apply_topic_config(TOPIC, replace(hosted.log.config, flush_messages=1))
    await until(lambda: hosted.log.disk.flushed_to == 2)


async def test_records_that_were_deleted_by_age_are_seen_by_who_waits(played: Played) -> None:
    await played.lead()
    append(played)
    session = ask(played, fetch_request((0, 1), session=(0, 0))).session_id
    hosted = played.replicas.hosted[TOPIC, 0]
    hosted.log.update_log_start_offset(1)
    await played.replicas.start()
    for _ in range(200):
        if hosted.log_start_offset == 1:
            break
        await asyncio.sleep(0.01)
    answer = ask(played, fetch_request(session=(session, 1)))
    assert [each.log_start_offset for each in partitions_of(answer)] == [1]


async def test_update_metadata_of_an_older_controller_changes_nothing(played: Played) -> None:
    played.tell(TOPIC, TOPIC_ID, [0], controller_epoch=3)
    assert played.tell(TOPIC, TOPIC_ID, [1], controller_epoch=2).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert list(played.metadata.topics[TOPIC].partitions) == [0]
    assert played.metadata.controller_id == BROKER


async def test_a_replica_that_moved_away_unnoticed_is_deleted(played: Played) -> None:
    await played.lead((0, 1), replicas=(1, 2))
    played.tell(TOPIC, TOPIC_ID, (0,), leader=2, leader_epoch=1, replicas=(2, 3), isr=(1, 2))
    await asyncio.sleep(0.05)
    assert (TOPIC, 0) in played.replicas.hosted, "it was in sync still"
    played.tell(TOPIC, TOPIC_ID, (0,), leader=2, leader_epoch=2, replicas=(2, 3), isr=(2, 3))
    await until(lambda: played.logs.get(TOPIC, 0) is None)
    assert list(played.replicas.hosted) == [(TOPIC, 1)]


async def test_a_topic_that_is_gone_is_hosted_and_named_no_more_and_keeps_its_files(played: Played) -> None:
    await played.lead()
    played.replicas.forget_topics({TOPIC})
    assert TOPIC not in played.metadata.topics
    await until(lambda: not played.replicas.hosted)
    assert played.logs.get(TOPIC, 0) is not None


async def test_a_leader_known_from_orders_is_told_before_the_metadata_name_it(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    assert played.replicas.known_leader(TOPIC, 0) == (BROKER, 0)
    metadata = played.metadata.partition(TOPIC, 0)
    await played.lead(leader=2, leader_epoch=1, replicas=(1, 2), partition_epoch=1)
    assert metadata is not None
    played.metadata.topics[TOPIC].partitions[0] = metadata
    assert played.replicas.known_leader(TOPIC, 0) == (2, 1)
    played.tell(TOPIC, TOPIC_ID, [0], leader=3, leader_epoch=2, replicas=(1, 2, 3))
    assert played.replicas.known_leader(TOPIC, 0) == (3, 2)
    assert played.replicas.known_leader("nowhere", 0) is None


async def test_a_broker_that_stood_still_hears_its_followers_before_it_judges_them(played: Played) -> None:
    proposed: list[Any] = []
    played.replicas.replication = SimpleNamespace(
        carry_out=lambda hosted, instruction: proposed.append(instruction), release=_nothing, close=_nothing
    )
    await played.lead(replicas=(1, 2))
    append(played)
    played.now += 100_000
    due_s = asyncio.get_running_loop().time()
    played.replicas._check_isr(due_s - 60)
    assert proposed == []
    played.replicas._check_isr(due_s)
    assert [each.isr for each in proposed] == [(1,)]


async def test_a_loop_that_is_always_late_puts_off_its_judgement_of_followers_once(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.replica.replica_manager.STOOD_STILL_PAUSE_S", 0.01)
    proposed: list[Any] = []
    played.replicas.replication = SimpleNamespace(
        carry_out=lambda hosted, instruction: proposed.append(instruction), release=_nothing, close=_nothing
    )
    await played.lead(replicas=(1, 2))
    append(played)
    played.now += 100_000
    # So late that whenever this check looks at the clock again, it is late again.
    played.config = played.replicas.config = replace(played.config, replica_lag_time_max_ms=-1)
    played.replicas._check_isr(asyncio.get_running_loop().time() - 60)
    async with asyncio.timeout(20):
        while not proposed:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    assert proposed[0].isr == (1,)


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
async def test_a_clock_that_is_set_says_nothing_about_who_is_in_sync(played: Played, ahead_ms: int) -> None:
    proposed: list[Any] = []
    played.replicas.replication = SimpleNamespace(
        carry_out=lambda hosted, instruction: proposed.append(instruction), release=_nothing, close=_nothing
    )
    await played.lead(replicas=(1, 2))
    append(played)
    ask(played, fetch_request((0, 1), replica_id=2))
    append(played)
    played.ahead_ms = ahead_ms
    played.replicas._check_isr(asyncio.get_running_loop().time())
    assert proposed == [], "it has been heard of a moment ago"
    played.now += played.config.replica_lag_time_max_ms + 1
    played.replicas._check_isr(asyncio.get_running_loop().time())
    assert [each.isr for each in proposed] == [(1,)]


async def test_followers_that_wait_come_back_for_what_the_broker_leads_besides(played: Played) -> None:
    await played.lead((0,), replicas=(1, 2))
    waiting = ask(played, fetch_request((0, 0), max_wait_ms=60_000, replica_id=2))
    consumer = ask(played, fetch_request((0, 0), max_wait_ms=60_000))
    await played.lead((0, 1), leader_epoch=1, replicas=(1, 2), partition_epoch=1)
    async with asyncio.timeout(20):
        assert (await waiting).error_code is ErrorCode.NONE
        await ask(played, fetch_request((0, 0), (1, 0), max_wait_ms=60_000, replica_id=2))
    played.now += FOLLOWERS_EXPECTED_MS
    patient = ask(played, fetch_request((0, 0), (1, 0), max_wait_ms=60_000, replica_id=2))
    await asyncio.sleep(10 * EXPECTED_FOLLOWER_WAIT_MS / 1000)
    assert not patient.done()
    assert not consumer.done()
    for each in (patient, consumer):
        each.cancel()


async def _nothing(*arguments: Any) -> None:
    return None


async def test_a_directory_that_hangs_keeps_no_other_from_its_chores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(tmp_path, more_dirs=["more"])
    quick, hangs = played.logs.directories
    goes_on, done = threading.Event(), []

    def run_due(steady_ms: int, log_dir: str) -> int:
        if log_dir == hangs:
            assert goes_on.wait(20)
        done.append(log_dir)
        return steady_ms

    monkeypatch.setattr(played.logs, "run_due", run_due)
    await played.replicas.start()
    await until(lambda: len(done) >= 2)
    assert set(done) == {quick}
    goes_on.set()
    await until(lambda: hangs in done)
    await played.replicas.shutdown()
    await played.close()
