"""What flushes take."""

from __future__ import annotations

import time

import pytest

from kbroker.segment.flush_times import FlushTimes


def test_a_flush_is_timed_and_one_that_fails_is_not() -> None:
    times = FlushTimes()
    with times.timed():
        time.sleep(0.002)
    with pytest.raises(OSError, match="gone"), times.timed():
        raise OSError("gone")
    assert times.distribution.count == 1
    assert 2 <= times.distribution.sum < 2_000
