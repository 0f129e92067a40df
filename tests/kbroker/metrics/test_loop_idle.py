"""How long the loop had nothing to do."""

import pytest

from kbroker.metrics.loop_idle import LoopIdle


def test_the_share_is_that_of_the_last_minute() -> None:
    idle = LoopIdle()
    assert idle.share(0, 0.0) == 1.0
    assert idle.share(10, 5.0) == pytest.approx(0.5)
    for second in range(20, 200, 10):
        share = idle.share(second, 5.0)
    assert share == 1.0, "it was busy more than a minute ago"


def test_it_is_never_less_than_nothing() -> None:
    idle = LoopIdle()
    idle.share(0, 0.0)
    assert idle.share(1, 1.5) == 0.0
    assert LoopIdle().share(5, 0.0) == 1.0


def test_idle_seconds_count_from_the_first_question_and_only_up() -> None:
    idle = LoopIdle()
    assert idle.idle_s(100, 30.0) == 0
    assert idle.idle_s(110, 32.0) == pytest.approx(8)
    assert idle.idle_s(110.1, 32.5) == pytest.approx(8), "clocks that are read one after the other"
    assert idle.idle_s(120, 34.0) == pytest.approx(16)
