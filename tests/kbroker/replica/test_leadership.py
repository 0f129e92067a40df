from __future__ import annotations

import asyncio
import errno
import threading
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.replica.delayed import DelayedAnswer
from kbroker.replica.leadership import PORTION
from kbroker.replica.partition import Role
from kbroker.replica.replication import Replication
from kbroker.replica.workers import Workers
from kbroker.segment.files import Files
from tests.fixtures.data_path import TOPIC, TOPIC_ID, Played, one_batch


def errors_of(answer: object) -> list[int]:
    return [each.error_code for topic in answer.topics for each in topic.partition_errors]  # type: ignore[attr-defined]


def leader_count(played: Played) -> int:
    return sum(hosted.state.is_leader for hosted in played.replicas.hosted.values())


async def test_a_new_partition_gets_a_log_and_a_leader(played: Played) -> None:
    answer = await played.lead((0, 1))
    assert [topic.topic_id for topic in answer.topics] == [TOPIC_ID]
    assert errors_of(answer) == [0, 0]
    assert leader_count(played) == 2
    assert played.changes == [([(TOPIC, 0), (TOPIC, 1)], [])]
    log = played.logs.get(TOPIC, 0)
    assert log is not None
    assert (log.topic_id, log.latest_epoch) == (TOPIC_ID, 0)


@pytest.mark.parametrize(("is_new", "leader", "told"), [(False, 1, True), (True, 1, False), (False, 2, False)])
async def test_a_leader_whose_log_is_gone_says_that_it_begins_empty(
    played: Played, caplog: pytest.LogCaptureFixture, is_new: bool, leader: int, told: bool
) -> None:
    await played.lead((0, 1), leader=leader, replicas=(1, 2), is_new=is_new)
    assert (f"2 partitions that had no log here and so begin empty ({TOPIC}-0, {TOPIC}-1)" in caplog.text) == told
    caplog.clear()
    await played.lead((0, 1), leader=1, replicas=(1, 2), leader_epoch=1, partition_epoch=1, is_new=False)
    assert "begin empty" not in caplog.text


async def test_an_order_that_fails_halfway_is_told_of_as_far_as_it_was_carried_out(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.replica.leadership.PORTION", 1)
    quiet, changed = played.replicas.quiet, []

    def fails_at_the_second(keys: Any) -> Any:
        changed.append(list(keys))
        if len(changed) == 2:
            raise RuntimeError("can't start new thread")
        return quiet(changed[-1])

    monkeypatch.setattr(played.replicas, "quiet", fails_at_the_second)
    with pytest.raises(RuntimeError, match="new thread"):
        await played.lead((0, 1))
    assert played.changes == [([(TOPIC, 0)], [])]


async def test_a_topics_change_reaches_a_log_that_is_being_made(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = played.logs.create

    def created_late(*arguments: Any) -> Any:
        """The change comes when its configuration was read, and the log is not in the table."""
        if played.log_config.retention_ms != 7:
            played.log_config = replace(played.log_config, retention_ms=7)
            played.replicas.apply_topic_config(TOPIC, played.log_config)
        return create(*arguments)

    monkeypatch.setattr(played.logs, "create", created_late)
    await played.lead()
    log = played.logs.get(TOPIC, 0)
    assert log is not None
    assert log.config.retention_ms == 7


async def test_a_log_of_an_earlier_life_on_a_slow_disk_keeps_no_others_from_their_leaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(tmp_path, ["other"])
    slow, quick = (played.logs.create(TOPIC, each, TOPIC_ID, played.log_config) for each in (0, 1))
    assert slow.log_dir != quick.log_dir
    slow.disk.pool.pace.signs[slow] = float("-inf")
    create, may_go_on, quick_leads = played.logs.create, threading.Event(), asyncio.Event()

    def hangs(topic: str, partition: int, *arguments: Any) -> Any:
        assert partition or may_go_on.wait(60)
        return create(topic, partition, *arguments)

    def hosted(topic: str, partition: int, *arguments: Any) -> Any:
        if partition:
            quick_leads.set()
        return host(topic, partition, *arguments)

    host = played.replicas.host
    monkeypatch.setattr(played.logs, "create", hangs)
    monkeypatch.setattr(played.replicas, "host", hosted)
    ordered = asyncio.ensure_future(played.lead((0, 1), is_new=False))
    try:
        async with asyncio.timeout(30):
            await quick_leads.wait()
        assert (TOPIC, 0) not in played.replicas.hosted
    finally:
        may_go_on.set()
        assert errors_of(await ordered) == [0, 0]
        await played.close()


async def test_orders_of_no_newer_epoch_are_refused_per_partition(played: Played) -> None:
    await played.lead(leader_epoch=4)
    assert errors_of(await played.lead(leader_epoch=4)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert errors_of(await played.lead(leader_epoch=3)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert errors_of(await played.lead(leader_epoch=5, partition_epoch=1)) == [0]


async def test_another_topic_id_is_refused(played: Played) -> None:
    await played.lead()
    answer = await played.lead(leader_epoch=1, topic_id=b"x" * 16)
    assert errors_of(answer) == [ErrorCode.INCONSISTENT_TOPIC_ID]


@pytest.mark.parametrize(("topic", "partition"), [("t" * 250, 0), ("../t", 0), ("", 0), (TOPIC, -1)])
async def test_what_no_folder_can_be_called_costs_no_directory(played: Played, topic: str, partition: int) -> None:
    answer = await played.lead([partition], topic)
    assert errors_of(answer) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert len(played.logs.live_dirs) == 1
    assert errors_of(await played.lead()) == [0]


async def test_a_topic_id_that_comes_later_is_stored(played: Played) -> None:
    await played.lead(topic_id=ZERO_UUID)
    assert errors_of(await played.lead(topic_id=TOPIC_ID)) == [0]
    log = played.logs.get(TOPIC, 0)
    assert log is not None
    assert log.topic_id == TOPIC_ID


async def test_a_broker_that_is_no_replica_refuses(played: Played) -> None:
    answer = await played.lead(leader=2, replicas=(2, 3))
    assert errors_of(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_leader_becomes_a_follower(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    await played.lead(leader=2, replicas=(1, 2), leader_epoch=1, partition_epoch=1)
    assert played.replicas.hosted[TOPIC, 0].state.role is Role.FOLLOWER
    assert played.changes[-1] == ([], [(TOPIC, 0)])


async def test_no_empty_log_replaces_one_that_may_be_offline(tmp_path: Path) -> None:
    played = Played(tmp_path)
    played.logs.mark_offline(played.logs.live_dirs[0], OSError(5, "no disk"))
    assert errors_of(await played.lead(is_new=False)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    await played.close()


class CannotCut(Files):
    """The first file that is to be cut short cannot be."""

    def __init__(self) -> None:
        self.is_broken = True

    def truncate(self, descriptor: int, size: int) -> None:
        if self.is_broken:
            self.is_broken = False
            raise OSError(errno.EIO, "no disk")
        Files.truncate(descriptor, size)


async def nobody_asks(request: Any) -> Any:
    raise AssertionError(request)


async def test_a_disk_that_fails_during_an_order_takes_its_own_partitions_only(tmp_path: Path) -> None:
    played = Played(tmp_path, more_dirs=["other"], files=CannotCut())
    played.replicas.replication = Replication(played.replicas, nobody_asks)
    await played.replicas.start()
    for partition, name in ((0, "logs"), (1, "other")):
        log = played.logs.create(TOPIC, partition, TOPIC_ID, log_dir=str(tmp_path / name))
        log.append_as_follower(one_batch())  # no leader has given it an epoch: it is cut back to what is committed
    answer = await played.lead((0, 1), leader=2, replicas=(1, 2), is_new=False)
    assert errors_of(answer) == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    await asyncio.sleep(0.05)
    assert [key for key, hosted in played.replicas.hosted.items() if hosted.state.role is Role.FOLLOWER] == [(TOPIC, 1)]
    assert played.failures == 1
    await played.close()


async def test_what_a_crash_left_unflushed_is_on_disk_before_it_counts_where_that_is_asked_for(tmp_path: Path) -> None:
    played = Played(tmp_path, flush_messages=1)
    played.logs.create(TOPIC, 0, TOPIC_ID).append_as_leader(one_batch(), 0, 1)
    await played.close()
    played = Played(tmp_path, flush_messages=1)
    assert errors_of(await played.lead(is_new=False)) == [0]
    log = played.replicas.hosted[TOPIC, 0].log
    assert (log.high_watermark, log.recovery_point) == (1, 1)
    await played.close()


class Held(Executor):
    """A worker that is busy with something else until it is let go."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Any, Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        self.jobs.append((done, fn, args))
        return done

    def let_go(self) -> None:
        for done, fn, args in self.jobs:
            done.set_result(fn(*args))
        self.jobs.clear()


async def test_what_a_leader_has_not_flushed_yet_counts_no_sooner_in_its_next_epoch(tmp_path: Path) -> None:
    workers, held = Workers(), Held()
    workers.flushing = lambda _: held  # type: ignore[assignment, method-assign]
    played = Played(tmp_path, workers=workers, flush_messages=1)
    await played.lead()
    hosted = played.replicas.hosted[TOPIC, 0]
    answer = DelayedAnswer(60_000, list)
    played.replicas.append(TOPIC, 0, one_batch(), -1, 0, answer)
    await played.lead(leader_epoch=1, partition_epoch=1, is_new=False)
    assert (hosted.log.log_end_offset, hosted.log.high_watermark, hosted.state.leader_epoch_start_offset) == (1, 0, 1)
    assert answer.future is not None
    await asyncio.sleep(0)
    assert not answer.future.done()
    while not answer.future.done():
        held.let_go()
        await asyncio.sleep(0)
    assert (hosted.log.disk.flushed_to, hosted.log.high_watermark) == (1, 1)
    await played.close()


@pytest.mark.slow
async def test_the_loop_goes_on_while_a_thousand_logs_are_made(played: Played) -> None:
    turns = 0
    done = asyncio.Event()

    async def watch() -> None:
        nonlocal turns
        while not done.is_set():
            await asyncio.sleep(0)
            turns += 1

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    before = turns
    await played.lead(range(1000))
    others = turns - before
    done.set()
    await watching
    assert leader_count(played) == 1000
    assert others > 10


async def test_a_large_order_gives_others_their_turn(played: Played) -> None:
    turns = 0

    async def beat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    assert errors_of(await played.lead(range(1_000), leader=2, replicas=(2, 3))) == [3] * 1_000
    beating.cancel()
    assert turns >= 1_000 // PORTION
