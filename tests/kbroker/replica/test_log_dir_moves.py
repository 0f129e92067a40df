"""Replicas that move between log directories, with the broker's data path around them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import pytest

from kbroker.config.broker_config import BrokerConfig
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.replication import StopReplicaRequest
from kbroker.replica import log_dir_moves
from kbroker.replica.delayed import DelayedAnswer
from kbroker.replica.log_dir_states import log_dir_states
from kbroker.segment.files import Files
from kbroker.segment.log import AppendResult
from kbroker.segment.log_move import copy_portion
from tests.fixtures.data_path import TOPIC, TOPIC_ID, Played, one_batch
from tests.kbroker.handlers.test_fetch import append, ask, fetch_request, partitions_of
from tests.kbroker.handlers.test_produce import request_for, send
from tests.kbroker.network.serving import until

MOVE_S = 20.0


class Moving(Played):
    """A broker with directories `logs` and `other`; partition 0 lies in the first."""

    def __init__(self, folder: Path, **topic_config: Any) -> None:
        super().__init__(folder, more_dirs=("other",), **topic_config)
        self.first, self.other = str(folder / "logs"), str(folder / "other")

    async def begin(self, batches: int = 5) -> Moving:
        self.logs.prefer(TOPIC, 0, self.first)
        await self.lead()
        for number in range(batches):
            append(self, 0, b"%d" % number)
        return self

    async def append(self, value: bytes) -> None:
        """It may come just when the copy takes the log's place, and waits for that."""
        (answer,) = await send(self, request_for((0, one_batch(value)), acks=1))
        assert answer.error_code is ErrorCode.NONE

    def dirs(self) -> list[tuple[str, bool, int]]:
        """Directory, is it a copy, lag: of partition 0."""
        states: Any = drained(log_dir_states(self.replicas, self.logs.describe(), {TOPIC: {0}}))
        return [(Path(state.path).name, is_future, lag) for state in states for *_, lag, is_future in state.replicas]

    async def alter(self, log_dir: str, partition: int = 0, topic: str = TOPIC) -> ErrorCode:
        return await self.replicas.alter_log_dir(topic, partition, log_dir)

    async def until_moved(self, log_dir: str) -> None:
        there = [(Path(log_dir).name, False, 0)]
        await until(lambda: self.logs.future(TOPIC, 0) is None and self.dirs() == there, MOVE_S)

    def read(self, offset: int = 0) -> int:
        """Bytes of a Fetch."""
        (found,) = partitions_of(ask(self, fetch_request((0, offset))))
        assert found.error_code is ErrorCode.NONE
        return len(found.records)


def drained(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.fixture
async def moving(tmp_path: Path) -> AsyncIterator[Moving]:
    broker = Moving(tmp_path)
    yield await broker.begin()
    await broker.close()


def hold_back(broker: Moving) -> None:
    """Let nothing more be copied."""
    broker.replicas.config = BrokerConfig(replica_alter_log_dirs_io_max_bytes_per_second=0)
    broker.replicas.log_dirs_throttle.record(1 << 40, broker.now)


def let_go(broker: Moving) -> None:
    broker.replicas.config = BrokerConfig()


async def test_a_replica_serves_before_while_and_after_it_moves(moving: Moving) -> None:
    size = moving.read()
    assert await moving.alter(moving.other) is ErrorCode.NONE
    await moving.append(b"meanwhile")
    await moving.until_moved(moving.other)
    assert moving.read() > size
    await moving.append(b"afterwards")
    assert moving.read(6) > 0
    assert (Path(moving.other) / f"{TOPIC}-0").is_dir()
    assert await moving.alter(moving.first) is ErrorCode.NONE
    await moving.until_moved(moving.first)
    await moving.append(b"at last")
    assert moving.read(7) > 0


async def test_each_mistake_has_its_error(moving: Moving) -> None:
    assert await moving.alter("/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert await moving.alter(moving.other, topic="x" * 230) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await moving.alter(moving.other, partition=7) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert await moving.alter(moving.first) is ErrorCode.NONE, "it is there"
    moving.logs.mark_offline(moving.other, OSError(5, "I/O error"))
    assert await moving.alter(moving.other) is ErrorCode.KAFKA_STORAGE_ERROR
    moving.logs.mark_offline(moving.first, OSError(5, "I/O error"))
    assert await moving.alter(moving.first) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_replica_that_comes_later_is_made_where_it_was_asked_for(moving: Moving) -> None:
    moving.tell(TOPIC, TOPIC_ID, range(4), leader=2, replicas=(2,))
    for partition, log_dir in ((1, moving.first), (2, moving.first), (3, moving.other)):
        assert await moving.alter(log_dir, partition) is ErrorCode.REPLICA_NOT_AVAILABLE
    await moving.lead((1, 2, 3), leader_epoch=1)
    found = [moving.logs.get(TOPIC, partition) for partition in (1, 2, 3)]
    assert [each.log_dir for each in found if each is not None] == [moving.first, moving.first, moving.other]


async def test_where_replicas_should_be_is_remembered_only_of_partitions_there_are(moving: Moving) -> None:
    for partition in range(100, 200):
        assert await moving.alter(moving.other, partition) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert not moving.logs._preferred_dirs


async def test_the_lag_of_a_copy_is_shown_and_the_rate_holds_it_back(moving: Moving) -> None:
    hold_back(moving)
    assert await moving.alter(moving.other) is ErrorCode.NONE
    assert moving.dirs() == [("logs", False, 0), ("other", True, 5)]
    let_go(moving)
    await moving.until_moved(moving.other)


async def test_another_order_replaces_the_first_and_the_present_directory_ends_it(moving: Moving) -> None:
    hold_back(moving)
    await moving.alter(moving.other)
    assert await moving.alter(moving.other) is ErrorCode.NONE
    assert await moving.alter(moving.first) is ErrorCode.NONE
    assert moving.dirs() == [("logs", False, 0)]
    let_go(moving)
    assert await moving.alter(moving.other) is ErrorCode.NONE
    await moving.until_moved(moving.other)


async def test_a_stopped_replica_keeps_its_copy_and_goes_on_when_it_is_back(moving: Moving) -> None:
    hold_back(moving)
    await moving.alter(moving.other)
    moving.replicas.drop((TOPIC, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert moving.dirs() == [("logs", False, -1), ("other", True, -1)]
    let_go(moving)
    await moving.lead(leader_epoch=1, partition_epoch=1)
    await moving.until_moved(moving.other)


async def test_a_move_goes_on_after_a_restart(tmp_path: Path) -> None:
    broker = await Moving(tmp_path).begin()
    hold_back(broker)
    await broker.alter(broker.other)
    await broker.replicas.shutdown()
    broker.logs.shutdown()
    broker = Moving(tmp_path)
    assert broker.dirs() == [("logs", False, -1), ("other", True, -1)]
    await broker.lead(leader_epoch=1, partition_epoch=1, is_new=False)
    await broker.until_moved(broker.other)
    assert broker.read() > 0
    await broker.close()


async def test_a_deleted_partition_ends_its_move(moving: Moving) -> None:
    hold_back(moving)
    await moving.alter(moving.other)
    state = StopReplicaRequest.StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
    await moving.replicas.stop_replicas(
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=1,
            broker_epoch=7,
            topic_states=[StopReplicaRequest.StopReplicaTopicState(topic_name=TOPIC, partition_states=[state])],
        )
    )
    assert (moving.logs.future(TOPIC, 0), moving.dirs()) == (None, [])


async def test_a_copy_in_the_directory_of_its_log_is_dropped(moving: Moving) -> None:
    hold_back(moving)
    await moving.alter(moving.other)
    future = moving.logs.future(TOPIC, 0)
    assert future is not None
    moving.replicas.drop((TOPIC, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    future.rename_folder(f"{moving.first}/{future.directory.name}")
    moving.logs.table._counts[moving.other] -= 1
    moving.logs.table._counts[moving.first] += 1
    await moving.lead(leader_epoch=1, partition_epoch=1)
    await moving.until_moved(moving.first)
    await until(lambda: future.failure == "it is closed", MOVE_S)


async def test_a_copy_of_an_earlier_topic_of_that_name_is_dropped(moving: Moving) -> None:
    hold_back(moving)
    await moving.alter(moving.other)
    future = moving.logs.future(TOPIC, 0)
    assert future is not None
    moving.replicas.drop((TOPIC, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    future.topic_id = bytes(15) + b"x"
    await moving.lead(leader_epoch=1, partition_epoch=1)
    await moving.until_moved(moving.first)
    await until(lambda: future.failure == "it is closed", MOVE_S)


async def test_a_destination_that_fails_ends_the_move_and_the_replica_serves_on(moving: Moving) -> None:
    hold_back(moving)
    await moving.alter(moving.other)
    moving.logs.mark_offline(moving.other, OSError(5, "I/O error"))
    let_go(moving)
    await until(lambda: not moving.replicas._moves._moves, MOVE_S)
    await moving.append(b"at last")
    assert moving.read(5) > 0
    assert moving.dirs() == [("logs", False, 0)]


async def test_acks_that_wait_for_a_flush_are_given_across_the_move(tmp_path: Path) -> None:
    broker = await Moving(tmp_path, flush_messages=1).begin(0)
    assert await broker.alter(broker.other) is ErrorCode.NONE
    answers: list[Any] = []
    async with asyncio.timeout(MOVE_S):
        while broker.dirs() != [("other", False, 0)] or len(answers) < 50:
            answers += await send(broker, request_for((0, one_batch(b"x")), acks=1))
    assert [each.error_code for each in answers] == [ErrorCode.NONE] * len(answers)
    assert [each.base_offset for each in answers] == list(range(len(answers)))
    await broker.close()


async def test_a_copy_that_cannot_be_read_is_tried_again(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = copy_portion, [ErrorCode.CORRUPT_MESSAGE]
    moving.replicas.config = BrokerConfig(replica_fetch_backoff_ms=1)

    def fail_once(*arguments: Any) -> int:
        if failures:
            raise KafkaError(failures.pop(), "a damaged batch")
        return real(*arguments)

    monkeypatch.setattr(log_dir_moves, "copy_portion", fail_once)
    await moving.alter(moving.other)
    await moving.until_moved(moving.other)
    assert not failures


class SlowToName(Files):
    """A disk that takes its time to let a copy take its log's place."""

    __slots__ = ("goes_on", "is_asked")

    def __init__(self) -> None:
        self.is_asked, self.goes_on = threading.Event(), threading.Event()

    def rename(self, source: str, target: str) -> None:
        if source.endswith("-future"):
            self.is_asked.set()
            assert self.goes_on.wait(20)
        super().rename(source, target)


async def test_the_loop_does_not_wait_for_the_disk_that_a_replica_is_moved_to(tmp_path: Path) -> None:
    files = SlowToName()
    moving = await Moving(tmp_path, files=files).begin()
    log = moving.replicas.hosted[TOPIC, 0].log
    assert await moving.alter(moving.other) is ErrorCode.NONE
    await until(files.is_asked.is_set)
    answers = [DelayedAnswer(60_000, list) for _ in range(2)]
    for answer in answers:
        moving.replicas.append(TOPIC, 0, one_batch(), -1, 0, answer)
    assert (log.log_end_offset, log.log_dir) == (5, moving.first)
    files.goes_on.set()
    results = [(await asyncio.wait_for(answer.future, 20))[0] for answer in answers if answer.future is not None]
    assert [(type(result), result.base_offset) for result in results] == [(AppendResult, 5), (AppendResult, 6)]
    await moving.until_moved(moving.other)
    assert (log.log_end_offset, moving.replicas.hosted[TOPIC, 0].tail) == (7, None)
    await moving.close()


class SlowToSync(Files):
    """A disk that takes its time to sync batches in one directory, time after time."""

    __slots__ = ("goes_on", "log_dir", "syncs")

    def __init__(self, log_dir: str) -> None:
        self.log_dir, self.syncs, self.goes_on = log_dir, 0, threading.Semaphore(0)

    def sync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith(self.log_dir) and path.endswith(".log"):
            self.syncs += 1
            assert self.goes_on.acquire(timeout=20)
        super().sync(descriptor)


async def test_appends_do_not_wait_while_a_copy_is_flushed_before_and_after_it_takes_the_logs_place(
    tmp_path: Path,
) -> None:
    files = SlowToSync(str(tmp_path / "other"))
    moving = await Moving(tmp_path, files=files).begin()
    hosted = moving.replicas.hosted[TOPIC, 0]
    assert await moving.alter(moving.other) is ErrorCode.NONE
    seen = []
    for number in (1, 2):
        await until(lambda number=number: files.syncs == number)  # type: ignore[misc]
        answer = DelayedAnswer(60_000, list)
        moving.replicas.append(TOPIC, 0, one_batch(), 1, 0, answer)
        seen.append((answer.future, hosted.log.log_dir, hosted.log.log_end_offset))
        files.goes_on.release()
    assert seen == [(None, moving.first, 6), (None, moving.other, 7)]
    await moving.until_moved(moving.other)
    await moving.close()


async def behind_an_append(moving: Moving) -> asyncio.Future[None]:
    """Begin a move whose end waits for its turn, until what this returns is done."""
    hosted = moving.replicas.hosted[TOPIC, 0]
    append = hosted.tail = asyncio.get_running_loop().create_future()
    assert await moving.alter(moving.other) is ErrorCode.NONE
    await until(lambda: hosted.tail is not append)
    return append


async def test_a_move_that_is_stopped_before_its_turn_has_come_leaves_the_log_where_it_is(moving: Moving) -> None:
    append, hosted = await behind_an_append(moving), moving.replicas.hosted[TOPIC, 0]
    moving.replicas._moves.stop((TOPIC, 0))
    append.set_result(None)
    await until(lambda: hosted.tail is None and not moving.replicas._moves._stopped, MOVE_S)
    assert (hosted.log.log_dir, moving.dirs()) == (moving.first, [("logs", False, 0), ("other", True, 0)])


async def test_a_move_that_is_taken_up_again_waits_for_the_end_of_the_one_that_was_stopped(
    moving: Moving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", log_dir_moves.log.name)
    append = await behind_an_append(moving)
    moving.replicas.drop((TOPIC, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await moving.lead(leader_epoch=1, partition_epoch=1)
    for _ in range(10):
        await asyncio.sleep(0)
    begun = caplog.text.count(": moving from")
    append.set_result(None)
    assert begun == 1
    await moving.until_moved(moving.other)
    assert caplog.text.count(": moving from") == 2
