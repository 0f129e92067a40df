from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.config.broker_config import BrokerConfig
from kbroker.protocol.errors import ErrorCode
from kbroker.replica.fetching import NOTE_INTERVAL_MS, FetchParameters
from kbroker.replica.partition import ProposeIsr
from kbroker.replica.replica_manager import FOLLOWERS_EXPECTED_MS
from kbroker.segment.log import Log
from tests.fixtures.data_path import Played, one_batch
from tests.kbroker.handlers.test_fetch import append, ask, fetch_request, partitions_of


def test_a_consumer_is_held_to_fetch_max_bytes_and_a_follower_is_not() -> None:
    request = fetch_request(max_bytes=1 << 30, min_bytes=1 << 29)
    parameters = FetchParameters(request, 17, "PLAINTEXT", 0, 1000)
    assert (parameters.max_bytes, parameters.min_bytes, parameters.is_follower) == (1000, 1000, False)
    follower = FetchParameters(fetch_request(max_bytes=1 << 30, replica_id=2), 17, "PLAINTEXT", 0, 1000)
    assert (follower.max_bytes, follower.is_follower) == (1 << 30, True)


async def test_the_budget_shrinks_from_partition_to_partition(played: Played) -> None:
    await played.lead((0, 1, 2))
    for partition in (0, 1, 2):
        append(played, partition, bytes(1000))
    sizes = [
        len(each.records) for each in partitions_of(ask(played, fetch_request((0, 0), (1, 0), (2, 0), max_bytes=2300)))
    ]
    assert sizes[0] > 1000
    assert sizes[1] > 1000
    assert sizes[2] == 0


async def test_an_idle_partition_of_a_session_is_not_read_again(played: Played) -> None:
    await played.lead((0, 1))
    session = ask(played, fetch_request((0, 0), (1, 0), session=(0, 0))).session_id
    context: Any = played.replicas.sessions.sessions[session]
    hosted = [target.hosted for target in context.targets.values()]
    assert [target.seen_changes for target in context.targets.values()] == [each.changes for each in hosted]


async def test_a_selector_sends_the_consumer_to_another_replica(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    append(played)

    played.replicas.replica_selector = lambda hosted, rack, listener, fetch_offset: 2
    (found,) = partitions_of(ask(played, fetch_request((0, 0), max_wait_ms=5000)))
    assert (found.preferred_read_replica, len(found.records)) == (2, 0)


async def test_a_follower_serves_consumers_up_to_its_high_watermark(played: Played) -> None:
    await played.lead()
    append(played)
    await played.lead(replicas=(1, 2), leader=2, leader_epoch=1, partition_epoch=1)
    (found,) = partitions_of(ask(played, fetch_request((0, 0))))
    assert len(found.records) > 0
    (refused,) = partitions_of(ask(played, fetch_request((0, 0)), version=10))
    assert refused.error_code == 6


async def test_a_consumer_on_a_follower_waits_for_the_high_watermark_and_is_woken_by_it(played: Played) -> None:
    await played.lead()
    append(played, 0, b"a")
    append(played, 0, b"b")
    await played.lead(replicas=(1, 2), leader=2, leader_epoch=1, partition_epoch=1)
    hosted = played.replicas.replica("orders", 0)
    assert hosted is not None
    hosted.state.high_watermark = 1
    hosted.high_watermark_moved()
    (found,) = partitions_of(ask(played, fetch_request((0, 0))))
    assert (found.high_watermark, len(found.records)) == (1, len(one_batch(b"a")))
    answer = ask(played, fetch_request((0, 1), max_wait_ms=60_000))
    hosted.state.follower_log_changed(2, 2, 0)
    hosted.high_watermark_moved()
    (found,) = partitions_of(await asyncio.wait_for(answer, 20))
    assert (found.high_watermark, len(found.records)) == (2, len(one_batch(b"b")))
    (beyond,) = partitions_of(ask(played, fetch_request((0, 3))))
    assert beyond.error_code == 1


async def test_an_appended_record_reaches_a_follower_whose_session_had_seen_everything(played: Played) -> None:
    await played.lead(replicas=(1, 2), isr=(1, 2))
    session = ask(played, fetch_request((0, 0), session=(0, 0), replica_id=2)).session_id
    answer = ask(played, fetch_request(session=(session, 1), replica_id=2, max_wait_ms=60_000))
    append(played)
    (found,) = partitions_of(await asyncio.wait_for(answer, 20))
    assert len(found.records) > 0


def counted(played: Played, partitions: Iterable[int]) -> list[int]:
    """Count how often each partition is read from now on."""
    reads = []
    for partition in partitions:
        hosted = played.replicas.replica("orders", partition)
        assert hosted is not None
        reads.append(0)
        hosted.log = Counted(hosted.log, reads, len(reads) - 1)  # type: ignore[assignment]
    return reads


class Counted:
    """A log that counts its reads."""

    def __init__(self, log: Any, reads: list[int], place: int) -> None:
        self._log, self._reads, self._place = log, reads, place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, *arguments: Any) -> Any:
        self._reads[self._place] += 1
        return self._log.read(*arguments)


async def test_what_wakes_a_fetch_is_read_once_and_nothing_else_again(played: Played) -> None:
    await played.lead((0, 1, 2))
    append(played, 2, b"there before")
    answer = ask(played, fetch_request((0, 0), (1, 0), (2, 0), max_wait_ms=60_000, min_bytes=100))
    reads = counted(played, (0, 1, 2))
    append(played, 1, bytes(100))
    found = {each.partition_index: len(each.records) for each in partitions_of(await asyncio.wait_for(answer, 20))}
    assert found == {0: 0, 1: len(one_batch(bytes(100))), 2: len(one_batch(b"there before"))}
    assert reads == [0, 1, 0]


@pytest.mark.parametrize("replica_id", [-1, 2])
async def test_what_a_segment_has_to_its_end_is_not_kept_back_for_want_of_more(tmp_path: Path, replica_id: int) -> None:
    played = Played(tmp_path, segment_bytes=2_000)
    await played.lead(replicas=(1, 2) if replica_id > 0 else (1,))
    played.now += FOLLOWERS_EXPECTED_MS
    for _ in range(3):
        append(played, 0, bytes(900))
    size = len(one_batch(bytes(900)))
    wanted: dict[str, Any] = {"max_wait_ms": 60_000, "min_bytes": 1 << 19, "replica_id": replica_id}
    (found,) = partitions_of(ask(played, fetch_request((0, 0), **wanted)))
    assert len(found.records) == 2 * size
    waiting = ask(played, fetch_request((0, 2), **wanted))
    append(played, 0, bytes(900))
    await asyncio.sleep(0.1)
    assert not waiting.done(), "this segment may still grow"
    append(played, 0, bytes(900))
    (found,) = partitions_of(await asyncio.wait_for(waiting, 30))
    assert len(found.records) == 2 * size
    await played.close()


async def a_portion_in_each_turn(work: Any) -> Any:
    """What `in_turns` does where each portion takes as long as a turn may."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value
        await asyncio.sleep(0)


@pytest.mark.parametrize("replica_id", [-1, 2])
@pytest.mark.parametrize("is_incremental", [False, True])
async def test_what_comes_to_a_partition_that_was_read_while_others_are_read_is_not_waited_for(
    played: Played, monkeypatch: pytest.MonkeyPatch, replica_id: int, is_incremental: bool
) -> None:
    monkeypatch.setattr("kbroker.replica.fetching.MOST_AT_ONCE", 1)
    monkeypatch.setattr("kbroker.replica.fetching.in_turns", a_portion_in_each_turn)
    monkeypatch.setattr("kbroker.replica.fetching.READ_PORTION", 1)
    await played.lead((0, 1, 2), replicas=(1, 2) if replica_id > 0 else (1,))
    played.now += FOLLOWERS_EXPECTED_MS
    wanted = [(0, 0), (1, 0), (2, 0)]
    session = (0, -1)
    if is_incremental:
        made = await ask(played, fetch_request(*wanted, session=(0, 0), replica_id=replica_id))
        wanted, session = [], (made.session_id, 1)
    fetched = ask(played, fetch_request(*wanted, session=session, max_wait_ms=60_000, replica_id=replica_id))
    answer = asyncio.ensure_future(fetched)
    for _ in range(2):
        await asyncio.sleep(0)  # it looks at the first partition, and at the next ones later
    append(played, 0)
    found = {each.partition_index: len(each.records) for each in partitions_of(await asyncio.wait_for(answer, 30))}
    assert found[0] > 0


@pytest.mark.parametrize("replica_id", [-1, 2])
async def test_a_fetch_of_very_many_partitions_that_begins_to_wait_does_not_read_them_all_again(
    played: Played, monkeypatch: pytest.MonkeyPatch, replica_id: int
) -> None:
    monkeypatch.setattr("kbroker.replica.fetching.MOST_AT_ONCE", 1)
    monkeypatch.setattr("kbroker.replica.fetching.in_turns", a_portion_in_each_turn)
    await played.lead((0, 1, 2), replicas=(1, 2) if replica_id > 0 else (1,))
    for partition in (0, 1, 2):
        append(played, partition)  # records, and high watermarks that nobody was told of
    played.now += FOLLOWERS_EXPECTED_MS
    reads = counted(played, (0, 1, 2))
    wanted = fetch_request((0, 0), (1, 0), (2, 0), max_wait_ms=60_000, min_bytes=1 << 19, replica_id=replica_id)
    answer = asyncio.ensure_future(ask(played, wanted))
    hosted = played.replicas.replica("orders", 0)
    assert hosted is not None
    (waiting,) = await some(lambda: hosted.followers if replica_id > 0 else hosted.consumers)
    waiting.touch(hosted)
    for _ in range(3):
        await asyncio.sleep(0)
    assert reads == [2, 1, 1]
    answer.cancel()


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_very_many_changes_are_looked_at_in_turns_and_what_comes_meanwhile_is_in_the_answer_too(
    played: Played, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    monkeypatch.setattr("kbroker.replica.fetching.READ_PORTION", 1)
    monkeypatch.setattr("kbroker.replica.fetching.in_turns", a_portion_in_each_turn)
    await played.lead((0, 1, 2))
    size = len(one_batch())
    answer = ask(played, fetch_request((0, 0), (1, 0), (2, 0), max_wait_ms=60_000, min_bytes=3 * size))
    reads = counted(played, (0, 1, 2))
    for partition in (0, 1, 2):
        append(played, partition)
    for _ in range(3):
        await asyncio.sleep(0)
    assert reads == [1, 1, 0], "one in each turn"
    if meanwhile:
        append(played, 0)
    found = {each.partition_index: len(each.records) for each in partitions_of(await asyncio.wait_for(answer, 20))}
    assert found == {0: 2 * size if meanwhile else size, 1: size, 2: size}
    assert reads == ([2, 2, 2] if meanwhile else [1, 1, 1])


async def some(look: Callable[[], Any]) -> Any:
    """Wait until there is something to see, and return it."""
    async with asyncio.timeout(30):
        while not look():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return look()


async def test_what_comes_while_a_fetch_pauses_is_in_its_answer_when_the_time_is_over(played: Played) -> None:
    await played.lead()
    answer = ask(played, fetch_request((0, 0), max_wait_ms=60_000, min_bytes=1 << 19))
    hosted = played.replicas.replica("orders", 0)
    assert hosted is not None
    (waiting,) = hosted.consumers
    append(played, 0, b"looked at")
    await asyncio.sleep(0)
    append(played, 0, b"not yet")
    waiting.end()
    (found,) = partitions_of(await asyncio.wait_for(answer, 20))
    assert found.records.read().count(b"looked at") == found.records.read().count(b"not yet") == 1


async def test_a_fetch_that_is_woken_with_more_than_its_limit_keeps_to_it(played: Played) -> None:
    await played.lead((0, 1, 2))
    size = len(one_batch(bytes(1000)))
    answer = ask(played, fetch_request((0, 0), (1, 0), (2, 0), max_wait_ms=60_000, min_bytes=size, max_bytes=2 * size))
    for partition in (0, 1, 2):
        append(played, partition, bytes(1000))
    found = [len(each.records) for each in partitions_of(await asyncio.wait_for(answer, 20))]
    assert sorted(found) == [0, size, size]


async def test_of_two_partitions_only_one_gives_a_batch_larger_than_its_limit(played: Played) -> None:
    await played.lead((0, 1))
    size = len(one_batch(bytes(1000)))
    request = fetch_request((0, 0), (1, 0), max_wait_ms=60_000, partition_max_bytes=100)
    answer = ask(played, request)
    append(played, 0, bytes(1000))
    append(played, 1, bytes(1000))
    found = [len(each.records) for each in partitions_of(await asyncio.wait_for(answer, 20))]
    assert sorted(found) == [0, size]


async def test_a_follower_that_fetches_stays_caught_up_where_nothing_is_written(played: Played) -> None:
    await played.lead(replicas=(1, 2), isr=(1, 2))
    session = ask(played, fetch_request((0, 0), session=(0, 0), replica_id=2)).session_id
    hosted = played.replicas.replica("orders", 0)
    assert hosted is not None
    played.now += 40_000
    assert partitions_of(ask(played, fetch_request(session=(session, 1), replica_id=2))) == []
    append(played)
    assert hosted.state.check_isr(played.now + NOTE_INTERVAL_MS, hosted.log.log_end_offset) == []


class Throttled:
    """A partition led here whose replica on broker 2 is out of sync, a batch long."""

    def __init__(self, played: Played) -> None:
        self.played = played
        self.size = len(one_batch(b"a"))

    @classmethod
    async def begin(cls, played: Played, rate: int, replicas: tuple[str, ...] = ("0:1",)) -> Throttled:
        played.log_config = replace(played.log_config, leader_replication_throttled_replicas=replicas)
        played.replicas.config = BrokerConfig(leader_replication_throttled_rate=rate)
        await played.lead((0, 1), replicas=(1, 2, 3), isr=(1,))
        for partition in (0, 1):
            append(played, partition, b"a")
            append(played, partition, b"a")
        return cls(played)

    def sizes(self, replica_id: int = 2, **arguments: Any) -> list[int]:
        arguments = {"partition_max_bytes": self.size, **arguments}
        response = ask(self.played, fetch_request((0, 0), (1, 0), replica_id=replica_id, **arguments))
        return [len(each.records) for each in partitions_of(response)]


async def test_the_throttled_replica_waits_while_the_rate_is_exceeded(played: Played) -> None:
    throttled = await Throttled.begin(played, rate=10)
    assert throttled.sizes() == [throttled.size, throttled.size]
    assert throttled.sizes() == [0, throttled.size]
    played.now += 60_000
    assert throttled.sizes() == [throttled.size, throttled.size]


async def test_consumers_and_replicas_in_sync_are_never_held_back(played: Played) -> None:
    throttled = await Throttled.begin(played, rate=10)
    assert throttled.sizes() == [throttled.size, throttled.size]
    assert throttled.sizes(replica_id=-1) == [throttled.size, throttled.size]
    await played.lead((0, 1), replicas=(1, 2, 3), isr=(1, 2), leader_epoch=1, partition_epoch=1)
    assert throttled.sizes(replica_id=2) == [throttled.size, throttled.size]
    assert throttled.sizes(replica_id=3) == [0, throttled.size]


async def test_replicas_of_other_brokers_are_not_throttled_here(played: Played) -> None:
    throttled = await Throttled.begin(played, rate=10, replicas=("0:2", "1:3"))
    for _ in range(3):
        assert throttled.sizes() == [throttled.size, throttled.size]


async def test_a_held_back_follower_is_answered_when_the_rate_allows_it(played: Played) -> None:
    throttled = await Throttled.begin(played, rate=10)
    throttled.sizes()
    wanted = fetch_request((0, 0), replica_id=2, max_wait_ms=60_000)
    answer = ask(played, wanted)
    assert not answer.done()
    played.now += 60_000
    (found,) = partitions_of(await asyncio.wait_for(answer, 20))
    assert len(found.records) > 0


async def test_a_session_brings_what_was_held_back(played: Played) -> None:
    throttled = await Throttled.begin(played, rate=10)
    throttled.sizes()
    response = ask(played, fetch_request((0, 0), session=(0, 0), replica_id=2))
    assert [len(each.records) for each in partitions_of(response)] == [0]
    played.now += 60_000
    (found,) = partitions_of(ask(played, fetch_request(session=(response.session_id, 1), replica_id=2)))
    assert len(found.records) > 0


@pytest.mark.parametrize(("offset", "epoch"), [(1, 9), (2, -1)], ids=["an epoch to come", "beyond the end"])
async def test_a_follower_that_is_astray_leaves_the_isr_though_nothing_is_written(
    played: Played, offset: int, epoch: int
) -> None:
    await played.lead(replicas=(1, 2), isr=(1, 2))
    append(played)
    hosted = played.replicas.hosted["orders", 0]
    assert partitions_of(ask(played, fetch_request((0, 1), replica_id=2)))[0].error_code == 0
    for _ in range(40):
        played.now += 1000
        request = fetch_request((0, offset), replica_id=2, last_fetched_epoch=epoch)
        (found,) = partitions_of(ask(played, request))
        assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [each.isr for each in hosted.state.check_isr(played.now, 1) if isinstance(each, ProposeIsr)] == [(1,)]
    hosted.state.proposed_isr = None
    ask(played, fetch_request((0, 1), replica_id=2, last_fetched_epoch=0))
    assert hosted.state.check_isr(played.now, 1) == []


@pytest.mark.parametrize("replica_id", [-1, 2], ids=["consumer", "follower"])
async def test_a_refusal_is_told_again_and_again_in_a_session(played: Played, replica_id: int) -> None:
    await played.lead(replicas=(1, 2), isr=(1, 2))
    append(played)
    first = ask(played, fetch_request((0, 7), session=(0, 0), replica_id=replica_id))
    assert [each.error_code for each in partitions_of(first)] == [ErrorCode.OFFSET_OUT_OF_RANGE]
    for epoch in (1, 2):
        again = ask(played, fetch_request(session=(first.session_id, epoch), replica_id=replica_id, max_wait_ms=60_000))
        assert [each.error_code for each in partitions_of(again)] == [ErrorCode.OFFSET_OUT_OF_RANGE]


async def test_what_could_not_be_read_once_is_read_again_in_a_session(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    await played.lead()
    append(played)
    with monkeypatch.context() as patch:
        patch.setattr(Log, "read", lambda *_: 1 // 0)
        first = ask(played, fetch_request((0, 0), session=(0, 0)))
    assert [each.error_code for each in partitions_of(first)] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    (found,) = partitions_of(ask(played, fetch_request(session=(first.session_id, 1))))
    assert len(found.records) > 0


async def test_only_a_live_brokers_session_is_a_followers(played: Played) -> None:
    await played.lead((0,), replicas=(1, 2))
    assert not played.replicas.metadata.is_alive(99)
    for replica_id in (-1, 2, 99):
        ask(played, fetch_request((0, 0), session=(0, 0), replica_id=replica_id))
    followers = [session.follower for session in played.replicas.sessions.sessions.values()]
    assert followers == [None, 2, None], "whoever says that it is another fetches as a consumer"
