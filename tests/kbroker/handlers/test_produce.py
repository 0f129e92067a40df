from __future__ import annotations

import asyncio
import errno
import threading
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers.produce import _is_transactional, produce
from kbroker.handlers.registry import CloseConnection
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.replica.turns import PORTION, TURN_S
from kbroker.replica.verification import APPENDED_AT_ONCE, MOST_AT_ONCE
from kbroker.segment.files import Files
from kbroker.segment.log_config import LogConfig
from tests.fixtures.data_path import TOPIC, TOPIC_ID, Played, one_batch


def request_for(*partitions: tuple[int, Any], acks: int = -1, topic: str = TOPIC, timeout_ms: int = 2_000) -> Any:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[ProduceRequest.PartitionProduceData(index=i, records=r) for i, r in partitions],
            )
        ],
    )


def answers_of(response: Any) -> list[Any]:
    return [partition for topic in response.responses for partition in topic.partition_responses]


async def send(played: Played, request: Any, version: int = 11, client_id: str = "test") -> list[Any]:
    answer = produce(played.services, played.ctx(version, client_id), request)
    if asyncio.isfuture(answer):
        answer = await asyncio.wait_for(answer, 20)
    return answers_of(answer)


async def test_a_single_replica_is_acknowledged_at_once(played: Played) -> None:
    await played.lead()
    answer = produce(played.services, played.ctx(11), request_for((0, one_batch(b"a", b"b"))))
    assert not asyncio.isfuture(answer)
    (partition,) = answers_of(answer)
    assert (partition.error_code, partition.base_offset, partition.log_append_time_ms) == (0, 0, -1)
    replica = played.replicas.replica(TOPIC, 0)
    assert replica is not None
    assert replica.log.high_watermark == 2


async def test_each_partition_has_its_own_error(played: Played) -> None:
    await played.lead((0, 1))
    played.tell(TOPIC, TOPIC_ID, [2], leader=2)
    flipped = one_batch()
    flipped[-1] ^= 1
    found = await send(
        played, request_for((0, one_batch()), (1, flipped), (2, one_batch()), (3, one_batch()), (0, b""))
    )
    assert [partition.error_code for partition in found] == [0, 2, 6, 3, 87]
    assert [partition.base_offset for partition in found] == [0, -1, -1, -1, -1]
    assert (found[2].current_leader.leader_id, found[2].current_leader.leader_epoch) == (2, 0)


async def test_the_leader_named_in_an_answer_comes_with_its_endpoint(played: Played) -> None:
    played.tell(TOPIC, TOPIC_ID, [2], leader=2)
    answer: Any = produce(played.services, played.ctx(10), request_for((2, one_batch())))
    assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [(2, "127.0.0.1", 9002)]


async def test_unknown_acks_are_refused(played: Played) -> None:
    await played.lead()
    assert [each.error_code for each in await send(played, request_for((0, one_batch()), acks=2))] == [21]


async def test_only_the_admin_client_writes_to_internal_topics(played: Played) -> None:
    await played.lead(topic="__consumer_offsets")
    request = request_for((0, one_batch()), topic="__consumer_offsets")
    assert [each.error_code for each in await send(played, request)] == [17]
    request = request_for((0, one_batch()), topic="__consumer_offsets")
    assert [each.error_code for each in await send(played, request, client_id="__admin_client")] == [0]


async def test_zstd_needs_version_7(played: Played) -> None:
    await played.lead()
    batch = one_batch()
    batch[22] |= 4
    assert [each.error_code for each in await send(played, request_for((0, batch)), version=6)] == [76]
    batch[16] = 1  # of a record of the older formats no attributes stand there
    assert [each.error_code for each in await send(played, request_for((0, batch)), version=6)] == [87]


async def test_a_transactional_batch_needs_its_transactional_id(played: Played) -> None:
    await played.lead()
    batch = one_batch()
    batch[22] |= 0x10
    assert [each.error_code for each in await send(played, request_for((0, batch)))] == [53]


def test_the_mark_of_a_transaction_demands_its_id_whoever_the_producer_is() -> None:
    def asked(request: ProduceRequest) -> Any:
        return SimpleNamespace(request=request, ctx=SimpleNamespace(is_large=False))

    marked, plain = one_batch(), one_batch()
    marked[22] |= 0x10  # and no producer id
    request = request_for((0, marked))
    assert not _is_transactional(asked(request))
    request.transactional_id = "mine"
    assert _is_transactional(asked(request))
    request = request_for((0, plain))
    request.transactional_id = "mine"
    assert not _is_transactional(asked(request))


async def test_acks_0_is_not_answered_and_an_error_closes_the_connection(played: Played) -> None:
    await played.lead()
    assert produce(played.services, played.ctx(11), request_for((0, one_batch()), acks=0)) is None
    with pytest.raises(CloseConnection):
        produce(played.services, played.ctx(11), request_for((5, one_batch()), acks=0))


async def test_acks_0_closes_the_connection_when_a_worker_refuses_the_batch(tmp_path: Path) -> None:
    played = Played(tmp_path, compression_type="zstd", cleanup_policy=("compact",))
    await played.lead()
    answer = produce(played.services, played.ctx(11), request_for((0, one_batch(bytes(100_000), key=None)), acks=0))
    assert asyncio.isfuture(answer)
    with pytest.raises(CloseConnection):
        await asyncio.wait_for(answer, 20)
    await played.close()


async def test_too_few_in_sync_replicas_refuse_before_the_append(tmp_path: Path) -> None:
    played = Played(tmp_path, min_insync_replicas=2)
    await played.lead(replicas=(1, 2), isr=(1,))
    assert [each.error_code for each in await send(played, request_for((0, one_batch())))] == [19]
    replica = played.replicas.replica(TOPIC, 0)
    assert replica is not None
    assert replica.log.log_end_offset == 0
    assert [each.error_code for each in await send(played, request_for((0, one_batch()), acks=1))] == [0]
    await played.close()


async def test_acks_all_waits_for_the_followers_and_times_out(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    found = await send(played, request_for((0, one_batch()), timeout_ms=30))
    assert [each.error_code for each in found] == [ErrorCode.REQUEST_TIMED_OUT]


async def test_losing_the_leadership_answers_those_who_wait(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    answer = produce(played.services, played.ctx(11), request_for((0, one_batch())))
    assert asyncio.isfuture(answer)
    await played.lead(replicas=(1, 2), leader=2, leader_epoch=1, partition_epoch=1)
    response = await asyncio.wait_for(answer, 20)
    assert [each.error_code for each in answers_of(response)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("acks", [1, -1])
async def test_with_flush_messages_1_nothing_is_acknowledged_before_the_flush(tmp_path: Path, acks: int) -> None:
    played = Played(tmp_path, flush_messages=1)
    await played.lead((0, 1))
    replica = played.replicas.replica(TOPIC, 0)
    assert replica is not None
    answers = [
        produce(played.services, played.ctx(11), request_for((0, one_batch()), (1, one_batch()), acks=acks))
        for _ in range(20)
    ]
    assert all(asyncio.isfuture(answer) for answer in answers)
    assert (replica.log.log_end_offset, replica.log.high_watermark) == (20, 0)
    responses = await asyncio.wait_for(asyncio.gather(*answers), 20)  # type: ignore[arg-type]
    assert {each.error_code for response in responses for each in answers_of(response)} == {ErrorCode.NONE}
    assert (replica.log.recovery_point, replica.log.high_watermark) == (20, 20)
    assert played.replicas.flusher.rounds == 1
    await played.close()


async def test_a_request_that_waits_for_its_flush_may_be_overtaken_and_lets_go_of_its_records(tmp_path: Path) -> None:
    played = Played(tmp_path, flush_messages=1)
    await played.lead()
    ctx, request = played.ctx(11), request_for((0, one_batch()))
    answer = produce(played.services, ctx, request)
    assert ctx.may_be_overtaken
    assert request.topic_data[0].partition_data[0].records is None
    assert asyncio.isfuture(answer)
    (found,) = answers_of(await asyncio.wait_for(answer, 20))
    assert (found.error_code, found.base_offset) == (ErrorCode.NONE, 0)
    await played.close()


async def test_a_request_that_is_appended_in_a_thread_may_not_be_overtaken(tmp_path: Path) -> None:
    played = Played(tmp_path, compression_type="zstd")
    await played.lead()
    ctx = played.ctx(11)
    answer = produce(played.services, ctx, request_for((0, one_batch(bytes(100_000)))))
    assert not ctx.may_be_overtaken
    assert asyncio.isfuture(answer)
    await asyncio.wait_for(answer, 20)
    await played.close()


async def test_a_topic_with_another_compression_keeps_the_order_of_its_batches(tmp_path: Path) -> None:
    played = Played(tmp_path, compression_type="zstd")
    await played.lead()
    large = one_batch(bytes(100_000))
    answers = [produce(played.services, played.ctx(11), request_for((0, bytearray(large)))) for _ in range(3)]
    small = produce(played.services, played.ctx(11), request_for((0, one_batch())))
    responses = [await asyncio.wait_for(answer, 20) for answer in [*answers, small]]  # type: ignore[arg-type]
    assert [answers_of(response)[0].base_offset for response in responses] == [0, 1, 2, 3]
    replica = played.replicas.replica(TOPIC, 0)
    assert replica is not None
    assert replica.log.size < 10_000
    assert replica.tail is None
    await played.close()


async def test_rejected_records_are_named(tmp_path: Path) -> None:
    played = Played(tmp_path, cleanup_policy=("compact",))
    await played.lead()
    (found,) = await send(played, request_for((0, one_batch(b"a", key=None))))
    assert found.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in found.record_errors] == [0]
    await played.close()


async def test_a_changed_flush_setting_is_used_at_once(played: Played) -> None:
    await played.lead()
    assert not asyncio.isfuture(produce(played.services, played.ctx(11), request_for((0, one_batch()))))
    played.replicas.apply_topic_config(TOPIC, LogConfig(flush_messages=1))
    answer = produce(played.services, played.ctx(11), request_for((0, one_batch())))
    assert asyncio.isfuture(answer)
    await asyncio.wait_for(answer, 20)


def idempotent(sequence: int, epoch: int = 0) -> bytearray:
    builder = BatchBuilder()
    builder.append(b"k", b"value", (), 1_000)
    return builder.build(9, epoch, sequence)


async def test_a_gap_in_a_sequence_is_refused_and_a_repeated_batch_is_not_stored_again(
    played: Played,
) -> None:
    await played.lead()
    sequences = (0, 1, 1, 3, 2)
    found = [(await send(played, request_for((0, idempotent(each)))))[0] for each in sequences]
    assert [(each.error_code, each.base_offset) for each in found] == [(0, 0), (0, 1), (0, 1), (45, -1), (0, 2)]
    assert played.replicas.hosted[TOPIC, 0].log.log_end_offset == 3


async def test_a_broker_that_may_lead_no_more_takes_no_writes(played: Played) -> None:
    await played.lead()
    played.replicas.is_leadership_unproven = lambda: True
    assert [each.error_code for each in await send(played, request_for((0, one_batch())))] == [6]
    assert played.replicas.hosted[TOPIC, 0].log.log_end_offset == 0


class SteppedDisk(Files):
    """Once begun, each sync waits for a step."""

    def __init__(self) -> None:
        self.steps = threading.Semaphore(0)
        self.is_slow = False
        self.waiting = 0

    def sync(self, descriptor: int) -> None:
        if self.is_slow:
            self.waiting += 1
            assert self.steps.acquire(timeout=20)

    def let_go(self) -> None:
        """One step, if somebody waits for it."""
        if self.waiting:
            self.waiting -= 1
            self.steps.release()


@pytest.mark.parametrize("acks", [1, -1])
async def test_what_is_appended_during_a_flush_waits_for_the_next(tmp_path: Path, acks: int) -> None:
    disk = SteppedDisk()
    played = Played(tmp_path, files=disk, flush_messages=1)
    await played.lead()
    hosted = played.replicas.hosted[TOPIC, 0]
    disk.is_slow = True
    first: Any = produce(played.services, played.ctx(11), request_for((0, one_batch()), acks=acks, timeout_ms=9_000))
    async with asyncio.timeout(20):
        while not disk.waiting:  # noqa: ASYNC110 - a thread tells
            await asyncio.sleep(0.01)
    second: Any = produce(played.services, played.ctx(11), request_for((0, one_batch()), acks=acks, timeout_ms=9_000))
    async with asyncio.timeout(20):
        while not first.done():
            disk.let_go()
            await asyncio.sleep(0.02)
            assert first.done() or hosted.log.high_watermark == 0
    assert (hosted.log.high_watermark, hosted.log.log_end_offset) == (1, 2)
    assert not second.done()
    disk.is_slow = False
    disk.steps.release()
    await asyncio.wait_for(second, 20)
    assert hosted.log.high_watermark == 2
    await played.close()


class BrokenDisk(Files):
    """Once broken, no sync succeeds."""

    def __init__(self) -> None:
        self.is_broken = False

    def sync(self, descriptor: int) -> None:
        if self.is_broken:
            raise OSError(errno.EIO, "no disk")


@pytest.mark.parametrize("acks", [1, -1])
async def test_nothing_is_acknowledged_that_could_not_be_flushed(tmp_path: Path, acks: int) -> None:
    disk = BrokenDisk()
    played = Played(tmp_path, files=disk, flush_messages=1)
    await played.lead()
    disk.is_broken = True
    (found,) = await send(played, request_for((0, one_batch()), acks=acks))
    assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await played.close()


# -- very many batches in one request ---------------------------------------------------------------------------


@pytest.fixture
def _in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches are very many, and each takes a turn."""
    monkeypatch.setattr("kbroker.handlers.produce.MOST_AT_ONCE", 1)
    monkeypatch.setattr("kbroker.handlers.produce.APPENDED_AT_ONCE", 1)


async def in_the_end(answer: Any) -> Any:
    return await asyncio.wait_for(asyncio.ensure_future(answer), 20)


@pytest.mark.usefixtures("_in_turns")
async def test_very_many_batches_are_appended_in_turns_each_with_its_own_result(played: Played) -> None:
    await played.lead((0, 1))
    request = request_for((0, one_batch(b"a", b"b")), (1, one_batch()), (3, one_batch()), (0, one_batch()), (0, b""))
    response = await in_the_end(produce(played.services, played.ctx(11), request))
    assert [partition.index for partition in answers_of(response)] == [0, 1, 3, 0, 0]
    assert [partition.error_code for partition in answers_of(response)] == [0, 0, 3, 0, 87]
    assert [partition.base_offset for partition in answers_of(response)] == [0, 0, -1, 2, -1]


@pytest.mark.usefixtures("_in_turns")
@pytest.mark.parametrize("is_at_once", [True, False])
async def test_very_many_batches_are_answered_when_the_followers_have_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_at_once: bool
) -> None:
    played = Played(tmp_path)
    await played.lead((0, 1), replicas=(1, 2), isr=(1, 2))
    request = request_for((0, one_batch()), (1, one_batch()), timeout_ms=50)
    ctx, let = played.ctx(11), list[Any]()
    ctx.connection.let_overtake = let.append
    looks = repeat(0) if is_at_once else chain([0, 0], repeat(2 * TURN_S))  # the first turn is over after a batch
    monkeypatch.setattr("kbroker.replica.turns.monotonic", lambda: next(looks))
    answer: Any = produce(played.services, ctx, request)
    assert ctx.may_be_overtaken == is_at_once
    ctx.late = "as dispatch says" if is_at_once else None
    response = await in_the_end(answer)
    assert let == ([] if is_at_once else [ctx])
    assert [data.records for data in request.topic_data[0].partition_data] == [None, None]
    assert [each.error_code for each in answers_of(response)] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    await played.close()


@pytest.mark.usefixtures("_in_turns")
async def test_very_many_batches_with_acks_0_close_the_connection_when_one_is_refused(played: Played) -> None:
    await played.lead()
    taken = request_for((0, one_batch()), (0, one_batch()), acks=0)
    assert await in_the_end(produce(played.services, played.ctx(11), taken)) is None
    refused = request_for((0, one_batch()), (7, one_batch()), acks=0)
    with pytest.raises(CloseConnection):
        await in_the_end(produce(played.services, played.ctx(11), refused))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps what is done in turns has had."""
    steps: list[int] = []

    def drained(work: Any) -> Any:
        steps.append(0)
        while True:
            try:
                next(work)
            except StopIteration as done:
                return done.value
            steps[-1] += 1

    monkeypatch.setattr("kbroker.handlers.produce.in_turns", drained)
    return steps


async def test_very_many_batches_are_answered_in_portions(played: Played, steps: list[int]) -> None:
    await played.lead()
    batches = 5 * PORTION
    request = request_for(*((each, one_batch()) for each in range(batches)))
    response = await in_the_end(produce(played.services, played.ctx(11), request))
    in_portions = batches / PORTION
    assert steps == [batches / APPENDED_AT_ONCE + in_portions, in_portions], "appended, let go of, and answered"
    assert [each.index for each in answers_of(response)] == list(range(batches))
    assert [each.error_code for each in answers_of(response)] == [0] + [3] * (batches - 1)


async def test_very_many_topics_without_batches_are_worked_off_in_turns_too(played: Played, steps: list[int]) -> None:
    topics = [ProduceRequest.TopicProduceData(name=str(each), partition_data=[]) for each in range(MOST_AT_ONCE + 1)]
    request = ProduceRequest(acks=1, timeout_ms=2_000, topic_data=topics)
    response = await in_the_end(produce(played.services, played.ctx(11), request))
    assert steps == [len(topics)] * 2
    assert [each.name for each in response.responses] == [each.name for each in topics]
