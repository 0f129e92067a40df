from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.replica.fetcher import FIRST_PAUSE_MS, FetchedPartition, Fetcher, FetchLimits

ID = b"i" * 16
OTHER_ID = b"o" * 16


def fetched(partition: int = 0, offset: int = 0, topic_id: bytes = ID, epoch: int = 3) -> FetchedPartition:
    hosted: Any = SimpleNamespace(topic="orders", topic_id=topic_id, partition=partition)
    return FetchedPartition(hosted, epoch, offset, epoch, 0)


def fetcher(*partitions: FetchedPartition, version: int = 17, **limits: Any) -> Fetcher:
    made = Fetcher(2, FetchLimits(**limits), version)
    for each in partitions:
        made.add(each)
    return made


def request(of: Fetcher, now_ms: int = 0) -> FetchRequest:
    made = of.request(now_ms, 77)
    assert made is not None
    return made


def asked(made: FetchRequest) -> dict[int, int]:
    """Partition -> offset."""
    return {each.partition: each.fetch_offset for topic in made.topics for each in topic.partitions}


def forgotten(made: FetchRequest) -> list[int]:
    return [partition for topic in made.forgotten_topics_data for partition in topic.partitions]


def response(*partitions: int, session_id: int = 9, error: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    data = [
        FetchResponse.PartitionData(
            partition_index=number, error_code=ErrorCode.NONE, high_watermark=0, aborted_transactions=None, records=b""
        )
        for number in partitions
    ]
    topics = [FetchResponse.FetchableTopicResponse(topic_id=ID, partitions=data)] if data else []
    return FetchResponse(error_code=error, session_id=session_id, responses=topics)


def opened(*partitions: FetchedPartition, **limits: Any) -> Fetcher:
    """A fetcher whose session the leader knows."""
    made = fetcher(*partitions, **limits)
    request(made)
    made.answered(response(*(each.partition for each in partitions)))
    return made


def test_the_first_request_names_all_and_asks_for_a_session() -> None:
    made = request(fetcher(fetched(0, 5), fetched(1, 7)))
    assert (made.session_id, made.session_epoch) == (0, 0)
    assert asked(made) == {0: 5, 1: 7}
    first = made.topics[0].partitions[0]
    assert (first.current_leader_epoch, first.last_fetched_epoch) == (3, 3)


def test_old_versions_say_who_asks_in_another_place() -> None:
    new, old = request(fetcher(fetched())), request(fetcher(fetched(), version=14))
    assert (new.replica_state.replica_id, new.replica_state.replica_epoch, new.replica_id) == (2, 77, -1)
    assert (old.replica_id, old.replica_state.replica_id) == (2, -1)


def test_later_requests_name_only_what_has_moved() -> None:
    first, second = fetched(0), fetched(1)
    made = opened(first, second)
    made.moved(second, 10, 3, 0)
    following = request(made)
    assert (following.session_id, following.session_epoch) == (9, 1)
    assert asked(following) == {1: 10}
    made.answered(response())
    assert asked(request(made)) == {}
    assert made.session_epoch == 2


def test_a_log_start_that_moves_is_told_too() -> None:
    only = fetched(0, 5)
    made = opened(only)
    made.moved(only, 5, 3, 4)
    assert request(made).topics[0].partitions[0].log_start_offset == 4


def test_an_epoch_that_changes_is_told_too() -> None:
    only = fetched(0, 5)
    made = opened(only)
    made.moved(only, 5, 2, 0)
    assert request(made).topics[0].partitions[0].last_fetched_epoch == 2


def test_a_partition_that_goes_is_forgotten_once_and_one_that_comes_back_is_not() -> None:
    first, second = fetched(0), fetched(1)
    made = opened(first, second)
    made.remove(first.key)
    made.remove(second.key)
    made.add(fetched(1, 6))
    following = request(made)
    assert (asked(following), forgotten(following)) == ({1: 6}, [0])
    made.answered(response(1))
    assert forgotten(request(made)) == []


def test_an_answer_for_a_partition_that_was_started_anew_is_of_no_use() -> None:
    made = opened(fetched(0), fetched(1))
    request(made)
    made.add(fetched(0, 3))
    assert [each.fetched.partition for each in made.answered(response(0, 1))] == [1]


def test_nothing_is_asked_for_without_partitions() -> None:
    only = fetched()
    made = opened(only)
    made.remove(only.key)
    assert made.request(0, 77) is None


def test_a_session_that_is_unknown_is_opened_anew() -> None:
    made = opened(fetched(0, 4))
    request(made)
    with pytest.raises(KafkaError):
        made.answered(response(session_id=0, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    again = request(made)
    assert (again.session_id, again.session_epoch, asked(again)) == (0, 0, {0: 4})


def test_a_lost_connection_ends_the_session_by_its_id() -> None:
    made = opened(fetched(0, 4))
    made.session_lost()
    again = request(made)
    assert (again.session_id, again.session_epoch, asked(again)) == (9, 0, {0: 4})


def test_a_leader_without_room_for_a_session_is_asked_for_all_each_time() -> None:
    made = fetcher(fetched(0, 4))
    request(made)
    made.answered(response(0, session_id=0))
    again = request(made)
    assert (again.session_id, again.session_epoch, asked(again)) == (0, 0, {0: 4})


def test_a_full_answer_that_leaves_a_partition_out_makes_no_session() -> None:
    made = fetcher(fetched(0), fetched(1))
    request(made)
    made.answered(response(0))
    assert made.session_epoch == 0


def test_a_session_that_the_leader_closes_is_opened_anew() -> None:
    made = opened(fetched(0, 4))
    request(made)
    made.answered(response(session_id=0))
    assert asked(request(made)) == {0: 4}


def test_the_session_epoch_begins_again_after_the_largest() -> None:
    made = opened(fetched())
    made.session_epoch = (1 << 31) - 1
    request(made)
    made.answered(response())
    assert made.session_epoch == 1


def test_a_partition_backs_off_for_longer_each_time_and_others_go_on() -> None:
    first, second = fetched(0, 5), fetched(1)
    made = opened(first, second, backoff_ms=150)
    made.back_off(first, now_ms=1_000)
    pausing = request(made, 1_000)
    assert (asked(pausing), forgotten(pausing), pausing.max_wait_ms) == ({}, [0], FIRST_PAUSE_MS)
    made.answered(response())
    assert asked(request(made, 1_000 + FIRST_PAUSE_MS)) == {0: 5}
    made.back_off(first, now_ms=2_000)
    assert made.next_due_ms() == 2_100
    made.back_off(first, now_ms=3_000)
    assert made.next_due_ms() == 3_150
    request(made, 3_150)
    made.moved(first, 5, 3, 0)
    assert first.pause_ms == 0


def test_a_new_session_does_not_end_a_pause() -> None:
    first, second = fetched(0), fetched(1)
    made = opened(first, second)
    made.back_off(first, now_ms=0)
    made.session_lost()
    assert asked(request(made, 1)) == {1: 0}
