from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pytest

from kbroker.replica.read_ahead import ColdRead, ReadAhead
from kbroker.segment.files import Files
from tests.fixtures.data_path import TOPIC, Played, one_batch
from tests.kbroker.handlers.test_fetch import append, ask, fetch_request, partitions_of


class ColdDisk(Files):
    """Nothing is in memory until a thread has read it, which takes until `go_on` is set."""

    def __init__(self) -> None:
        self.is_cold = False
        self.go_on = threading.Event()
        self.readers: set[int] = set()
        """The threads that waited for the disk."""
        self.reads = 0

    def read_at_once(self, descriptor: int, buffer: bytearray, position: int) -> bool:
        return not self.is_cold and super().read_at_once(descriptor, buffer, position)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        if self.is_cold:
            self.readers.add(threading.get_ident())
            self.reads += 1
            assert self.go_on.wait(60)
            self.is_cold = False
        return os.pread(descriptor, size, position)


class NoThreads(Executor):
    """One that cannot start any."""

    def submit(self, work: Any, /, *arguments: Any, **keywords: Any) -> Any:
        raise RuntimeError("can't start new thread")


async def test_without_a_thread_the_loop_waits_for_the_disk(
    restarted: Played, disk: ColdDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarted.replicas.workers, "reading", lambda log_dir: NoThreads())
    disk.go_on.set()
    answer = ask(restarted, fetch_request((0, 0), max_wait_ms=60_000))
    (found,) = partitions_of(await asyncio.wait_for(answer, 30))
    assert len(found.records) > 0
    assert disk.readers == {threading.get_ident()}


@pytest.fixture
async def disk() -> ColdDisk:
    return ColdDisk()


@pytest.fixture
async def restarted(tmp_path: Path, disk: ColdDisk) -> AsyncIterator[Played]:
    """A broker that finds a record in each of two partitions, on a cold disk; a third partition is empty."""
    former = Played(tmp_path)
    await former.lead((0, 1, 2))
    append(former, 0, b"old")
    append(former, 1, b"old")
    await former.close(clean=True)
    broker = Played(tmp_path, files=disk)
    await broker.lead((0, 1, 2), leader_epoch=1)
    disk.is_cold = True
    yield broker
    disk.go_on.set()
    await broker.close()


async def test_what_is_not_in_memory_is_read_by_a_thread_while_the_others_are_served(
    restarted: Played, disk: ColdDisk
) -> None:
    cold = asyncio.ensure_future(ask(restarted, fetch_request((0, 0), max_wait_ms=60_000)))
    append(restarted, 2, b"new")
    (found,) = partitions_of(ask(restarted, fetch_request((2, 0))))
    assert len(found.records) > 0
    assert not cold.done()
    disk.go_on.set()
    (found,) = partitions_of(await asyncio.wait_for(cold, 20))
    assert found.records.read()[61:] != b""
    assert b"old" in found.records.read()
    assert disk.readers
    assert threading.get_ident() not in disk.readers


@pytest.mark.parametrize("max_wait_ms", [0, 20])
async def test_records_that_are_there_are_waited_for_longer_than_the_client_would(
    restarted: Played, disk: ColdDisk, max_wait_ms: int
) -> None:
    cold = asyncio.ensure_future(ask(restarted, fetch_request((0, 0), max_wait_ms=max_wait_ms)))
    await asyncio.sleep(0.1)
    assert not cold.done()
    disk.go_on.set()
    (found,) = partitions_of(await asyncio.wait_for(cold, 20))
    assert len(found.records) == len(one_batch(b"old"))


async def test_what_is_in_memory_does_not_wait_for_what_is_not(restarted: Played, disk: ColdDisk) -> None:
    append(restarted, 2, b"new")
    first = ask(restarted, fetch_request((0, 0), (2, 0), session=(0, 0), max_wait_ms=60_000))
    assert [len(each.records) > 0 for each in partitions_of(first)] == [False, True]
    rest = asyncio.ensure_future(
        ask(restarted, fetch_request((2, 1), session=(first.session_id, 1), max_wait_ms=60_000))
    )
    disk.go_on.set()
    (found,) = partitions_of(await asyncio.wait_for(rest, 20))
    assert (found.partition_index, len(found.records) > 0) == (0, True)


async def test_a_client_that_goes_leaves_nothing_behind(restarted: Played, disk: ColdDisk) -> None:
    hosted = restarted.replicas.hosted[TOPIC, 0]
    cold = asyncio.ensure_future(ask(restarted, fetch_request((0, 0), max_wait_ms=60_000)))
    await asyncio.sleep(0.02)
    assert hosted.consumers
    cold.cancel()
    await asyncio.sleep(0.02)
    disk.go_on.set()
    assert not hosted.consumers


async def test_a_slice_that_many_want_is_read_once(restarted: Played, disk: ColdDisk) -> None:
    read_ahead: Any = ReadAhead(restarted.replicas.workers)
    wanted = ColdRead(restarted.replicas.hosted[TOPIC, 0].log, 0, 1000, 1, True)
    waiting = [read_ahead([wanted]) for _ in range(10)]
    await asyncio.sleep(0.02)
    disk.go_on.set()
    await asyncio.wait_for(asyncio.gather(*waiting), 20)
    assert disk.reads == 1
    assert not read_ahead._running


async def test_what_cannot_be_read_is_told_to_the_reader(restarted: Played, disk: ColdDisk) -> None:
    cold = asyncio.ensure_future(ask(restarted, fetch_request((0, 0), max_wait_ms=60_000)))
    await asyncio.sleep(0.02)
    restarted.replicas.hosted[TOPIC, 0].log.mark_failed("the disk is gone")
    disk.go_on.set()
    (found,) = partitions_of(await asyncio.wait_for(cold, 20))
    assert found.error_code == 56
