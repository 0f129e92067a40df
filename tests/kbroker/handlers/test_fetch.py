from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from kbroker import handlers
from kbroker.handlers.fetch import fetch
from kbroker.handlers.produce import produce
from kbroker.network.dispatch import Dispatcher
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import encode_request
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.replica.fetching import LONGEST_WAIT_MS, FetchParameters
from kbroker.replica.reply import Reply
from tests.fixtures.data_path import TOPIC, TOPIC_ID, Played, one_batch
from tests.kbroker.handlers.test_produce import request_for
from tests.kbroker.network.serving import connected, serving, until
from tests.protocol.frames import joined

pytestmark = pytest.mark.usefixtures("pace")

NO_SESSION = (0, -1)


@pytest.fixture(params=["at once", "in turns"])
def pace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Few partitions are read at once, very many in turns: the answers are the same."""
    if request.param == "in turns":
        monkeypatch.setattr("kbroker.replica.fetching.MOST_AT_ONCE", 0)
        monkeypatch.setattr("kbroker.replica.fetching.READ_PORTION", 0)
        monkeypatch.setattr("kbroker.replica.turns.PORTION", 1)
        monkeypatch.setattr("kbroker.replica.turns.TURN_S", 10)  # one turn is enough for all of them
        monkeypatch.setattr(Played, "ctx", large(Played.ctx))
    return str(request.param)


def large(make: Any) -> Any:
    def make_large(*arguments: Any, **keywords: Any) -> Any:
        ctx = make(*arguments, **keywords)
        ctx.is_large = True
        return ctx

    return make_large


def fetch_request(
    *partitions: tuple[int, int],
    session: tuple[int, int] = NO_SESSION,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    topic_id: bytes = TOPIC_ID,
    replica_id: int = -1,
    **partition: Any,
) -> Any:
    wanted = [
        FetchRequest.FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=partition_max_bytes, **partition
        )
        for number, offset in partitions
    ]
    return FetchRequest(
        replica_id=replica_id,
        replica_state=FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=-1),
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchRequest.FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=wanted)] if wanted else [],
        forgotten_topics_data=[],
    )


def ask(played: Played, request: Any, version: int = 17) -> Any:
    return fetch(played.services, played.ctx(version), request)


def partitions_of(response: Any) -> list[Any]:
    return [partition for topic in response.responses for partition in topic.partitions]


def append(played: Played, partition: int = 0, *values: bytes) -> None:
    answer: Any = produce(played.services, played.ctx(11), request_for((partition, one_batch(*values)), acks=1))
    assert answer.responses[0].partition_responses[0].error_code == 0


async def test_records_come_back_as_they_were_appended(played: Played) -> None:
    await played.lead()
    append(played, 0, b"a", b"b")
    append(played, 0, b"c")
    (found,) = partitions_of(ask(played, fetch_request((0, 0))))
    assert (found.error_code, found.high_watermark, found.last_stable_offset, found.log_start_offset) == (0, 3, 3, 0)
    assert found.aborted_transactions is None
    assert len(found.records.read()) == len(one_batch(b"a", b"b")) + len(one_batch(b"c"))


async def test_one_whole_batch_is_sent_above_every_limit(played: Played) -> None:
    await played.lead((0, 1))
    append(played, 0, bytes(5000))
    append(played, 1, bytes(5000))
    first, second = partitions_of(ask(played, fetch_request((0, 0), (1, 0), max_bytes=10, partition_max_bytes=10)))
    assert len(first.records) > 5000
    assert len(second.records) == 0


async def test_read_committed_lists_no_aborted_transactions_as_an_empty_list(played: Played) -> None:
    await played.lead()
    append(played)
    (found,) = partitions_of(ask(played, fetch_request((0, 0), isolation_level=1)))
    assert found.aborted_transactions == []
    assert len(found.records) > 0


async def test_each_mistake_has_its_error(played: Played) -> None:
    await played.lead((0,))
    played.tell(TOPIC, TOPIC_ID, [1], leader=2)
    append(played)

    def error(*partitions: tuple[int, int], **arguments: Any) -> ErrorCode:
        (found,) = partitions_of(ask(played, fetch_request(*partitions, **arguments)))
        assert len(found.records) == 0
        return ErrorCode(found.error_code)

    assert error((0, 2)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert error((0, -1)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert error((1, 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error((9, 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error((0, 0), topic_id=bytes(15) + b"x") is ErrorCode.UNKNOWN_TOPIC_ID
    assert error((0, 0), current_leader_epoch=1) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert error((0, 0), replica_id=5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await played.lead(leader_epoch=3, partition_epoch=1)
    assert error((0, 0), current_leader_epoch=1) is ErrorCode.FENCED_LEADER_EPOCH


async def test_the_new_leader_is_named_with_its_endpoint(played: Played) -> None:
    played.tell(TOPIC, TOPIC_ID, [1], leader=2, leader_epoch=4)
    answer = ask(played, fetch_request((1, 0)))
    (found,) = partitions_of(answer)
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (2, 4)
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(2, 9002)]


async def test_a_diverging_epoch_is_told_without_records(played: Played) -> None:
    await played.lead()
    append(played, 0, b"a", b"b")
    await played.lead(leader_epoch=5, partition_epoch=1)
    append(played, 0, b"c")
    (found,) = partitions_of(ask(played, fetch_request((0, 3), last_fetched_epoch=3)))
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 2)
    assert len(found.records) == 0
    (found,) = partitions_of(ask(played, fetch_request((0, 2), last_fetched_epoch=0)))
    assert found.diverging_epoch.epoch == -1
    assert len(found.records) > 0


async def test_an_append_wakes_a_waiting_consumer(played: Played) -> None:
    await played.lead()
    waiting = ask(played, fetch_request((0, 0), max_wait_ms=60_000))
    assert isinstance(waiting, Reply)
    append(played)
    (found,) = partitions_of(await asyncio.wait_for(waiting, 20))
    assert len(found.records) > 0
    replica = played.replicas.replica(TOPIC, 0)
    assert replica is not None
    assert not replica.consumers


async def test_a_fetch_waits_for_min_bytes_until_its_time_is_over(played: Played) -> None:
    await played.lead((0, 1))
    began = time.monotonic()
    waiting = ask(played, fetch_request((0, 0), (1, 0), max_wait_ms=60, min_bytes=100_000))
    append(played)
    first, second = partitions_of(await asyncio.wait_for(waiting, 20))
    assert time.monotonic() - began > 0.055
    assert len(first.records) > 0
    assert len(second.records) == 0


async def test_min_bytes_are_counted_over_all_partitions(played: Played) -> None:
    await played.lead((0, 1))
    waiting = ask(played, fetch_request((0, 0), (1, 0), max_wait_ms=60_000, min_bytes=1_500))
    append(played, 0, bytes(1000))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    append(played, 1, bytes(1000))
    assert [len(each.records) > 1000 for each in partitions_of(await asyncio.wait_for(waiting, 20))] == [True, True]


async def test_losing_the_leadership_answers_a_waiting_follower(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    waiting = ask(played, fetch_request((0, 0), max_wait_ms=60_000, replica_id=2, current_leader_epoch=0))
    assert isinstance(waiting, Reply)
    await played.lead(replicas=(1, 2), leader=2, leader_epoch=1, partition_epoch=1)
    (found,) = partitions_of(await asyncio.wait_for(waiting, 20))
    assert found.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_follower_reads_to_the_log_end_and_moves_the_high_watermark(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    append(played)
    assert len(partitions_of(ask(played, fetch_request((0, 0))))[0].records) == 0
    follower: dict[str, Any] = {"replica_id": 2, "current_leader_epoch": 0}
    (found,) = partitions_of(ask(played, fetch_request((0, 0), **follower)))
    assert len(found.records) > 0
    assert found.high_watermark == 0
    consumer = ask(played, fetch_request((0, 0), max_wait_ms=60_000))
    acknowledged = produce(played.services, played.ctx(11), request_for((0, one_batch())))
    assert asyncio.isfuture(acknowledged)
    ask(played, fetch_request((0, 2), **follower))
    assert partitions_of(await asyncio.wait_for(consumer, 20))[0].high_watermark == 2
    response: Any = await asyncio.wait_for(acknowledged, 20)
    assert response.responses[0].partition_responses[0].error_code == 0


async def test_an_incremental_session_answers_changes_only(played: Played) -> None:
    await played.lead((0, 1, 2))
    append(played, 1)
    first = ask(played, fetch_request((0, 0), (1, 0), (2, 0), session=(0, 0)))
    assert [each.partition_index for each in partitions_of(first)] == [0, 1, 2]
    session = first.session_id
    assert session > 0
    assert partitions_of(ask(played, fetch_request((1, 1), session=(session, 1)))) == []
    append(played, 2)
    answer = ask(played, fetch_request(session=(session, 2)))
    assert [(each.partition_index, len(each.records) > 0) for each in partitions_of(answer)] == [(2, True)]
    assert answer.session_id == session
    assert ask(played, fetch_request(session=(session, 9))).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(played, fetch_request(session=(99, 1))).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_with_nothing_new_waits_and_is_woken(played: Played) -> None:
    await played.lead((0, 1))
    session = ask(played, fetch_request((0, 0), (1, 0), session=(0, 0))).session_id
    waiting = ask(played, fetch_request(session=(session, 1), max_wait_ms=60_000))
    assert isinstance(waiting, Reply)
    append(played, 1)
    assert [each.partition_index for each in partitions_of(await asyncio.wait_for(waiting, 20))] == [1]


async def test_a_bit_flipped_on_disk_is_never_served_as_another_batch(tmp_path: Path, caplog: Any) -> None:
    played = Played(tmp_path)
    await played.lead((0, 1))
    append(played, 0, b"a")
    append(played, 1, b"b")
    replica = played.replicas.replica(TOPIC, 0)
    assert replica is not None
    file = next(replica.log.directory.glob("*.log"))
    flipped = bytearray(file.read_bytes())
    flipped[8:12] = b"\xff\xff\xff\xff"
    file.write_bytes(flipped)
    first, second = partitions_of(ask(played, fetch_request((0, 0), (1, 0))))
    assert len(second.records) > 0
    if first.error_code:
        assert "orders-0" in caplog.text
    await played.close()


async def test_an_old_version_names_topics_and_has_no_session(played: Played) -> None:
    await played.lead()
    append(played)
    answer = ask(played, fetch_request((0, 0)), version=4)
    assert [topic.topic for topic in answer.responses] == [TOPIC]
    assert answer.session_id == 0


async def test_a_partition_named_often_is_read_once_where_it_was_named_last(played: Played) -> None:
    await played.lead((0, 1))
    append(played, 0, b"a")
    append(played, 0, b"b")
    append(played, 1, b"c")
    for session in ((0, 0), NO_SESSION):
        found = partitions_of(ask(played, fetch_request((0, 0), (1, 0), (0, 2), (0, 1), session=session)))
        assert [each.partition_index for each in found] == [0, 1]
        assert len(found[0].records) == len(one_batch(b"b"))


async def test_waiting_looks_again_only_at_the_partitions_that_have_changed(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    await played.lead(range(50))
    looks: list[int] = []
    find = played.replicas.find

    def noting(topic: str, partition: int) -> Any:
        looks.append(partition)
        return find(topic, partition)

    monkeypatch.setattr(played.replicas, "find", noting)
    answer = ask(played, fetch_request(*((p, 0) for p in range(50)), max_wait_ms=60_000, min_bytes=19_000))
    assert looks == list(range(50))
    looks.clear()
    for _ in range(17):
        append(played, 7, bytes(1000))
        await asyncio.sleep(0.002)
    assert set(looks) == {7}
    assert not answer.done()
    append(played, 8, bytes(1000))
    found = partitions_of(await asyncio.wait_for(answer, 20))
    assert [len(each.records) > 0 for each in found[6:10]] == [False, True, True, False]


async def test_a_wait_begins_anew_whenever_too_little_came_but_never_for_long(played: Played) -> None:
    await played.lead()
    size = len(one_batch(bytes(100)))
    answer = ask(played, fetch_request((0, 0), max_wait_ms=60_000, min_bytes=size * 40))
    for _ in range(40):
        assert not answer.done()
        append(played, 0, bytes(100))
        await asyncio.sleep(0.001)
    (found,) = partitions_of(await asyncio.wait_for(answer, 20))
    assert len(found.records) == size * 40


async def test_nobody_waits_longer_than_a_broker_keeps_an_idle_request() -> None:
    request = fetch_request((0, 0), max_wait_ms=(1 << 31) - 1)
    assert FetchParameters(request, 17, "PLAINTEXT", 0, 1000).max_wait_ms == LONGEST_WAIT_MS


async def test_a_fetch_that_waits_ends_when_its_client_goes(played: Played) -> None:
    await played.lead()
    hosted = played.replicas.hosted[TOPIC, 0]
    handlers.load_all()
    async with serving(Dispatcher(played.services)) as server, connected(server) as client:
        parts = encode_request(fetch_request((0, 0), max_wait_ms=60_000), 17, 1, "test")
        client.send(joined(parts))
        await until(lambda: bool(hosted.consumers))
        await client.close()
        await until(lambda: not hosted.consumers)
        await until(lambda: not server.connections)


async def test_all_partitions_together_stay_below_the_requests_limit(played: Played) -> None:
    await played.lead((0, 1, 2))
    for partition in range(3):
        append(played, partition, bytes(100))
    one = len(partitions_of(ask(played, fetch_request((0, 0))))[0].records)
    answer = ask(played, fetch_request((0, 0), (1, 0), (2, 0), max_bytes=2 * one))
    assert [len(each.records) for each in partitions_of(answer)] == [one, one, 0]
