from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from kbroker.handlers.refusals import blank
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.replica.fetch_sessions import EVICTION_MS, MAX_EPOCH, MOST_UNKNOWN, NEVER_SEEN, FetchSessions

IDS = {b"a" * 16: "orders", b"b" * 16: "bills"}


def sessions(slots: int = 2) -> FetchSessions:
    return FetchSessions(slots, count(1).__next__)


def request(session: int, epoch: int, *offsets: tuple[int, int], forget: tuple[int, ...] = ()) -> Any:
    wanted = [FetchRequest.FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=100) for p, o in offsets]
    forgotten = FetchRequest.ForgottenTopic(topic="orders", topic_id=b"a" * 16, partitions=list(forget))
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchRequest.FetchTopic(topic="orders", topic_id=b"a" * 16, partitions=wanted)],
        forgotten_topics_data=[forgotten] if forget else [],
    )


class Topics:
    """What the broker knows: partitions 0 to 9 of each topic."""

    def name_of(self, topic_id: bytes) -> str | None:
        return IDS.get(topic_id)

    def knows(self, topic: str, partition: int) -> bool:
        return topic in IDS.values() and partition < 10


class NoTopics(Topics):
    def name_of(self, topic_id: bytes) -> str | None:
        return None


def opened(cache: FetchSessions, asked: Any, version: int = 13, follower: int | None = None, now: int = 0) -> Any:
    return cache.open(asked, version, follower, now, Topics())


def answer(target: Any, high_watermark: int = 0, records: bytes = b"", error: int = 0) -> Any:
    return FetchResponse.PartitionData(
        partition_index=target.partition,
        error_code=ErrorCode(error),
        high_watermark=high_watermark,
        aborted_transactions=None,
        records=records,
    )


def sent(context: Any, **changes: Any) -> list[int]:
    selected = context.select([(target, answer(target, **changes)) for target in context.targets])
    return [target.partition for target, _ in selected]


def test_epoch_0_opens_a_session_and_answers_everything() -> None:
    context = opened(sessions(), request(0, 0, (0, 5), (1, 6)))
    assert context.session_id == 1
    assert sent(context) == [0, 1]


def test_epoch_minus_1_has_no_session_and_closes_the_old_one() -> None:
    cache = sessions()
    opened(cache, request(0, 0, (0, 5)))
    assert opened(cache, request(1, -1, (0, 5))).session_id == 0
    assert not cache.sessions


def test_an_incremental_answer_holds_only_news() -> None:
    cache = sessions()
    sent(opened(cache, request(0, 0, (0, 5), (1, 6))))
    assert sent(opened(cache, request(1, 1))) == []
    assert sent(opened(cache, request(1, 2)), high_watermark=3) == [0, 1]
    assert sent(opened(cache, request(1, 3)), high_watermark=3) == []
    assert sent(opened(cache, request(1, 4)), high_watermark=-1, error=6) == [0, 1]
    assert sent(opened(cache, request(1, 5)), high_watermark=3) == [0, 1]


@pytest.mark.parametrize("version", [12, 13])
def test_what_was_withheld_is_news_still(version: int) -> None:
    cache = sessions()
    sent(opened(cache, request(0, 0, (0, 5), (1, 6)), version))
    context = opened(cache, request(1, 1), version)
    response = blank(FetchResponse, responses=[])
    for target, told in context.select([(context.targets[1], answer(context.targets[1], high_watermark=3))]):
        topic = FetchResponse.FetchableTopicResponse(topic="orders", topic_id=target.topic_id, partitions=[told])
        response.responses.append(topic)
        target.seen_changes = 7
    cache.withheld(context, response)
    assert context.targets[1].seen_changes == NEVER_SEEN, "it is looked at again"
    assert sent(opened(cache, request(1, 2), version), high_watermark=3) == [0, 1]
    assert sent(opened(cache, request(1, 3), version), high_watermark=3) == []


def test_a_session_whose_first_answer_is_withheld_has_not_begun() -> None:
    cache = sessions()
    cache.withheld(opened(cache, request(0, 0, (0, 5))), blank(FetchResponse, responses=[]))
    assert not cache.sessions


def test_partitions_are_changed_added_and_forgotten() -> None:
    cache = sessions()
    opened(cache, request(0, 0, (0, 5), (1, 6)))
    context = opened(cache, request(1, 1, (1, 9), (2, 0), forget=(0,)))
    assert [(target.partition, target.fetch_offset) for target in context.targets] == [(1, 9), (2, 0)]


def test_partitions_that_had_records_move_to_the_end() -> None:
    cache = sessions()
    opened(cache, request(0, 0, (0, 0), (1, 0), (2, 0)))
    context = opened(cache, request(1, 1))
    context.select([(context.targets[0], answer(context.targets[0], records=b"x"))])
    assert [target.partition for target in opened(cache, request(1, 2)).targets] == [1, 2, 0]


@pytest.mark.parametrize(
    ("session", "epoch", "version", "error"),
    [
        (9, 1, 13, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, 13, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, 12, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_what_does_not_fit_the_session_is_refused(session: int, epoch: int, version: int, error: ErrorCode) -> None:
    cache = sessions()
    opened(cache, request(0, 0, (0, 0)))
    with pytest.raises(KafkaError) as refusal:
        opened(cache, request(session, epoch), version)
    assert refusal.value.code is error


def test_a_session_without_partitions_ends() -> None:
    cache = sessions()
    opened(cache, request(0, 0, (0, 0)))
    assert opened(cache, request(1, 1, forget=(0,))).session_id == 0
    assert not cache.sessions


def test_epochs_wrap_to_1() -> None:
    cache = sessions()
    opened(cache, request(0, 0, (0, 0)))
    cache.sessions[1].epoch = MAX_EPOCH
    opened(cache, request(1, MAX_EPOCH))
    assert cache.sessions[1].epoch == 1


def test_a_full_cache_evicts_the_unused_then_the_less_valuable() -> None:
    cache = sessions(slots=1)
    opened(cache, request(0, 0, (0, 0), (1, 0)))
    assert opened(cache, request(0, 0, (0, 0)), now=10).session_id == 0
    assert opened(cache, request(0, 0, (0, 0)), follower=2, now=10).session_id == 2
    assert opened(cache, request(0, 0, (0, 0), (1, 0)), now=EVICTION_MS + 10).session_id == 0
    assert opened(cache, request(0, 0, (0, 0)), now=EVICTION_MS + 11).session_id == 3
    assert (cache.evictions, cache.partition_count) == (2, 1)


def test_a_topic_id_unknown_today_is_resolved_later() -> None:
    cache = sessions()
    context = cache.open(request(0, 0, (0, 0)), 13, False, 0, NoTopics())
    assert context.targets[0].topic is None
    assert context.targets[0].topic_id == b"a" * 16


@pytest.mark.parametrize("version", [12, 13])
def test_many_partitions_that_do_not_exist_are_answered_but_not_remembered(version: int) -> None:
    cache = sessions()
    many = [(partition, 0) for partition in range(10 + MOST_UNKNOWN + 1)]
    context = opened(cache, request(0, 0, *many), version)
    assert (context.session_id, len(context.targets)) == (0, len(many))
    assert not cache.sessions


def test_a_session_that_gathers_partitions_that_do_not_exist_ends() -> None:
    cache = sessions()
    opened(cache, request(0, 0, (0, 5), *((p, 0) for p in range(10, 10 + MOST_UNKNOWN))))
    assert cache.sessions
    context = opened(cache, request(1, 1, (99_999, 0)))
    assert (context.session_id, len(context.targets), context.incremental) == (0, MOST_UNKNOWN + 2, False)
    assert not cache.sessions


def test_the_partitions_in_the_sessions_of_all_consumers_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbroker.replica.fetch_sessions.MOST_OF_CONSUMERS", 3)
    cache = sessions(slots=10)
    first = opened(cache, request(0, 0, (0, 0), (1, 0)))
    assert first.session is not None
    refused = opened(cache, request(0, 0, (0, 0), (1, 0)))
    assert (refused.session, len(refused.targets)) == (None, 2)
    follower = opened(cache, request(0, 0, *((number, 0) for number in range(9))), follower=2)
    assert follower.session is not None
    grown = opened(cache, request(first.session_id, 1, (2, 0)))
    assert (grown.session, len(grown.targets)) == (first.session, 3)
    beyond = opened(cache, request(first.session_id, 2, (3, 0)))
    assert (beyond.session, len(beyond.targets)) == (None, 4), "it is served, and begins anew"
    assert opened(cache, request(0, 0, (0, 0), (1, 0), (2, 0))).session is not None, "its room is free"


def test_what_was_left_behind_makes_room_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.replica.fetch_sessions.MOST_OF_CONSUMERS", 3)
    cache = sessions(slots=10)
    opened(cache, request(0, 0, (0, 0), (1, 0)))
    assert opened(cache, request(0, 0, (0, 0), (1, 0)), now=EVICTION_MS).session is None
    assert opened(cache, request(0, 0, (0, 0), (1, 0)), now=EVICTION_MS + 1).session is not None


def test_a_follower_has_few_sessions_and_those_it_left_behind_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.replica.fetch_sessions.MOST_OF_A_FOLLOWER", 5)
    monkeypatch.setattr("kbroker.replica.fetch_sessions.MOST_SESSIONS_OF_A_FOLLOWER", 3)
    cache = sessions(slots=10)
    of_another = opened(cache, request(0, 0, (0, 0)), follower=3).session_id
    first, _ = (opened(cache, request(0, 0, (0, 0), (1, 0)), follower=2).session_id for _ in range(2))
    opened(cache, request(first, 1), follower=2)
    third = opened(cache, request(0, 0, (0, 0), (1, 0)), follower=2).session_id
    assert list(cache.sessions) == [of_another, first, third], "the one used least recently has gone"
    small = [opened(cache, request(0, 0, (0, 0)), follower=2).session_id for _ in range(3)]
    assert list(cache.sessions) == [of_another, *small]
    too_large = opened(cache, request(0, 0, *((number, 0) for number in range(6))), follower=2)
    assert (too_large.session, len(too_large.targets)) == (None, 6), "it is served all the same"
