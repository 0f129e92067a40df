"""The coordinator's assignors: everything is given, to subscribers only, evenly, and little changes hands."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.consumer_member import Partitions
from kbroker.coordinator.server_assignors import ASSIGNORS, Subscriptions, assign_range, assign_uniform

A, B = b"a" * 16, b"b" * 16
TOPICS = [bytes([number]) * 16 for number in range(4)]


def load(partitions: Partitions) -> int:
    return sum(len(numbers) for numbers in partitions.values())


def check(assigned: Mapping[str, Partitions], subscriptions: Subscriptions, counts: Mapping[bytes, int]) -> None:
    given_parts = [
        (topic, number)
        for member, partitions in assigned.items()
        for topic, numbers in partitions.items()
        for number in numbers
        if topic in subscriptions[member]
    ]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert sorted(given_parts) == sorted(
        (topic, number) for topic, count in counts.items() if topic in wanted for number in range(count)
    )
    assert all(numbers for partitions in assigned.values() for numbers in partitions.values())


def test_range_gives_neighbours_and_meets_equal_keys() -> None:
    subscriptions = dict.fromkeys(("m2", "m1"), frozenset({A, B}))
    assigned = assign_range(subscriptions, {A: 5, B: 5}, {})
    assert assigned == {
        "m2": {A: frozenset({0, 1, 2}), B: frozenset({0, 1, 2})},
        "m1": {A: frozenset({3, 4}), B: frozenset({3, 4})},
    }


def test_uniform_moves_no_more_than_it_must() -> None:
    before = assign_uniform(dict.fromkeys(("m1", "m2"), frozenset({A})), {A: 6}, {})
    after = assign_uniform(dict.fromkeys(("m1", "m2", "m3"), frozenset({A})), {A: 6}, before)
    assert [load(after[member]) for member in ("m1", "m2", "m3")] == [2, 2, 2]
    for member in ("m1", "m2"):
        assert after[member][A] <= before[member][A]
    left = assign_uniform(dict.fromkeys(("m1", "m3"), frozenset({A})), {A: 6}, after)
    assert all(after[member][A] <= left[member][A] for member in ("m1", "m3"))


def test_uniform_makes_up_for_who_can_take_little() -> None:
    subscriptions = {"m1": frozenset({A}), "m2": frozenset({A, B})}
    assigned = assign_uniform(subscriptions, {A: 4, B: 2}, {})
    assert {member: load(partitions) for member, partitions in assigned.items()} == {"m1": 3, "m2": 3}


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from(TOPICS)), max_size=6),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), max_size=4),
    st.sampled_from(sorted(ASSIGNORS)),
    st.data(),
)
def test_every_partition_is_given_once_to_a_subscriber(
    subscriptions: dict[str, frozenset[bytes]], counts: dict[bytes, int], name: str, data: st.DataObject
) -> None:
    assign = ASSIGNORS[name]
    current: dict[str, Partitions] = {}
    for _ in range(3):
        current = assign(subscriptions, counts, current)
        assert current.keys() == subscriptions.keys()
        check(current, subscriptions, counts)
        if name == "uniform" and len(set(subscriptions.values())) == 1:
            loads = [load(partitions) for partitions in current.values()]
            assert max(loads) - min(loads) <= 1
        assert assign(subscriptions, counts, current) == current, "what is even stays"
        if data.draw(st.booleans()) and subscriptions:
            gone = data.draw(st.sampled_from(sorted(subscriptions)))
            subscriptions = {member: topics for member, topics in subscriptions.items() if member != gone}


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12))
def test_uniform_keeps_all_it_can_when_members_come_and_go(partitions: int, before: int, after: int) -> None:
    counts = {A: partitions}
    first = assign_uniform({f"m{n}": frozenset({A}) for n in range(before)}, counts, {})
    second = assign_uniform({f"m{n}": frozenset({A}) for n in range(after)}, counts, first)
    kept = sum(len(first.get(m, {}).get(A, frozenset()) & parts.get(A, frozenset())) for m, parts in second.items())
    most = sum(min(load(first.get(member, {})), load(parts)) for member, parts in second.items())
    assert kept == most


@pytest.mark.slow
def test_many_subscriptions_that_differ_cost_a_partition_no_look_at_each() -> None:
    topic, kinds = b"t" * 16, 1_000
    subscriptions = {f"m{n}": frozenset({topic, n.to_bytes(16, "big")}) for n in range(kinds)}
    counts = {topic: 20_000} | {n.to_bytes(16, "big"): 1 for n in range(kinds)}
    begun = time.thread_time()
    assigned = [assign(subscriptions, counts, {}) for assign in ASSIGNORS.values()]
    assert time.thread_time() - begun < 1.5
    for each in assigned:
        check(each, subscriptions, counts)


def test_a_second_member_takes_half_of_a_large_topic_at_once() -> None:
    one, two = ({f"m{each}": frozenset({A}) for each in range(members)} for members in (1, 2))
    before = assign_uniform(one, {A: 5_000}, {})
    begun = time.thread_time()
    after = assign_uniform(two, {A: 5_000}, before)
    assert time.thread_time() - begun < 0.5
    assert after == {"m0": {A: frozenset(range(2_500))}, "m1": {A: frozenset(range(2_500, 5_000))}}


@pytest.mark.slow
def test_members_whose_subscriptions_differ_share_large_topics_at_once() -> None:
    subscriptions = {"m0": frozenset({A, B}), "m1": frozenset({A}), "m2": frozenset({A, B})}
    counts, assigned = {A: 20_000, B: 20_000}, dict[str, Partitions]()
    begun = time.thread_time()
    for members in range(1, 4):
        subscribed = dict(list(subscriptions.items())[:members])
        assigned = assign_uniform(subscribed, counts, assigned)
        check(assigned, subscribed, counts)
    assert time.thread_time() - begun < 1.5
    assert sorted(map(load, assigned.values())) == [13_333, 13_333, 13_334]
