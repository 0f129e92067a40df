from __future__ import annotations

import asyncio
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from kbroker.handlers.offsets import delete_records, list_offsets, offset_for_leader_epoch
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kbroker.protocol.records.builder import BatchBuilder
from tests.fixtures.data_path import TOPIC, Played, one_batch
from tests.kbroker.asking import told
from tests.kbroker.handlers.test_fetch import ask, fetch_request


@pytest.fixture(autouse=True)
def _long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests ask is answered at once, also where they have to share a processor."""
    monkeypatch.setattr("kbroker.replica.turns.TURN_S", 10)


async def list_one(played: Played, timestamp: int, version: int = 9, times: int = 1, **arguments: Any) -> Any:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **arguments)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[wanted] * times)]
    )
    answer: Any = list_offsets(played.services, played.ctx(version), request)
    if isawaitable(answer):
        answer = await answer
    return told(answer, version).topics[0].partitions[0]


def fill(played: Played, *timestamps: int) -> None:
    replica = played.replicas.replica(TOPIC, 0)
    assert replica is not None
    for timestamp in timestamps:
        result = replica.log.append_as_leader(one_batch(timestamp=timestamp), replica.state.leader_epoch, 0)
        replica.log_grew(result.last_offset + 1, 0, played.metadata.brokers)


async def test_special_timestamps_find_the_ends_and_the_largest(played: Played) -> None:
    await played.lead()
    fill(played, 100, 300, 200)
    found = {time: await list_one(played, time) for time in (-1, -2, -3, -4, -5)}
    assert {time: (each.offset, each.timestamp) for time, each in found.items()} == {
        -1: (3, -1),
        -2: (0, -1),
        -3: (1, 300),
        -4: (0, -1),
        -5: (-1, -1),
    }
    assert found[-1].leader_epoch == 0


async def test_the_latest_offset_is_what_the_isolation_level_lets_read(played: Played) -> None:
    await played.lead(replicas=(1, 2), isr=(1, 2))
    builder = BatchBuilder()
    builder.append(b"k", b"value", (), 1_000)
    hosted = played.replicas.hosted[TOPIC, 0]
    for records in (one_batch(), builder.build(7, 0, 0, transactional=True), one_batch()):
        result = hosted.log.append_as_leader(records, 0, 0)
        hosted.log_grew(result.last_offset + 1, 0, played.metadata.brokers)

    def latest(isolation_level: int) -> int:
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
        answer: Any = told(list_offsets(played.services, played.ctx(9), request), 9)
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    assert (latest(0), latest(1)) == (0, 0)
    ask(played, fetch_request((0, 2), replica_id=2, current_leader_epoch=0))
    assert (hosted.log.log_end_offset, latest(0), latest(1)) == (3, 2, 1)


async def test_a_time_finds_the_first_record_at_or_after_it(played: Played) -> None:
    await played.lead()
    fill(played, 100, 200, 300)
    assert [(await list_one(played, time)).offset for time in (0, 100, 101, 300, 301)] == [0, 0, 1, 2, -1]


async def test_times_are_looked_for_in_the_threads_of_the_disk_and_the_answer_is_bound_by_what_is_committed(
    played: Played,
) -> None:
    await played.lead()
    fill(played, 100, 200, 300)
    replica = played.replicas.replica(TOPIC, 0)
    assert replica is not None
    pool: Any = played.replicas.workers.reading(replica.log.log_dir)
    assert not pool._threads
    asked = asyncio.ensure_future(list_one(played, 300))
    await asyncio.sleep(0)
    replica.log.update_high_watermark(2)
    assert (await asked).offset == -1
    assert pool._threads


def flip_last_byte(path: str) -> None:
    file = Path(path)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


async def test_a_damaged_batch_answers_a_search_with_its_error(played: Played) -> None:
    await played.lead()
    fill(played, 100)
    replica = played.replicas.replica(TOPIC, 0)
    assert replica is not None
    flip_last_byte(replica.log.active_segment.file.path)
    assert (await list_one(played, 100)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert (await list_one(played, -1)).offset == 1


async def test_what_the_version_does_not_know_is_refused(played: Played) -> None:
    await played.lead()
    assert (await list_one(played, -3, version=6)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await list_one(played, -6)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await list_one(played, -1, times=2)).error_code == ErrorCode.INVALID_REQUEST
    assert (await list_one(played, -1, current_leader_epoch=4)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_new_leader_does_not_guess_the_end(played: Played) -> None:
    await played.lead(replicas=(1, 2), isr=(1, 2))
    fill(played, 100)
    await played.lead(replicas=(1, 2), isr=(1, 2), leader_epoch=1, partition_epoch=1)
    assert (await list_one(played, -1)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert (await list_one(played, -1, version=4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (await list_one(played, -2)).error_code == ErrorCode.NONE


async def test_the_end_of_a_leader_epoch(played: Played) -> None:
    await played.lead()
    fill(played, 1, 2)
    await played.lead(leader_epoch=5, partition_epoch=1)
    fill(played, 3)

    def end_of(epoch: int) -> tuple[int, int, int]:
        request = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic=TOPIC,
                    partitions=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                            partition=0, current_leader_epoch=5, leader_epoch=epoch
                        )
                    ],
                )
            ]
        )
        answer = offset_for_leader_epoch(played.services, played.ctx(4), request)
        found = told(answer, 4).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    assert [end_of(epoch) for epoch in (0, 3, 5, 6)] == [(0, 0, 2), (0, 0, 2), (0, 5, 3), (0, -1, -1)]


def deletion(offset: int, timeout_ms: int = 1000, topic: str = TOPIC) -> Any:
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=timeout_ms
    )


def delete(played: Played, offset: int) -> Any:
    return told(delete_records(played.services, played.ctx(2), deletion(offset)), 2).topics[0].partitions[0]


async def test_records_are_deleted_up_to_an_offset_or_the_high_watermark(played: Played) -> None:
    await played.lead()
    fill(played, 1, 2, 3)
    assert (delete(played, 2).error_code, delete(played, 2).low_watermark) == (0, 2)
    assert (await list_one(played, -2)).offset == 2
    assert delete(played, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(played, -1).low_watermark == 3


async def test_a_compacted_topic_refuses_deletion(tmp_path: Path) -> None:
    played = Played(tmp_path, cleanup_policy=("compact",))
    await played.lead()
    fill(played, 1)
    assert delete(played, 1).error_code == ErrorCode.POLICY_VIOLATION
    await played.close()


async def test_deletion_is_answered_when_the_followers_have_done_it_too(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    fill(played, 1, 2)
    follower: dict[str, Any] = {"replica_id": 2, "current_leader_epoch": 0}
    ask(played, fetch_request((0, 2), log_start_offset=0, **follower))
    waiting: Any = delete_records(played.services, played.ctx(2), deletion(1, timeout_ms=5_000))
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0.01)
    assert not task.done()
    ask(played, fetch_request((0, 2), log_start_offset=1, **follower))
    (topic,) = told(await asyncio.wait_for(task, 20), 2).topics
    assert (topic.partitions[0].error_code, topic.partitions[0].low_watermark) == (0, 1)


async def test_records_are_deleted_in_turns_however_often_a_partition_is_named(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.handlers.offsets.in_turns", drained)
    await played.lead()
    fill(played, 1, 2)
    wanted = deletion(1)
    wanted.topics[0].partitions *= 100
    steps.clear()
    answer = told(delete_records(played.services, played.ctx(2), wanted), 2).topics[0].partitions
    assert [each.low_watermark for each in answer] == [1] * 100
    assert steps == [1 + 100 + 100 + 1 + 100], "to move the log's start, to see who is behind, and for the answer"


async def test_offsets_by_time_of_many_partitions_are_gathered_in_turns(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.handlers.offsets.in_turns", drained)
    await played.lead()
    fill(played, 100)
    steps.clear()
    await list_one(played, 100, times=300)
    assert steps == [301, 301], "the topic and each partition are a step of looking for logs, and one of the answer"


steps: list[int] = []


def drained(work: Any) -> Any:
    """Run to the end and note how many steps that took."""
    taken = 0
    while True:
        try:
            next(work)
            taken += 1
        except StopIteration as end:
            steps.append(taken)
            return end.value
