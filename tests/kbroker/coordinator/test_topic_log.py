from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.coordinator.topic_log import TopicLog
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.log import AppendOrigin, AppendResult
from kbroker.segment.producer_state import NOT_ASKED_FOR, Verification


class Replicas:
    """Keeps the batches; the test says how each append ends."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self.limit = limit
        self.appended: Callable[[], object] = lambda: None
        self.batches: list[list[Any]] = []
        self.ends: list[Callable[[AppendResult | KafkaError], None]] = []
        self.timeouts_ms: list[int] = []

    def append_then(
        self,
        topic: str,
        partition: int,
        batch: bytearray,
        acks: int,
        timeout_ms: int,
        origin: AppendOrigin,
        done: Callable[[AppendResult | KafkaError], None],
        verified: Verification | None = NOT_ASKED_FOR,
    ) -> None:
        assert (topic, partition, acks) == ("__consumer_offsets", 3, -1)
        self.timeouts_ms.append(timeout_ms)
        assert origin is AppendOrigin.COORDINATOR
        self.batches.append([(record.key, record.value) for record in decode_batch(bytes(batch))])
        self.ends.append(done)
        self.appended()

    def max_batch_bytes(self, topic: str, partition: int) -> int:
        return self.limit


def log_of(replicas: Replicas) -> TopicLog:
    return TopicLog(replicas, "__consumer_offsets", 3, lambda: 1000, -1, 5000, 0)


async def test_each_call_learns_the_offset_of_its_own_first_record() -> None:
    replicas, told = Replicas(), []
    log = log_of(replicas)
    log.append([(b"a", b"1"), (b"b", None)], lambda error, offset: told.append((error, offset)))
    log.append([(b"c", b"3")], lambda error, offset: told.append((error, offset)))
    assert not replicas.batches
    await asyncio.sleep(0)
    assert replicas.batches == [[(b"a", b"1"), (b"b", None), (b"c", b"3")]]
    replicas.ends[0](AppendResult(100, 102, -1, 0))
    assert told == [(ErrorCode.NONE, 100), (ErrorCode.NONE, 102)]


async def test_a_failed_batch_fails_all_its_calls() -> None:
    replicas, told = Replicas(), []
    log = log_of(replicas)
    for _ in range(2):
        log.append([(b"a", b"1")], lambda error, offset: told.append((error, offset)))
    await asyncio.sleep(0)
    replicas.ends[0](KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert told == [(ErrorCode.REQUEST_TIMED_OUT, -1)] * 2


async def test_what_does_not_fit_goes_into_the_next_batch_and_a_call_stays_whole() -> None:
    replicas = Replicas(limit=500)
    log = log_of(replicas)
    for number in range(4):
        log.append([(b"%d" % number, bytes(60)), (b"x", bytes(60))], lambda error, offset: None)
    log.append([(b"large", bytes(1000))], lambda error, offset: None)
    log.flush()
    assert [len(batch) for batch in replicas.batches] == [4, 4, 1]
    await asyncio.sleep(0)
    assert len(replicas.batches) == 3


async def test_the_first_that_is_waited_for_goes_in_at_once_and_what_its_turn_brings_behind_it_as_one_batch() -> None:
    replicas, told = Replicas(), []
    log = log_of(replicas)
    for number in range(4):
        log.append_at_once([(b"%d" % number, None)], lambda error, offset: told.append((error, offset)), 5000)
    assert replicas.batches == [[(b"0", None)]]
    await asyncio.sleep(0)
    assert replicas.batches[1:] == [[(b"1", None), (b"2", None), (b"3", None)]]
    log.append_at_once([(b"4", None)], lambda error, offset: told.append((error, offset)), 5000)
    assert replicas.batches[2:] == [[(b"4", None)]]
    for offset, end in zip((0, 1, 4), replicas.ends, strict=True):
        end(AppendResult(offset, offset, -1, 0))
    assert told == [(ErrorCode.NONE, offset) for offset in range(5)]


async def test_what_waits_for_the_end_of_the_turn_is_not_overtaken() -> None:
    replicas = Replicas()
    log = log_of(replicas)
    log.append([(b"0", None)], lambda error, offset: None)
    log.append_at_once([(b"1", None)], lambda error, offset: None, 5000)
    assert not replicas.batches
    await asyncio.sleep(0)
    assert replicas.batches == [[(b"0", None), (b"1", None)]]


async def test_who_replicates_the_first_gets_what_its_turn_brings_behind_it_too() -> None:
    replicas = Replicas()
    seen: list[int] = []
    loop = asyncio.get_running_loop()
    replicas.appended = lambda: loop.call_soon(lambda: seen.append(len(replicas.batches)))  # as a fetch is looked at
    log = log_of(replicas)
    for number in range(3):
        log.append_at_once([(b"%d" % number, None)], lambda error, offset: None, 5000)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [2, 2]


async def test_records_of_a_transaction_go_in_at_once_as_a_batch_of_their_own_behind_what_came_before() -> None:
    replicas, told = Replicas(), []
    log = log_of(replicas)
    log.append([(b"a", b"1")], lambda error, offset: told.append((error, offset)))
    log.append_in_transaction([(b"b", b"2")], (7, 0), None, lambda error, offset: told.append((error, offset)))
    log.append([(b"c", b"3")], lambda error, offset: told.append((error, offset)))
    assert replicas.batches == [[(b"a", b"1")], [(b"b", b"2")]]
    await asyncio.sleep(0)
    assert replicas.batches[2:] == [[(b"c", b"3")]]
    for offset, end in enumerate(replicas.ends):
        end(AppendResult(offset, offset, -1, 0))
    assert told == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1), (ErrorCode.NONE, 2)]


async def test_those_that_may_wait_longer_than_others_do_not_share_a_batch_with_them() -> None:
    replicas = Replicas()
    log = log_of(replicas)
    for number, timeout_ms in enumerate((None, 100, 5000, 100)):
        log.append([(b"%d" % number, None)], lambda error, offset: None, timeout_ms)
    log.flush()
    assert replicas.timeouts_ms == [5000, 100]
    assert replicas.batches == [[(b"0", None), (b"2", None)], [(b"1", None), (b"3", None)]]


async def test_who_fails_to_take_in_what_came_of_an_append_keeps_it_from_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replicas, told = Replicas(), []
    log = log_of(replicas)

    def fails(error: ErrorCode, offset: int) -> None:
        raise ValueError("nobody expects this")

    for outcome in (AppendResult(7, 8, -1, 0), KafkaError(ErrorCode.REQUEST_TIMED_OUT)):
        log.append([(b"a", b"1")], fails)
        log.append([(b"b", b"1")], lambda error, offset: told.append((error, offset)))
        log.flush()
        replicas.ends[-1](outcome)
    assert told == [(ErrorCode.NONE, 8), (ErrorCode.REQUEST_TIMED_OUT, -1)]
    assert caplog.text.count("nobody expects this") >= 2


async def test_a_batch_that_does_not_get_on_its_way_is_told_to_its_calls_and_keeps_none_of_the_others_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replicas, told = Replicas(), []
    log = log_of(replicas)

    def call(name: str, timeout_ms: int, value: bytes | None = b"1") -> None:
        log.append([(name.encode(), value)], lambda error, offset: told.append((name, error)), timeout_ms)

    for name, timeout_ms in (("a", 1), ("b", 2), ("c", 1), ("d", 3)):
        call(name, timeout_ms)
    taken = replicas.append_then

    def fails_once(*arguments: Any) -> None:
        monkeypatch.setattr(replicas, "append_then", taken)
        raise ValueError("nobody expects this")

    monkeypatch.setattr(replicas, "append_then", fails_once)
    log.flush()
    assert told == [("a", ErrorCode.UNKNOWN_SERVER_ERROR), ("c", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert "nobody expects this" in caplog.text
    assert replicas.timeouts_ms == [2, 3]
    call("e", 1, "no bytes")  # type: ignore[arg-type]
    call("f", 2)
    log.flush()
    assert told[2:] == [("e", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert replicas.batches[-1] == [(b"f", b"1")]
