from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.client.errors import TimedOut
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.fetch import FetchResponse
from kbroker.replica.fetcher import FetchedPartition
from kbroker.replica.fetcher_loop import FetcherLoop
from kbroker.segment.disk_pace import SLOW_S
from kbroker.segment.log import Log
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


async def test_what_comes_for_a_slow_disk_is_appended_by_its_threads(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    await copies.elect(1, is_new=True)
    copies.hosted(3).log.disk.pool.pace.note(time.monotonic() - SLOW_S)
    append, on_loop = Log.append_as_follower, dict[int, bool]()

    def watched(log: Log, *arguments: Any) -> Any:
        on_loop[id(log)] = threading.current_thread() is threading.main_thread()
        return append(log, *arguments)

    monkeypatch.setattr(Log, "append_as_follower", watched)
    assert await copies.produce(b"a") is ErrorCode.NONE
    await copies.until_equal()
    assert [on_loop[id(copies.hosted(broker_id).log)] for broker_id in (2, 3)] == [True, False]


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


@pytest.mark.parametrize("tries", [1, 2], ids=["at once", "once there is a thread"])
async def test_what_is_not_flushed_is_before_a_new_leader_hears_of_it_where_that_is_asked_for(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    await until(lambda: copies.hosted(3).log.log_end_offset == 1)
    hosted, told, flush = copies.hosted(3), list[int](), Log.flush
    assert hosted.log.disk.flushed_to == 0
    hosted.log.apply_config(replace(hosted.log.config, flush_messages=1))
    hosted.apply_config()

    def watched(flushed: Log) -> None:
        if flushed is hosted.log:
            told.append(copies.hosted(1).state.remotes[3].log_end_offset)
            if len(told) < tries:
                raise RuntimeError("can't start new thread")
        flush(flushed)

    monkeypatch.setattr(Log, "flush", watched)
    await copies.elect(1)
    await until(lambda: copies.hosted(1).state.remotes[3].log_end_offset == 1)
    assert (told, hosted.log.disk.flushed_to) == ([-1] * tries, 1)


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


async def test_a_follower_whose_log_names_an_epoch_that_is_yet_to_come_cuts_it_there(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    await until(lambda: copies.hosted(3).log.log_end_offset == 1)
    copies.hosted(3).log.append_as_leader(one_batch(b"a bit of its epoch flipped"), 1 << 25, 0)
    await copies.elect(1)
    await copies.produce(b"b", acks=1)
    await copies.produce(b"c", acks=1)
    await copies.until_equal()
    assert b"flipped" not in copies.content(3)


async def test_a_follower_cuts_committed_records_only_once_it_is_in_the_isr_no_more_and_its_log_is_short_then(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await copies.elect(1, is_new=True)
    for _ in range(5):
        await copies.produce(b"committed")
    await copies.until_equal()
    damaged = copies.hosted(3).log
    cuts: list[tuple[int, bool, bool]] = []
    truncate = Log.truncate_to

    def noted(cut: Log, offset: int, now_ms: int = 0) -> bool:
        is_done = truncate(cut, offset, now_ms)
        if cut is damaged:
            cuts.append((offset, 3 in copies.isr, cut.is_short))
        return is_done

    monkeypatch.setattr(Log, "truncate_to", noted)
    damaged.leader_epochs.begin(1 << 25, 2)  # as a recovery notes a batch in whose epoch a bit has flipped
    await copies.elect(1)
    led, leader = copies.hosted(1), copies.brokers[1].replicas
    led.state.max_lag_ms = 200

    def is_left_out() -> bool:
        leader.carry_out(led, led.state.check_isr(leader.steady(), led.log.log_end_offset))
        return 3 not in copies.isr

    await until(is_left_out)
    assert cuts == []
    assert damaged.log_end_offset == 5
    assert caplog.text.count("is to be cut from 2 on") == 1
    copies.brokers[3].tell(TOPIC, TOPIC_ID, [0], 1, copies.leader_epoch, (1, 2, 3), copies.isr)
    await until(lambda: damaged.log_end_offset == 5 and damaged.latest_epoch == 0)
    assert cuts == [(2, False, True)]
    assert not damaged.is_short
    await copies.until_equal()


async def test_a_follower_whose_log_begins_beyond_its_leaders_end_begins_anew_where_the_leaders_begins(
    copies: Copies,
) -> None:
    await copies.elect(1, is_new=True)
    for value in (b"a", b"b", b"c"):
        await copies.produce(value)
    await copies.until_equal()
    beyond, led = copies.hosted(3).log, copies.hosted(1).log
    led.delete_records(1)
    beyond.truncate_fully_and_start_at(5000)
    await copies.elect(1)
    await copies.produce(b"d", acks=1)
    await until(lambda: beyond.log_end_offset == 4 and not beyond.is_short)
    assert (beyond.log_start_offset, [each.base_offset for each in beyond.segments]) == (1, [1])
    assert beyond.read(1, 1000).read() == led.read(1, 1000).read()


@pytest.mark.parametrize("missing", [0, 1, 3])
async def test_a_short_log_that_has_all_that_its_leader_has_committed_is_short_no_more(
    copies: Copies, missing: int
) -> None:
    """What lay behind damage may never have been committed: nobody has it, nobody will fill it."""
    await copies.elect(1, is_new=True)
    for _ in range(5):
        await copies.produce(b"committed")
    await copies.until_equal()
    short = copies.hosted(3).log
    with short.changing("recover"):
        short.promised_offset = 99
    short.truncate_to(5 - missing)
    await copies.elect(1)
    await until(lambda: short.log_end_offset == 5 and short.high_watermark == 5)
    assert short.is_short  # the leader has yet to commit what is of its own term
    await copies.produce(b"of this term")
    await until(lambda: short.log_end_offset == 6 and not short.is_short)
    await copies.until_equal()


async def test_a_short_log_is_short_as_long_as_its_leader_has_more_than_is_committed(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"committed")
    await copies.until_equal()
    await copies.stop(2)  # it stays in the ISR
    short, leader = copies.hosted(3).log, copies.hosted(1)
    with short.changing("recover"):
        short.promised_offset = 99
    await copies.produce(b"not yet", acks=1)
    await until(lambda: leader.state.remotes[3].log_end_offset == 2)
    assert (short.is_short, leader.log.high_watermark) == (True, 1)
    await copies.elect(1, isr=(1, 3))
    await until(lambda: short.high_watermark == 2)
    assert short.is_short
    await copies.produce(b"of this term")
    await until(lambda: not short.is_short)
    assert short.high_watermark == 3


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


class LateLine(SlowLine):
    """The same, to a leader whose answers take `late_s`: who does not wait so long gets none."""

    late_s = 0.15

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, float]] = []
        """How many partitions were named, and how long the answer was waited for."""

    async def request(self, request: Any, version: int, timeout: float) -> FetchResponse:
        self.asked.append((sum(len(topic.partitions) for topic in request.topics), timeout))
        await asyncio.sleep(min(self.late_s, timeout))
        if timeout < self.late_s:
            raise TimedOut(f"no answer within {timeout:g} s")
        return FetchResponse(error_code=ErrorCode.NONE, session_id=0, responses=[])


def fetcher_loop(copies: Copies, monkeypatch: pytest.MonkeyPatch, line: LateLine) -> FetcherLoop:
    """Over this line, and fetching one partition, with a replica.socket.timeout.ms of 50 ms."""

    async def connect(loop: FetcherLoop) -> LateLine:
        loop._connection = line  # type: ignore[assignment]
        return line

    monkeypatch.setattr(FetcherLoop, "_connect", connect)
    copies.brokers[2].config.replica_socket_timeout_ms = 50
    loop = FetcherLoop(copies.brokers[2].replicas, 1, 0)
    loop.add(fetched_partition(0))
    return loop


def fetched_partition(number: int) -> FetchedPartition:
    hosted: Any = SimpleNamespace(topic=TOPIC, topic_id=TOPIC_ID, partition=number, log=None, needs_flush=bool)
    return FetchedPartition(hosted, 0, 0, -1, 0)


async def test_a_leader_whose_answers_come_too_late_is_given_more_time_until_they_come_in_time(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = LateLine()
    loop = fetcher_loop(copies, monkeypatch, line)
    await until(lambda: len(line.asked) > 4)
    assert [timeout for _, timeout in line.asked[:5]] == [0.05, 0.1, 0.2, 0.2, 0.2]
    line.late_s = 0.001
    await until(lambda: line.asked[-1][1] == 0.05)
    await loop.close()


@pytest.mark.slow
async def test_a_leader_that_never_answers_is_given_so_much_time_and_told_of_again_and_again(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="kbroker")
    monkeypatch.setattr("kbroker.replica.fetcher_loop.LONGEST_ANSWER_S", 0.09)
    line = LateLine()
    line.late_s = 60.0
    loop = fetcher_loop(copies, monkeypatch, line)
    await until(lambda: len(line.asked) > 3)
    assert [timeout for _, timeout in line.asked[:4]] == [0.05, 0.09, 0.09, 0.09]
    monkeypatch.setattr("kbroker.replica.fetcher_loop.TOLD_EVERY_S", 0.0)

    def told() -> list[str]:
        return [
            each.levelname
            for each in caplog.records
            if "cannot fetch 1 partition(s) from broker 1" in each.getMessage()
        ]

    await until(lambda: len(told()) > 2)
    assert set(told()) == {"INFO", "WARNING"}
    await loop.close()


async def test_a_partition_that_comes_while_the_leader_is_connected_to_is_in_the_first_request(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = LateLine()
    loop = fetcher_loop(copies, monkeypatch, line)
    connect = FetcherLoop._connect

    async def connect_slowly(loop: FetcherLoop) -> Any:
        loop.add(fetched_partition(1))
        await asyncio.sleep(0.01)
        return await connect(loop)

    monkeypatch.setattr(FetcherLoop, "_connect", connect_slowly)
    await until(lambda: len(line.asked) > 0)
    assert line.asked[0][0] == 2
    await loop.close()


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
        loop.add(fetched_partition(next(numbers)))
        await asyncio.sleep(0.045)
        assert SlowLine.made < 20, "no request is answered"
    await loop.close()
