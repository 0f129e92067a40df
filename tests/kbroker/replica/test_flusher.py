from __future__ import annotations

import asyncio
import threading
from typing import Any

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.replica.flusher import Flusher


class Log:
    def __init__(self) -> None:
        self.thread = 0
        self.log_end_offset = 1
        self.flushes = 0
        self.go = threading.Event()
        self.go.set()
        self.error: KafkaError | None = None

    def flush(self) -> None:
        assert self.go.wait(5)
        self.thread = threading.get_ident()
        self.flushes += 1
        if self.error:
            raise self.error


class Hosted:
    def __init__(self) -> None:
        self.log = Log()


def flusher() -> tuple[Any, list[Any], list[Any]]:
    done: list[Any] = []
    failed: list[Any] = []
    return (
        Flusher(
            None, lambda hosted, end: done.append((hosted, end)), lambda hosted, e: failed.append((hosted, e.code))
        ),
        done,
        failed,
    )


async def test_all_who_wait_at_that_moment_share_one_flush() -> None:
    shared, done, _ = flusher()
    first, second = Hosted(), Hosted()
    for _ in range(10):
        shared.add(first)
        shared.add(second)
    first.log.log_end_offset = 9
    await asyncio.wait_for(shared.finish(), 5)
    assert sorted(end for _, end in done) == [1, 9]
    assert (first.log.flushes, second.log.flushes, shared.rounds) == (1, 1, 1)


async def test_what_comes_during_a_round_waits_for_the_next() -> None:
    shared, done, _ = flusher()
    hosted = Hosted()
    hosted.log.go.clear()
    shared.add(hosted)
    await asyncio.sleep(0.02)
    hosted.log.log_end_offset = 5
    shared.add(hosted)
    hosted.log.go.set()
    await asyncio.wait_for(shared.finish(), 5)
    assert [end for _, end in done] == [1, 5]
    assert shared.rounds == 2


async def test_a_failing_log_does_not_hold_up_the_others() -> None:
    shared, done, failed = flusher()
    good, bad = Hosted(), Hosted()
    bad.log.error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    shared.add(bad)
    shared.add(good)
    await asyncio.wait_for(shared.finish(), 5)
    assert done == [(good, 1)]
    assert failed == [(bad, ErrorCode.KAFKA_STORAGE_ERROR)]


async def test_a_slow_flush_of_one_log_does_not_hold_up_another_log() -> None:
    shared, done, _ = flusher()
    slow, quick = Hosted(), Hosted()
    slow.log.go.clear()
    shared.add(slow)
    await asyncio.sleep(0.02)
    shared.add(quick)
    async with asyncio.timeout(5):
        while not done:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert done == [(quick, 1)]
    slow.log.go.set()
    await asyncio.wait_for(shared.finish(), 5)
    assert done == [(quick, 1), (slow, 1)]


async def test_more_logs_than_threads_are_flushed_by_portions() -> None:
    shared, done, _ = flusher()
    logs = [Hosted() for _ in range(50)]
    for hosted in logs:
        shared.add(hosted)
    await asyncio.wait_for(shared.finish(), 5)
    assert {hosted for hosted, _ in done} == set(logs)
    assert [hosted.log.flushes for hosted in logs] == [1] * 50


async def test_a_quick_disk_is_flushed_on_the_loop_and_a_slow_one_in_threads() -> None:
    shared, _, failed = flusher()
    hosted, loops_thread = Hosted(), threading.get_ident()
    for _ in range(200):
        shared.add(hosted)
        await asyncio.wait_for(shared.finish(), 5)
    assert hosted.log.thread == loops_thread
    threading.Timer(0.1, hosted.log.go.set).start()
    hosted.log.go.clear()
    shared.add(hosted)
    await asyncio.wait_for(shared.finish(), 5)
    shared.add(hosted)
    await asyncio.wait_for(shared.finish(), 5)
    assert hosted.log.thread != loops_thread
    assert (hosted.log.flushes, failed) == (202, [])


async def test_a_failure_on_the_loop_is_told_like_any_other() -> None:
    shared, done, failed = flusher()
    hosted = Hosted()
    for _ in range(200):
        shared.add(hosted)
        await asyncio.wait_for(shared.finish(), 5)
    hosted.log.error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    shared.add(hosted)
    await asyncio.wait_for(shared.finish(), 5)
    assert (len(done), failed) == (200, [(hosted, ErrorCode.KAFKA_STORAGE_ERROR)])
