from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from types import SimpleNamespace

import pytest

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.fetch import FetchResponse
from kbroker.replica.fetcher import FetchedPartition
from kbroker.replica.fetcher_loop import FetcherLoop
from tests.fixtures.copies import Copies, until
from tests.fixtures.data_path import TOPIC, TOPIC_ID, one_batch


async def test_a_leader_that_comes_back_at_another_address_is_found(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    await copies.stop(1)
    del copies.ports[1]
    copies.start(1)
    await copies.elect(1)
    assert await copies.produce(b"b") is ErrorCode.NONE
    await copies.until_equal()


async def test_a_leader_whose_address_comes_after_the_order_is_found(copies: Copies) -> None:
    copies.brokers[3].tell(TOPIC, TOPIC_ID, [], brokers=(2, 3))
    await copies.brokers[3].lead(leader=1, leader_epoch=0, replicas=(1, 2, 3), is_new=True)
    await copies.elect(1, is_new=True)
    assert await copies.produce(b"a") is ErrorCode.NONE
    await copies.until_equal()


async def test_large_answers_are_appended_too(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    answers = await asyncio.gather(*(copies.produce(b"x" * 300_000) for _ in range(10)))
    assert set(answers) == {ErrorCode.NONE}
    await copies.until_equal()


async def test_a_partition_that_is_new_does_not_wait_for_those_that_are_idle(copies: Copies) -> None:
    for broker in copies.brokers.values():
        broker.config.replica_fetch_wait_max_ms = 60_000
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    await asyncio.sleep(0.1)
    await copies.elect(1, partitions=[1], is_new=True)
    begun = time.monotonic()
    assert await copies.produce(b"b", partition=1) is ErrorCode.NONE
    assert time.monotonic() - begun < 20


async def test_damaged_records_are_fetched_again_until_they_are_whole(
    copies: Copies, caplog: pytest.LogCaptureFixture
) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    await copies.stop(3)
    await copies.elect(1, isr=(1, 2))
    await copies.produce(b"value to be damaged")
    file = copies.hosted(1).log.active_segment.file
    whole = copies.content(1)
    copies.hosted(1).log.active_segment.trusted_from = len(whole)
    place = whole.index(b"damaged")
    file.write(b"D", place)
    copies.start(3)
    await copies.elect(1, isr=(1, 2))
    await until(lambda: "wrong CRC" in caplog.text or "CORRUPT_MESSAGE" in caplog.text)
    assert copies.hosted(3).log.log_end_offset == 1
    file.write(b"d", place)
    await until(lambda: copies.hosted(3).log.log_end_offset == 2)


async def test_a_log_that_fails_is_left_alone_and_the_others_go_on(copies: Copies) -> None:
    await copies.elect(1, partitions=[0, 1], is_new=True)
    await copies.produce(b"a")
    copies.hosted(3, 0).log.mark_failed("the disk is gone")
    await copies.produce(b"b", acks=1)
    await copies.produce(b"c", partition=1)
    await until(lambda: copies.hosted(3, 1).log.log_end_offset == 1)
    assert copies.hosted(3, 0).log.log_end_offset == 1
    fetcher = next(iter(copies.brokers[3].replicas.replication._fetchers.values()))  # type: ignore[union-attr]
    assert fetcher.partition_count == 1


async def test_a_follower_of_a_leader_that_has_not_heard_of_it_yet_tries_again(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    hosted = copies.brokers[1].replicas._hosted.pop((TOPIC, 0))
    await until(lambda: bool(_due(copies)))
    copies.brokers[1].replicas._hosted[TOPIC, 0] = hosted
    await copies.produce(b"b", acks=1)
    await copies.until_equal()


def _due(copies: Copies) -> list[int]:
    fetchers = copies.brokers[3].replicas.replication._fetchers.values()  # type: ignore[union-attr]
    return [due for fetcher in fetchers if (due := fetcher._fetcher.next_due_ms()) is not None]


async def test_a_follower_whose_log_others_wrote_to_cuts_it_and_goes_on(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    await until(lambda: copies.hosted(3).log.log_end_offset == 1)
    copies.hosted(3).log.append_as_leader(one_batch(b"nobody else has this"), 0, 0)
    await copies.produce(b"b", acks=1)
    await copies.until_equal()
    assert b"nobody else" not in copies.content(3)


class SlowLine:
    """A connection to a leader that has nothing new, whose answers take `delay_s`."""

    is_closed = False
    made = answered = 0
    delay_s = 0.15

    def __init__(self) -> None:
        SlowLine.made += 1
        self._cut = asyncio.Event()

    async def request(self, request: object, version: int, timeout: float) -> FetchResponse:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.delay_s):
                await self._cut.wait()
            raise ConnectionError("cut")
        SlowLine.answered += 1
        return FetchResponse(error_code=ErrorCode.NONE, session_id=0, responses=[])

    def abort(self) -> None:
        self._cut.set()

    async def close(self) -> None:
        self.abort()


async def test_partitions_that_keep_coming_do_not_end_every_request_before_its_answer(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(loop: FetcherLoop) -> SlowLine:
        loop._connection = line = SlowLine()  # type: ignore[assignment]
        return line

    monkeypatch.setattr(FetcherLoop, "_connect", connect)
    loop = FetcherLoop(copies.brokers[2].replicas, 1, 0)
    numbers = itertools.count(1)
    while not SlowLine.answered:
        hosted = SimpleNamespace(topic=TOPIC, topic_id=TOPIC_ID, partition=next(numbers), log=None)
        loop.add(FetchedPartition(hosted, 0, 0, -1, 0))  # type: ignore[arg-type]
        await asyncio.sleep(0.045)
        assert SlowLine.made < 20, "no request is answered"
    await loop.close()
