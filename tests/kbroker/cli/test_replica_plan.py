"""Plans for replicas: fair, aware of racks, and no move without need."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cli.replica_plan import Plan, PlanError, changes, from_json, spread, to_json
from kbroker.client.types import TopicPartition

NO_RACKS: dict[int, str | None] = {1: None, 2: None, 3: None}


def topic(*replicas: tuple[int, ...]) -> Plan:
    return {TopicPartition("t", number): each for number, each in enumerate(replicas)}


def held(plan: Plan) -> Counter[int]:
    return Counter(broker for replicas in plan.values() for broker in replicas)


def test_a_fair_spread_stays_as_it_is() -> None:
    current = topic((1, 2), (2, 3), (3, 1))
    assert changes(current, spread(current, NO_RACKS)) == {}


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    current = topic((1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1))
    plan = spread(current, NO_RACKS)
    assert held(plan) == {1: 4, 2: 4, 3: 4}
    moved = sum(len(set(current[each]) - set(replicas)) for each, replicas in plan.items())
    assert moved == 4
    assert Counter(replicas[0] for replicas in plan.values()) == {1: 2, 2: 2, 3: 2}


def test_a_broker_that_is_left_out_is_emptied() -> None:
    plan = spread(topic((1, 2), (2, 3), (3, 1)), {1: None, 2: None})
    assert set(held(plan)) == {1, 2}


def test_more_and_fewer_replicas() -> None:
    current = topic((1,), (1,), (1,))
    more = spread(current, NO_RACKS, 3)
    assert all(set(replicas) == {1, 2, 3} for replicas in more.values())
    assert Counter(replicas[0] for replicas in more.values()) == {1: 1, 2: 1, 3: 1}
    fewer = spread(more, NO_RACKS, 1)
    assert held(fewer) == {1: 1, 2: 1, 3: 1}


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(PlanError, match="4 replicas need 4 brokers, there are 3: 1, 2, 3"):
        spread(topic((1,)), NO_RACKS, 4)


def test_each_rack_gets_a_replica_before_one_gets_two() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    plan = spread(topic(*[(1, 2, 1 + number % 2)[:2] for number in range(12)]), racks, 3)
    for replicas in plan.values():
        assert len({racks[each] for each in replicas}) >= 2
    fresh = spread(topic(*[(1,)] * 12), racks, 3)
    assert all({racks[each] for each in replicas} == {"a", "b", "c"} for replicas in fresh.values())


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True), max_size=12),
    st.sets(st.integers(1, 6), min_size=3),
    st.sampled_from([None, 1, 2, 3]),
    st.booleans(),
)
def test_every_plan_is_valid_and_fair(
    assignments: list[list[int]], allowed: set[int], factor: int | None, with_racks: bool
) -> None:
    current = topic(*map(tuple, assignments))
    brokers = {each: f"rack{each % 3}" if with_racks else None for each in allowed}
    plan = spread(current, brokers, factor)
    assert plan.keys() == current.keys()
    for partition, replicas in plan.items():
        assert len(set(replicas)) == len(replicas) == (factor or len(current[partition]))
        assert set(replicas) <= allowed
    shares = [held(plan)[each] for each in allowed]
    assert with_racks or max(shares) - min(shares) <= 1
    assert changes(plan, spread(plan, brokers, factor)) == {}, "a second plan would move again"


def test_a_plan_survives_its_file() -> None:
    plan = topic((1, 2), (3,))
    assert from_json(json.dumps(to_json(plan))) == plan


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "this is no plan"),
        ("[]", "this is no plan"),
        ('{"partitions": [{"topic": "t"}]}', "this is no plan"),
        ('{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}', "no such partition can be"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, "2"]}]}', "no such partition can be"),
    ],
)
def test_what_is_no_plan_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        from_json(text)


def test_a_partition_cannot_be_planned_twice() -> None:
    entry = '{"topic": "t", "partition": 0, "replicas": [1]}'
    with pytest.raises(PlanError, match="t-0 stands in the plan twice"):
        from_json(f'{{"partitions": [{entry}, {entry}]}}')
