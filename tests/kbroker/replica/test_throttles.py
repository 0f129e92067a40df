"""Replication quotas: which replicas, and how fast."""

from __future__ import annotations

import pytest

from kbroker.protocol.config_def import MAX_LONG
from kbroker.replica.throttles import ReplicationThrottle, throttled_partitions

NOW = 1_700_000_000_000


class Played:
    """A throttle of broker 1 whose configuration is played."""

    def __init__(self, rate: int = 1000, samples: int = 10) -> None:
        self.rate = rate
        self.replicas: tuple[str, ...] = ()
        self.throttle = ReplicationThrottle(1, lambda topic: self.replicas, lambda: self.rate, samples, 1000)


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [(("*",), None), ((), set()), (("0:1", "1:2", "7:1"), {0, 7}), (("0:11",), set())],
)
def test_the_partitions_of_one_broker_are_picked(replicas: tuple[str, ...], expected: set[int] | None) -> None:
    assert throttled_partitions(replicas, broker_id=1) == expected


def test_the_list_of_replicas_may_change_at_any_time() -> None:
    played = Played()
    assert not played.throttle.is_throttled("orders", 0)
    played.replicas = ("0:1", "1:2")
    assert [played.throttle.is_throttled("orders", partition) for partition in (0, 1)] == [True, False]
    played.replicas = ("*",)
    assert [played.throttle.is_throttled("orders", partition) for partition in (0, 1)] == [True, True]
    played.replicas = ()
    assert not played.throttle.is_throttled("orders", 0)


def test_a_burst_is_paid_for_by_waiting() -> None:
    throttle = Played(rate=1000).throttle
    assert not throttle.is_exceeded(NOW)
    throttle.record(5000, NOW)
    assert throttle.is_exceeded(NOW)
    assert throttle.is_exceeded(NOW + 4900)
    assert not throttle.is_exceeded(NOW + 5000)


def test_what_left_the_window_counts_no_more() -> None:
    throttle = Played(rate=1000).throttle
    throttle.record(1_000_000, NOW)
    assert throttle.is_exceeded(NOW + 9_999)
    assert not throttle.is_exceeded(NOW + 10_000)


def test_what_was_not_copied_before_the_window_is_no_credit_for_a_burst() -> None:
    throttle = Played(rate=1000).throttle
    for now in range(NOW, NOW + 60_000, 1_000):
        throttle.record(10, now)
    throttle.record(15_000, NOW + 60_000)
    assert throttle.is_exceeded(NOW + 60_000)


def test_the_average_over_the_windows_keeps_to_the_rate() -> None:
    throttle = Played(rate=1000).throttle
    copied = 0
    for now in range(NOW, NOW + 60_000, 100):
        if not throttle.is_exceeded(now):
            throttle.record(700, now)
            copied += 700
    assert 57_000 <= copied <= 63_000


def test_a_new_rate_holds_at_once() -> None:
    played = Played(rate=1000)
    played.throttle.record(5000, NOW)
    played.rate = 5000
    assert not played.throttle.is_exceeded(NOW)
    played.rate = MAX_LONG
    played.throttle.record(1 << 40, NOW)
    assert not played.throttle.is_exceeded(NOW)


def test_the_pause_ends_when_the_average_has_fallen_to_the_rate() -> None:
    throttle = Played(rate=1000).throttle
    throttle.record(1500, NOW)
    assert throttle.pause_ms(NOW) == 500
    assert not throttle.is_exceeded(NOW + 1500)
    throttle.record(100_000, NOW)
    assert throttle.pause_ms(NOW) == 1000, "one sample at most: old samples leave the window"


def test_a_rate_of_zero_lets_nothing_follow_the_first() -> None:
    throttle = Played(rate=0).throttle
    assert not throttle.is_exceeded(NOW)
    throttle.record(1, NOW)
    assert throttle.is_exceeded(NOW)
    assert throttle.pause_ms(NOW) == 1000
