"""The arithmetic of quotas, by a clock of the test's."""

import pytest

from kbroker.security.rates import LONGEST_MS, Rate, TokenBucket


def test_a_rate_is_over_as_many_windows_as_asked_for_from_the_beginning() -> None:
    rate = Rate(11, 1000)
    rate.record(10_000, 0)
    assert rate.delay_ms(1000, 0) == 0, "10,000 in ten windows are 1,000 a second"
    rate.record(5_000, 0)
    assert rate.delay_ms(1000, 0) == 5_000


def test_who_waits_as_long_as_told_is_within_the_limit() -> None:
    rate = Rate(11, 1000)
    rate.record(30_000, 0)
    delay_ms = rate.delay_ms(1000, 0)
    assert delay_ms == 20_000
    assert rate.delay_ms(1000, delay_ms) == 0


def test_what_is_long_ago_counts_no_more() -> None:
    rate = Rate(3, 1000)
    rate.record(9_000, 0)
    assert rate.delay_ms(1000, 100) > 0
    assert rate.delay_ms(1000, 3_000) == 0
    for second in range(3, 20):
        rate.record(990, second * 1000)
        assert rate.delay_ms(1000, second * 1000 + 999) == 0


def test_what_is_taken_back_was_not_used() -> None:
    rate = Rate(11, 1000)
    rate.record(50_000, 0)
    rate.record(-50_000, 1)
    assert rate.delay_ms(1000, 1) == 0


def test_nothing_may_be_used_where_the_limit_is_zero() -> None:
    rate = Rate(11, 1000)
    assert rate.delay_ms(0, 0) == 0
    rate.record(1, 0)
    assert rate.delay_ms(0, 0) == 10_000


@pytest.mark.parametrize("limit", [1e-320, 1e-9, 1])
def test_a_wait_is_no_longer_than_answers_can_say(limit: float) -> None:
    rate, bucket = Rate(11, 1000), TokenBucket(11)
    rate.record(1e9, 0)
    assert rate.delay_ms(limit, 0) == LONGEST_MS
    bucket.take(1e9, limit, 0)
    assert 0 < bucket.delay_ms(limit, 0) <= LONGEST_MS


def test_a_bucket_begins_full_may_be_overdrawn_once_and_fills_up() -> None:
    bucket = TokenBucket(11)
    assert bucket.tokens(2, 0) == 22
    bucket.take(30, 2, 0)
    assert bucket.delay_ms(2, 0) == 4_000
    assert bucket.delay_ms(2, 3_000) == 1_000
    assert bucket.delay_ms(2, 4_000) == 0
    assert bucket.tokens(2, 1_000_000) == pytest.approx(22)
