"""Kafka's spread of replicas, with the figures of Kafka's own documentation and tests."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.controller.placement import BrokerRack, assign_replicas, continue_assignment, interleave_racks
from kbroker.protocol.errors import ErrorCode, KafkaError


def brokers(*ids: int) -> list[BrokerRack]:
    return [BrokerRack(each) for each in ids]


def test_replicas_are_spread_as_in_kafkas_example() -> None:
    assignment = assign_replicas(brokers(0, 1, 2, 3, 4), 10, 3, start=0, shift=0)
    assert assignment == {
        0: [0, 1, 2],
        1: [1, 2, 3],
        2: [2, 3, 4],
        3: [3, 4, 0],
        4: [4, 0, 1],
        5: [0, 2, 3],
        6: [1, 3, 4],
        7: [2, 4, 0],
        8: [3, 0, 1],
        9: [4, 1, 2],
    }


def test_racks_are_alternated_as_in_kafkas_example() -> None:
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert interleave_racks(racks) == [0, 3, 1, 5, 4, 2]
    known = [BrokerRack(broker_id, rack) for broker_id, rack in racks.items()]
    assert assign_replicas(known, 7, 3, start=0, shift=0) == {
        0: [0, 3, 1],
        1: [3, 1, 5],
        2: [1, 5, 4],
        3: [5, 4, 2],
        4: [4, 2, 0],
        5: [2, 0, 3],
        6: [0, 4, 2],
    }


def test_added_partitions_go_on_where_the_topic_began() -> None:
    known = brokers(0, 1, 2)
    assert continue_assignment(known, {0: [1, 2], 1: [2, 0]}, 2) == {2: [0, 2], 3: [1, 2]}
    assert continue_assignment(known, {0: [9, 1]}, 1).keys() == {1}


@pytest.mark.parametrize(
    ("known", "partitions", "replication_factor", "code"),
    [
        (brokers(1), 0, 1, ErrorCode.INVALID_PARTITIONS),
        (brokers(1), 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (brokers(1), 1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([], 1, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([BrokerRack(1, "a"), BrokerRack(2)], 1, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_what_cannot_be_placed_is_refused(
    known: list[BrokerRack], partitions: int, replication_factor: int, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refused:
        assign_replicas(known, partitions, replication_factor, 0, 0)
    assert refused.value.code is code


@pytest.mark.slow
@given(
    st.dictionaries(st.integers(0, 40), st.sampled_from("abc"), min_size=1, max_size=9),
    st.integers(1, 60),
    st.integers(1, 9),
    st.integers(0, 50),
    st.integers(0, 50),
)
def test_no_broker_twice_and_no_rack_twice_while_another_is_free(
    racks: dict[int, str], partitions: int, replication_factor: int, start: int, shift: int
) -> None:
    replication_factor = min(replication_factor, len(racks))
    known = [BrokerRack(broker_id, rack) for broker_id, rack in racks.items()]
    assignment = assign_replicas(known, partitions, replication_factor, start, shift)
    assert list(assignment) == list(range(partitions))
    for replicas in assignment.values():
        assert len(set(replicas)) == replication_factor
        assert len({racks[each] for each in replicas}) == min(replication_factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders[each] for each in racks) <= 1
