from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.replica.flusher import Flusher
from tests.controller.conftest import until


class Log:
    def __init__(self, log_dir: str = "disk") -> None:
        self.log_dir = log_dir
        self.thread = 0
        self.flushes = 0
        self.go = threading.Event()
        self.go.set()
        self.error: Exception | None = None

    def flush(self) -> None:
        assert self.go.wait(60)
        self.thread = threading.get_ident()
        self.flushes += 1
        if self.error:
            raise self.error


class Hosted:
    def __init__(self, log_dir: str = "disk") -> None:
        self.log = Log(log_dir)

    def needs_flush(self) -> bool:
        return self.log.flushes == 0


def no_threads(log_dir: str) -> Any:
    """The loop's own pool flushes."""


def flusher() -> tuple[Any, list[Any], list[Any]]:
    done: list[Any] = []
    failed: list[Any] = []
    return (
        Flusher(no_threads, done.append, lambda hosted, e: failed.append((hosted, e.code))),
        done,
        failed,
    )


async def test_all_who_wait_at_that_moment_share_one_flush() -> None:
    shared, done, _ = flusher()
    first, second = Hosted(), Hosted()
    for _ in range(10):
        shared.add(first)
        shared.add(second)
    await asyncio.wait_for(shared.finish(), 20)
    assert set(done) == {first, second}
    assert (first.log.flushes, second.log.flushes, shared.rounds) == (1, 1, 1)


async def test_a_flush_that_fails_in_a_way_nobody_expects_is_told_and_the_others_go_on() -> None:
    shared, done, failed = flusher()
    bad, *good = [Hosted() for _ in range(6)]
    bad.log.error = ValueError("nobody expects this")
    for each in (bad, *good):
        shared.add(each)
    await asyncio.wait_for(shared.finish(), 20)
    assert (set(done), failed) == (set(good), [(bad, ErrorCode.UNKNOWN_SERVER_ERROR)])


class NoThreads(Executor):
    """One that cannot start a thread so often; then it works in the caller's."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def submit(self, work: Any, /, *arguments: Any, **keywords: Any) -> Any:
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError("can't start new thread")
        done: Future[Any] = Future()
        done.set_result(work(*arguments, **keywords))
        return done


async def test_logs_for_which_no_thread_can_be_started_are_flushed_when_one_can(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kbroker.replica.flusher.AGAIN_S", 0.01)
    done: list[Any] = []
    shared: Any = Flusher(lambda log_dir: NoThreads(2), done.append, lambda hosted, error: None)
    logs = [Hosted() for _ in range(5)]
    for each in logs:
        shared.add(each)
    await until(lambda: len(done) == 5)
    shared.add(logs[0])
    await until(lambda: len(done) == 6)
    assert "5 logs cannot be flushed now: can't start new thread" in caplog.text


@pytest.mark.slow
async def test_a_flusher_that_ends_waits_for_no_thread_that_cannot_be_started() -> None:
    shared: Any = Flusher(lambda log_dir: NoThreads(1_000_000), lambda hosted: None, lambda hosted, error: None)
    shared.add(Hosted())
    await asyncio.wait_for(shared.finish(), 30)


async def test_a_flusher_that_ends_does_not_wait_until_threads_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.replica.flusher.AGAIN_S", 3600)
    for failures, flushed in (1, 1), (2, 0):
        done: list[Any] = []
        threads = NoThreads(failures)
        shared: Any = Flusher(lambda _: threads, done.append, lambda hosted, error: None)  # noqa: B023
        shared.add(Hosted())
        await until(lambda: threads.failures < failures)  # noqa: B023
        await asyncio.wait_for(shared.finish(), 30)
        assert len(done) == flushed


class OneThread(ThreadPoolExecutor):
    """One that has a thread for a single piece of work at a time."""

    is_busy = False

    def submit(self, work: Any, /, *arguments: Any, **keywords: Any) -> Any:
        if self.is_busy:
            raise RuntimeError("can't start new thread")
        self.is_busy = True
        future = super().submit(work, *arguments, **keywords)
        future.add_done_callback(lambda _: setattr(self, "is_busy", False))
        return future


async def test_logs_for_which_there_was_no_thread_are_flushed_as_soon_as_one_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbroker.replica.flusher.AGAIN_S", 3600)
    done: list[Any] = []
    with OneThread(1) as threads:
        shared: Any = Flusher(lambda log_dir: threads, done.append, lambda hosted, error: None)
        logs = [Hosted() for _ in range(5)]
        for each in logs:
            shared.add(each)
        await until(lambda: len(done) == 5)


async def test_what_comes_during_a_round_waits_for_the_next() -> None:
    shared, done, _ = flusher()
    hosted = Hosted()
    hosted.log.go.clear()
    shared.add(hosted)
    await asyncio.sleep(0.02)
    shared.add(hosted)
    hosted.log.go.set()
    await asyncio.wait_for(shared.finish(), 20)
    assert done == [hosted, hosted]
    assert shared.rounds == 2


async def test_a_failing_log_does_not_hold_up_the_others() -> None:
    shared, done, failed = flusher()
    good, bad = Hosted(), Hosted()
    bad.log.error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    shared.add(bad)
    shared.add(good)
    await asyncio.wait_for(shared.finish(), 20)
    assert done == [good]
    assert failed == [(bad, ErrorCode.KAFKA_STORAGE_ERROR)]


async def test_a_slow_flush_of_one_log_does_not_hold_up_another_log() -> None:
    shared, done, _ = flusher()
    slow, quick = Hosted(), Hosted()
    slow.log.go.clear()
    shared.add(slow)
    await asyncio.sleep(0.02)
    shared.add(quick)
    async with asyncio.timeout(20):
        while not done:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert done == [quick]
    slow.log.go.set()
    await asyncio.wait_for(shared.finish(), 20)
    assert done == [quick, slow]


async def test_more_logs_than_threads_are_flushed_by_portions() -> None:
    shared, done, _ = flusher()
    logs = [Hosted() for _ in range(50)]
    for hosted in logs:
        shared.add(hosted)
    await asyncio.wait_for(shared.finish(), 20)
    assert set(done) == set(logs)
    assert [hosted.log.flushes for hosted in logs] == [1] * 50


async def test_no_disk_is_ever_so_quick_that_it_is_flushed_on_the_loop() -> None:
    shared, done, _ = flusher()
    hosted = Hosted()
    for _ in range(200):
        shared.add(hosted)
        await asyncio.wait_for(shared.finish(), 20)
        assert hosted.log.thread != threading.get_ident()
    assert len(done) == 200


async def test_a_disk_that_stands_still_does_not_hold_up_another_disk() -> None:
    with ThreadPoolExecutor(3) as slow_threads, ThreadPoolExecutor(1) as quick_threads:
        done: list[Any] = []
        threads = {"slow": slow_threads, "quick": quick_threads}
        shared: Any = Flusher(threads.__getitem__, done.append, lambda hosted, error: None)
        stuck, quick = [Hosted("slow") for _ in range(9)], Hosted("quick")
        for hosted in stuck:
            hosted.log.go.clear()
            shared.add(hosted)
        await asyncio.sleep(0.02)
        shared.add(quick)
        async with asyncio.timeout(20):
            while not done:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert done == [quick]
        for hosted in stuck:
            hosted.log.go.set()
        await asyncio.wait_for(shared.finish(), 20)


async def test_idle_logs_are_flushed_one_after_the_other_and_nobody_waits_for_them() -> None:
    shared, done, _ = flusher()
    idle = [Hosted() for _ in range(50)]
    for each in idle:
        each.log.go.clear()
        shared.add_idle(each)
    await until(lambda: shared._idler is not None)
    busy = Hosted()
    shared.add(busy)
    await until(lambda: done == [busy])
    assert not any(each.log.flushes for each in idle)
    for each in idle:
        each.log.go.set()
    await until(lambda: all(each.log.flushes == 1 for each in idle))
    await asyncio.wait_for(shared.finish(), 20)
    assert done == [busy]


async def test_what_is_idle_when_a_broker_stops_is_left() -> None:
    shared, _, _ = flusher()
    first, second = Hosted(), Hosted()
    first.log.go.clear()
    shared.add_idle(first)
    shared.add_idle(second)
    await asyncio.sleep(0)
    await asyncio.wait_for(shared.finish(), 20)
    first.log.go.set()
    assert second.log.flushes == 0
