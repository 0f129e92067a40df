from __future__ import annotations

import time

import pytest

from kbroker.replica.clocks import now_ms, steady_ms


def test_the_steady_clock_does_not_follow_the_one_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    assert abs(now_ms() - steady_ms()) < 3_600_000
    before = steady_ms()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert now_ms() == 0
    assert before <= steady_ms() < before + 60_000
