from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.coordinator.local_markers import LocalMarkers
from kbroker.coordinator.marker_sender import Ending
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.batch import read_header
from kbroker.protocol.records.control import ControlType, read_marker
from kbroker.replica.delayed import settle_reached
from tests.fixtures.data_path import TOPIC, Played
from tests.kbroker.handlers.test_transactions import append, in_transaction
from tests.kbroker.network.serving import until


def ending(*, commit: bool = True, coordinator_epoch: int = 4, version: int = 0) -> Ending:
    return Ending("id", 7, 2, commit, coordinator_epoch, 0.0, {(TOPIC, 0)}, lambda: None, version)


def noting(told: list[tuple[int, ErrorCode]], partition: int) -> Callable[[ErrorCode], None]:
    return lambda error: told.append((partition, error))


@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_is_appended_and_those_of_offsets_are_told(played: Played, commit: bool) -> None:
    await played.lead()
    await played.lead(topic=OFFSETS_TOPIC, topic_id=b"o" * 16)
    decided: list[Any] = []
    errors: list[ErrorCode] = []
    markers = LocalMarkers(played.replicas, lambda *values: decided.append(values), 1_000)
    markers.write_marker(ending(commit=commit), (TOPIC, 0), errors.append)
    assert not decided
    markers.write_marker(ending(commit=commit), (OFFSETS_TOPIC, 0), errors.append)
    assert decided == [(0, 7, commit)]
    assert errors == [ErrorCode.NONE] * 2
    control = played.replicas.hosted[TOPIC, 0].log.read(0, 1000).read()
    assert read_marker(control) == (ControlType.COMMIT if commit else ControlType.ABORT, 4)


async def test_the_same_marker_goes_to_each_partition_and_another_to_the_next_transaction(played: Played) -> None:
    await played.lead(range(3))
    errors: list[ErrorCode] = []
    markers = LocalMarkers(played.replicas, lambda *values: None, 1_000)
    append(played, in_transaction())
    for partition in (0, 1):
        markers.write_marker(ending(), (TOPIC, partition), errors.append)
    markers.write_marker(ending(commit=False, coordinator_epoch=5), (TOPIC, 2), errors.append)
    assert errors == [ErrorCode.NONE] * 3
    read = [played.replicas.hosted[TOPIC, each].log.read(each == 0, 1000).read() for each in range(3)]
    assert [read_header(batch).base_offset for batch in read] == [1, 0, 0]
    commit, abort = (ControlType.COMMIT, 4), (ControlType.ABORT, 5)
    assert [read_marker(batch) for batch in read] == [commit, commit, abort]


async def test_markers_wait_for_the_other_replicas_each_for_its_own(played: Played) -> None:
    await played.lead(range(3), replicas=(1, 2))
    told: list[tuple[int, ErrorCode]] = []
    played.replicas.clock = lambda: 1_000
    markers = LocalMarkers(played.replicas, lambda *values: None, 60_000)
    mine = ending()
    for partition in (0, 1, 2):
        markers.write_marker(mine, (TOPIC, partition), noting(told, partition))
    assert not told
    hosted = [played.replicas.hosted[TOPIC, each] for each in range(3)]
    hosted[1].acks = settle_reached(hosted[1].acks, 1)
    hosted[2].fail_acks(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told == [(1, ErrorCode.NONE), (2, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    hosted[0].acks = settle_reached(hosted[0].acks, 1)
    assert told[2:] == [(0, ErrorCode.NONE)]
    markers.write_marker(mine, (TOPIC, 2), noting(told, 2))
    hosted[2].acks = settle_reached(hosted[2].acks, 2)
    assert told[3:] == [(2, ErrorCode.NONE)]


async def test_a_marker_whose_time_is_over_is_told_so_though_others_came_before_it(played: Played) -> None:
    await played.lead(range(2), replicas=(1, 2))
    told: list[tuple[int, ErrorCode]] = []
    played.replicas.clock = lambda: 1_000
    markers = LocalMarkers(played.replicas, lambda *values: None, 1)
    mine = ending()
    for partition in (0, 1):
        markers.write_marker(mine, (TOPIC, partition), noting(told, partition))
        hosted = played.replicas.hosted[TOPIC, 0]
        hosted.acks = settle_reached(hosted.acks, 1)
    await until(lambda: len(told) == 2)
    assert told == [(0, ErrorCode.NONE), (1, ErrorCode.REQUEST_TIMED_OUT)]


async def test_a_marker_that_cannot_be_appended_at_all_leaves_the_others_their_results(played: Played) -> None:
    await played.lead(range(2))
    played.replicas.clock = lambda: 1_000
    markers = LocalMarkers(played.replicas, lambda *values: None, 1_000)
    mine, told = ending(), list[tuple[int, ErrorCode]]()
    broken = played.replicas.hosted[TOPIC, 0]
    broken.log, kept = None, broken.log  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        markers.write_marker(mine, (TOPIC, 0), noting(told, 0))
    broken.log = kept
    for partition in (1, 9):
        markers.write_marker(mine, (TOPIC, partition), noting(told, partition))
    assert told == [(1, ErrorCode.NONE), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


async def test_what_the_log_refuses_is_told(played: Played) -> None:
    await played.lead()
    decided: list[Any] = []
    errors: list[ErrorCode] = []
    markers = LocalMarkers(played.replicas, lambda *values: decided.append(values), 1_000)
    markers.write_marker(ending(), (TOPIC, 0), errors.append)
    markers.write_marker(ending(coordinator_epoch=3), (TOPIC, 0), errors.append)
    markers.write_marker(ending(), (OFFSETS_TOPIC, 0), errors.append)
    assert errors == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert not decided


async def test_a_marker_that_was_sent_twice_does_not_end_the_next_transaction(played: Played) -> None:
    await played.lead()
    errors: list[ErrorCode] = []
    markers = LocalMarkers(played.replicas, lambda *values: None, 1_000)
    for epoch in (1, 2):
        append(played, in_transaction(epoch=epoch))
        markers.write_marker(ending(version=2), (TOPIC, 0), errors.append)
    assert errors == [ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH]
    assert played.replicas.hosted[TOPIC, 0].log.last_stable_offset == 2


async def test_a_broker_that_stood_still_writes_no_markers_before_it_knows_that_it_leads(played: Played) -> None:
    await played.lead()
    errors: list[ErrorCode] = []
    played.replicas.is_leadership_unproven = lambda: True
    LocalMarkers(played.replicas, lambda *values: None, 1_000).write_marker(ending(), (TOPIC, 0), errors.append)
    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert played.replicas.hosted[TOPIC, 0].log.log_end_offset == 0
