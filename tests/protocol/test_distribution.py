"""Values counted by size, and the quantiles of what came lately."""

import random

import pytest

from kbroker.protocol.distribution import QUANTILES, RATIO, Distribution


def test_quantiles_of_many_values_are_right_to_some_ten_percent() -> None:
    rng = random.Random(7)
    values = sorted(rng.lognormvariate(0, 1.5) for _ in range(20_000))
    found = Distribution()
    for value in values:
        found.add(value)
    for quantile, told in zip(QUANTILES, found.quantiles(0), strict=True):
        assert told == pytest.approx(values[int(quantile * len(values))], rel=RATIO - 1)
    assert found.count == 20_000
    assert found.sum == pytest.approx(sum(values))


def test_nothing_at_all_has_quantiles_of_zero() -> None:
    assert Distribution().quantiles(0) == [0.0] * len(QUANTILES)


def test_what_came_more_than_five_minutes_ago_counts_no_more() -> None:
    found = Distribution()
    for _ in range(100):
        found.add(1000)
    for minute in range(8):
        found.quantiles(60 * minute)
    found.add(1)
    assert found.quantiles(480)[-1] < 2
    assert found.count == 101


def test_when_nothing_came_lately_the_quantiles_are_those_of_all() -> None:
    found = Distribution()
    found.add(10)
    assert found.quantiles(0)[0] == found.quantiles(4000)[0] > 5


def test_one_value_may_stand_for_several_others() -> None:
    found = Distribution()
    found.add(5, 30)
    found.add(500)
    assert found.count == 31
    assert found.sum == 650
    assert found.quantiles(0, (0.5,))[0] < 10


def test_values_beyond_the_largest_bound_are_counted() -> None:
    found = Distribution((1.0, 2.0))
    found.add(1e12)
    assert found.counts == [0, 0, 1]
    assert found.quantiles(0, (0.5,)) == [2.0]
