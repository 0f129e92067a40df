from __future__ import annotations

import asyncio
import gzip
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbroker.handlers.produce import produce
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.replication import StopReplicaRequest
from kbroker.protocol.records.checksum import crc32c
from kbroker.protocol.records.compression import CompressionType
from kbroker.replica.appending import IN_WORKERS_MS, room_on_loop
from kbroker.replica.delayed import DelayedAnswer
from kbroker.replica.workers import Workers
from kbroker.segment.disk_pace import SLOW_S
from kbroker.segment.files import Buffer, Files
from kbroker.segment.log import AppendOrigin, AppendResult
from tests.fixtures.data_path import TOPIC, Played, one_batch
from tests.fixtures.threads import no_more_threads
from tests.kbroker.handlers.test_produce import answers_of, request_for
from tests.kbroker.network.serving import until


async def test_an_append_that_counts_at_once_leaves_nothing_to_wait_for(played: Played) -> None:
    await played.lead()
    answer = DelayedAnswer(1000, list)
    played.replicas.append(TOPIC, 0, one_batch(), -1, 0, answer)
    assert isinstance(answer.results[0], AppendResult)
    assert answer.future is None


async def test_partitions_that_are_refused_alike_share_one_refusal(played: Played) -> None:
    """A request may name millions that are unknown, or one that is not led here millions of times."""
    await played.lead(replicas=(1, 2))
    await played.lead(leader=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2), is_new=False)
    answer = DelayedAnswer(1000, list)
    for partition in (7, 0, 8, 0):
        played.replicas.append(TOPIC, partition, one_batch(), -1, 0, answer)
    unknown, not_led, unknown_too, not_led_too = answer.results
    assert unknown.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not_led.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (unknown_too, not_led_too) == (unknown, not_led)


async def test_what_a_refused_append_raises_is_not_what_others_share(played: Played) -> None:
    """It would hold the frames of whoever was told, for good."""
    raised = []
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            await played.replicas.append_batch(TOPIC, 7, one_batch(), 1000, AppendOrigin.COORDINATOR)
        raised.append(refused.value)
    assert raised[0].code is raised[1].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert raised[0] is not raised[1]


async def test_the_loop_has_no_room_for_large_batches_that_are_to_be_recompressed(tmp_path: Path) -> None:
    played = Played(tmp_path, compression_type="gzip")
    await played.lead()
    hosted = played.replicas.hosted[TOPIC, 0]
    assert room_on_loop(hosted, one_batch(bytes(100_000))) == 0
    assert room_on_loop(hosted, one_batch(bytes(100))) > 1000
    compressed = one_batch(bytes(1000))
    compressed[22] = 4
    assert room_on_loop(hosted, compressed) == 0
    compressed[22] = 1
    assert room_on_loop(hosted, compressed) > 10_000
    await played.close()


async def test_the_loop_has_room_in_proportion_to_what_was_sent_and_none_for_what_is_large_anyhow(
    played: Played,
) -> None:
    await played.lead()
    hosted = played.replicas.hosted[TOPIC, 0]
    for codec in (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD):
        batch = one_batch(bytes(1000))
        batch[22] = codec
        assert room_on_loop(hosted, batch) == 16 * len(batch)
        assert 0 < room_on_loop(hosted, batch + bytes(39_000)) <= 1 << 20
        assert room_on_loop(hosted, batch + bytes(300_000)) == 0
    assert room_on_loop(hosted, one_batch(bytes(1_000_000))) > 1_000_000
    assert room_on_loop(hosted, bytearray()) > 0


@pytest.mark.parametrize(("size", "workers"), [(100, 0), (300_000, 1), (5_000_000, 2)])
async def test_the_more_a_batch_unpacks_to_the_farther_from_the_loop_it_is_checked(
    tmp_path: Path, size: int, workers: int
) -> None:
    threads = Workers()
    threads.preparing = pool = CountingPool()
    played = Played(tmp_path, workers=threads)
    await played.lead()
    answer = DelayedAnswer(5000, list)
    batch = one_batch(bytes(size), compression=CompressionType.ZSTD)
    played.replicas.append(TOPIC, 0, batch, -1, 0, answer)
    if answer.future is not None:
        await asyncio.wait_for(answer.future, 20)
    assert isinstance(answer.results[0], AppendResult)
    assert pool.count == workers
    await played.close()


async def test_once_a_batch_takes_the_loop_long_to_check_workers_check_for_a_while(tmp_path: Path) -> None:
    threads = Workers()
    threads.preparing = pool = CountingPool()
    played = Played(tmp_path, workers=threads)
    await played.lead()
    batch = one_batch(bytes(1_000), compression=CompressionType.GZIP)
    empty_pieces = bytearray(batch[:61] + gzip.compress(b"") * 2_000)
    struct.pack_into(">i", empty_pieces, 8, len(empty_pieces) - 12)
    struct.pack_into(">I", empty_pieces, 17, crc32c(empty_pieces[21:]))
    random = one_batch(os.urandom(1_000), compression=CompressionType.GZIP)

    async def appended(records: bytearray) -> int:
        """Append; returns how often workers were asked."""
        before = pool.count
        answer = DelayedAnswer(5000, list)
        played.replicas.append(TOPIC, 0, bytearray(records), 1, 0, answer)
        if answer.future is not None:
            await asyncio.wait_for(answer.future, 20)
        return pool.count - before

    assert await appended(random) == 0
    assert await appended(empty_pieces) == 0, "nobody knew, and it is refused"
    assert await appended(empty_pieces) > 0
    assert (await appended(random), await appended(batch)) == (1, 0), "what is small is quicker here all the same"
    played.now += IN_WORKERS_MS
    assert await appended(random) == 0
    await played.close()


async def test_batches_that_unpack_to_very_much_are_unpacked_one_at_a_time(tmp_path: Path) -> None:
    threads = Workers()
    threads.preparing = pool = CountingPool()
    played = Played(tmp_path, workers=threads)
    await played.lead(partitions=range(4))
    answer = DelayedAnswer(10_000, list)
    batch = one_batch(bytes(5_000_000), compression=CompressionType.ZSTD)
    for number in range(8):
        played.replicas.append(TOPIC, number % 4, bytearray(batch), -1, 0, answer)
    assert answer.future is not None
    await asyncio.wait_for(answer.future, 20)
    assert [each.base_offset for each in answer.results] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert pool.most_without_limit == 1
    await played.close()


class CountingPool(ThreadPoolExecutor):
    """Counts what it is given to do, and how many batches it checks at once without a limit to what they unpack to."""

    def __init__(self) -> None:
        super().__init__(4)
        self.count = 0
        self._lock = threading.Lock()
        self._without_limit = 0
        self.most_without_limit = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        has_limit = fn.__name__ != "validate" or len(args) > 3  # records, time, origin, room
        return super().submit(fn if has_limit else partial(self._counted, fn), *args, **kwargs)

    def _counted(self, fn: Any, *args: Any) -> Any:
        with self._lock:
            self._without_limit += 1
            self.most_without_limit = max(self._without_limit, self.most_without_limit)
        try:
            return fn(*args)
        finally:
            with self._lock:
                self._without_limit -= 1


async def test_a_slow_append_that_is_refused_says_why(tmp_path: Path) -> None:
    played = Played(tmp_path, compression_type="gzip")
    await played.lead()
    broken = one_batch(bytes(100_000))
    broken[-1] ^= 1
    answer = DelayedAnswer(5000, list)
    played.replicas.append(TOPIC, 0, broken, -1, 0, answer)
    assert answer.future is not None
    (outcome,) = await asyncio.wait_for(answer.future, 20)
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.CORRUPT_MESSAGE
    await played.close()


async def test_a_coordinator_append_waits_for_the_flush_of_its_topic(tmp_path: Path) -> None:
    played = Played(tmp_path, flush_messages=1)
    await played.lead()
    result = await played.replicas.append_batch(TOPIC, 0, one_batch(), 5000, AppendOrigin.COORDINATOR)
    assert result.base_offset == 0
    assert played.replicas.hosted[TOPIC, 0].log.recovery_point == 1
    await played.close()


class AtOnce(Executor):
    """A worker that has done its work before the loop has its next turn, and what happens in between."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        self._meanwhile()
        return done


async def test_a_flush_acknowledges_what_it_has_brought_to_disk_though_the_log_rolls_before_it_is_heard_of(
    tmp_path: Path,
) -> None:
    workers = Workers()
    workers.flushing = lambda _: AtOnce(append)  # type: ignore[assignment, method-assign]
    played = Played(tmp_path, workers=workers, flush_messages=3, segment_bytes=3 * len(one_batch()))
    await played.lead(replicas=(1, 2), isr=(1,))
    played.logs.background.close()  # it would have the closed segment synced once more
    answers: list[DelayedAnswer] = []

    def append() -> None:
        answers.append(DelayedAnswer(60_000, list))
        played.replicas.append(TOPIC, 0, one_batch(), 1, 0, answers[-1])

    for _ in range(3):
        append()
    last = answers[2].future
    assert last is not None
    assert [each.last_offset for each in await asyncio.wait_for(last, 20)] == [2]
    hosted = played.replicas.hosted[TOPIC, 0]
    assert (len(hosted.log.segments), hosted.log.log_end_offset) == (2, 4)
    await played.close()


@contextmanager
def busy(pool: ThreadPoolExecutor) -> Iterator[threading.Event]:
    """The pool's only thread has something else to do until the event is set."""
    go_on = threading.Event()
    pool.submit(go_on.wait, 10)
    try:
        yield go_on
    finally:
        go_on.set()


async def test_a_leader_demoted_while_it_recompresses_a_batch_does_not_write_it(tmp_path: Path) -> None:
    played = Played(tmp_path, workers=Workers(preparing_threads=1), compression_type="zstd")
    await played.lead(replicas=(1, 2), isr=(1,))
    with busy(played.replicas.workers.preparing):
        answer: Any = produce(played.services, played.ctx(11), request_for((0, one_batch(bytes(100_000)))))
        await asyncio.sleep(0.01)
        await played.lead(leader=2, replicas=(1, 2), leader_epoch=1, partition_epoch=1)
    (found,) = answers_of(await asyncio.wait_for(answer, 20))
    assert found.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    hosted = played.replicas.hosted[TOPIC, 0]
    assert (hosted.log.log_end_offset, hosted.log.high_watermark, hosted.state.high_watermark) == (0, 0, 0)
    await played.close()


async def test_a_leader_that_stood_still_while_it_recompressed_a_batch_does_not_write_it(tmp_path: Path) -> None:
    played = Played(tmp_path, workers=Workers(preparing_threads=1), compression_type="zstd")
    await played.lead()
    with busy(played.replicas.workers.preparing):
        answer: Any = produce(played.services, played.ctx(11), request_for((0, one_batch(bytes(100_000)))))
        await asyncio.sleep(0.01)
        played.replicas.is_leadership_unproven = lambda: True
    (found,) = answers_of(await asyncio.wait_for(answer, 20))
    assert found.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert played.replicas.hosted[TOPIC, 0].log.log_end_offset == 0
    await played.close()


async def test_a_leader_elected_again_while_it_recompresses_a_batch_writes_it_in_its_new_epoch(tmp_path: Path) -> None:
    played = Played(tmp_path, workers=Workers(preparing_threads=1), compression_type="zstd")
    await played.lead()
    with busy(played.replicas.workers.preparing):
        answer: Any = produce(played.services, played.ctx(11), request_for((0, one_batch(bytes(100_000)))))
        await asyncio.sleep(0.01)
        await played.lead(leader_epoch=5, partition_epoch=1)
    (found,) = answers_of(await asyncio.wait_for(answer, 20))
    assert found.error_code is ErrorCode.NONE
    _, header = next(played.replicas.hosted[TOPIC, 0].log.active_segment.headers())
    assert header.partition_leader_epoch == 5
    await played.close()


async def test_batches_that_take_long_to_unpack_do_not_hold_up_flushes(tmp_path: Path) -> None:
    played = Played(tmp_path, workers=Workers(preparing_threads=1), compression_type="zstd", flush_messages=1)
    await played.lead((0, 1))
    with busy(played.replicas.workers.preparing):
        slow: Any = produce(played.services, played.ctx(11), request_for((0, one_batch(bytes(100_000)))))
        quick: Any = produce(played.services, played.ctx(11), request_for((1, one_batch()), acks=1))
        (found,) = answers_of(await asyncio.wait_for(quick, 20))
        assert found.error_code is ErrorCode.NONE
        assert not slow.done()
    await asyncio.wait_for(slow, 20)
    await played.close()


class Behind(Files):
    """A disk that is so far behind that whoever writes to it waits."""

    __slots__ = ("goes_on", "is_asked")

    def __init__(self) -> None:
        self.is_asked, self.goes_on = threading.Event(), threading.Event()

    def pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        self.is_asked.set()
        assert self.goes_on.wait(20)
        return os.pwrite(descriptor, data, position)


class SlowDisk:
    """What the broker leads on a disk that is known to be slow, and what it is asked to append there."""

    def __init__(self, played: Played) -> None:
        self.played = played
        self.hosted = played.replicas.hosted[TOPIC, 0]
        pool = self.hosted.log.disk.pool
        pool.pace.note(time.monotonic() - SLOW_S)
        pool.files = self.files = Behind()

    def append(self, acks: int = -1, partition: int = 0) -> DelayedAnswer:
        answer = DelayedAnswer(60_000, list)
        self.played.replicas.append(TOPIC, partition, one_batch(), acks, 0, answer)
        assert answer.future is not None
        return answer

    async def until_it_writes(self) -> None:
        await until(self.files.is_asked.is_set)

    async def outcomes(self, *answers: DelayedAnswer) -> list[Any]:
        """The offsets that batches were given, or why they were not."""
        self.files.goes_on.set()
        results = []
        for answer in answers:
            assert answer.future is not None
            result = (await asyncio.wait_for(answer.future, 20))[0]
            results.append(result.code if isinstance(result, KafkaError) else result.base_offset)
        return results


@pytest.fixture
async def slow_disk(played: Played) -> SlowDisk:
    await played.lead()
    return SlowDisk(played)


async def test_the_loop_does_not_wait_for_a_disk_that_is_known_to_be_slow(slow_disk: SlowDisk) -> None:
    answers = [slow_disk.append(), slow_disk.append(acks=1)]
    await slow_disk.until_it_writes()
    answers.append(slow_disk.append())
    assert not any(answer.future.done() for answer in answers if answer.future is not None)
    assert slow_disk.hosted.log.log_end_offset == 0
    assert await slow_disk.outcomes(*answers) == [0, 1, 2]
    assert slow_disk.hosted.tail is None
    assert slow_disk.hosted.log.high_watermark == 3


async def test_a_partition_keeps_its_role_until_what_is_being_written_is_written(slow_disk: SlowDisk) -> None:
    played, hosted = slow_disk.played, slow_disk.hosted
    written = slow_disk.append()
    await slow_disk.until_it_writes()
    change = asyncio.ensure_future(played.lead(leader_epoch=1, partition_epoch=1))
    await until(lambda: hosted.changing is not None)
    waits = slow_disk.append()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (change.done(), hosted.state.leader_epoch) == (False, 0)
    assert await slow_disk.outcomes(written, waits) == [0, 1]
    await change
    assert hosted.log.leader_epochs.entries == ((0, 0), (1, 1))


async def test_nothing_is_written_to_a_partition_whose_change_of_role_waits_for_another_one(played: Played) -> None:
    await played.lead((0, 1))
    slow_disk, hosted = SlowDisk(played), played.replicas.hosted[TOPIC, 0]
    written = slow_disk.append(partition=1)
    await slow_disk.until_it_writes()
    change = asyncio.ensure_future(played.lead((0, 1), leader_epoch=1, partition_epoch=1))
    await until(lambda: hosted.changing is not None)
    waits = slow_disk.append()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (change.done(), hosted.log.log_end_offset) == (False, 0)
    assert await slow_disk.outcomes(written, waits) == [0, 0]
    await change
    assert hosted.log.leader_epochs.entries == ((1, 0),)


async def test_a_disk_that_hangs_keeps_no_partition_elsewhere_from_its_role(tmp_path: Path) -> None:
    played = Played(tmp_path, more_dirs=("other",))
    for partition, name in enumerate(("logs", "other")):
        played.logs.prefer(TOPIC, partition, str(tmp_path / name))
    await played.lead((0, 1))
    slow_disk, elsewhere = SlowDisk(played), played.replicas.hosted[TOPIC, 1]
    written = slow_disk.append()
    await slow_disk.until_it_writes()
    played.changes.clear()
    change = asyncio.ensure_future(played.lead((0, 1), leader_epoch=1, partition_epoch=1))
    await until(lambda: slow_disk.hosted.changing is not None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (change.done(), elsewhere.state.leader_epoch) == (False, 1)
    assert [elected for elected, _ in played.changes] == [[(TOPIC, 1)]]
    assert await slow_disk.outcomes(written) == [0]
    await change
    assert slow_disk.hosted.state.leader_epoch == 1
    await played.close()


async def test_a_replica_is_stopped_when_what_is_being_written_is_written(slow_disk: SlowDisk) -> None:
    replicas, hosted = slow_disk.played.replicas, slow_disk.hosted
    written = slow_disk.append(acks=1)
    await slow_disk.until_it_writes()
    state = StopReplicaRequest.StopReplicaPartitionState(partition_index=0, leader_epoch=1, delete_partition=False)
    topic = StopReplicaRequest.StopReplicaTopicState(topic_name=TOPIC, partition_states=[state])
    order = StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=7, topic_states=[topic])
    stop = asyncio.ensure_future(replicas.stop_replicas(order))
    for _ in range(10):
        await asyncio.sleep(0)
    assert (stop.done(), replicas.replica(TOPIC, 0)) == (False, hosted)
    assert await slow_disk.outcomes(written) == [0]
    await stop
    assert replicas.replica(TOPIC, 0) is None


async def test_what_waits_for_a_slow_disk_is_refused_by_a_broker_that_leads_no_more(slow_disk: SlowDisk) -> None:
    played, hosted = slow_disk.played, slow_disk.hosted
    written = slow_disk.append()
    await slow_disk.until_it_writes()
    waits = slow_disk.append()
    change = asyncio.ensure_future(played.lead(leader=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2)))
    await until(lambda: hosted.changing is not None)
    assert await slow_disk.outcomes(written, waits) == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    await change
    assert (hosted.log.log_end_offset, hosted.changing, hosted.write) == (1, None, None)


async def test_what_was_told_that_its_time_is_over_is_not_appended_any_more(slow_disk: SlowDisk) -> None:
    written = slow_disk.append()
    await slow_disk.until_it_writes()
    late, unanswered = DelayedAnswer(50, list), DelayedAnswer(50, list)
    slow_disk.played.replicas.append(TOPIC, 0, one_batch(), -1, 0, late)
    slow_disk.played.replicas.append(TOPIC, 0, one_batch(), 0, 0, unanswered)
    assert late.future is not None
    assert [error.code for error in await late.future] == [ErrorCode.REQUEST_TIMED_OUT]
    assert await slow_disk.outcomes(written, slow_disk.append()) == [0, 2], "nobody sends anew what nobody heard of"


async def test_where_no_thread_can_be_had_the_loop_writes_and_nothing_is_written_later(
    slow_disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_disk.files.goes_on.set()
    no_more_threads(monkeypatch)
    assert await slow_disk.outcomes(slow_disk.append()) == [0]
    monkeypatch.undo()
    log = slow_disk.hosted.log
    slow_disk.played.replicas.workers.appending(log.log_dir).submit(lambda: None).result(20)
    assert log.log_end_offset == 1


async def test_a_stop_waits_for_what_threads_append(slow_disk: SlowDisk) -> None:
    answers = [slow_disk.append() for _ in range(3)]
    await slow_disk.until_it_writes()
    stop = asyncio.ensure_future(slow_disk.played.replicas.shutdown())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not stop.done()
    assert await slow_disk.outcomes(*answers) == [0, 1, 2]
    await asyncio.wait_for(stop, 20)
