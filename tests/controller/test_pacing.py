"""Looking through much, with pauses."""

from __future__ import annotations

from kbroker.controller.instructions import Pause, Steps
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE, chosen, portions


def test_portions_hold_everything_in_order() -> None:
    assert [list(each) for each in portions(range(7), 3)] == [[0, 1, 2], [3, 4, 5], [6]]


def test_what_is_chosen_out_of_much_is_chosen_in_turns() -> None:
    most = 3 * PARTITIONS_PER_PAUSE + 1
    found: list[int] = []

    def choose() -> Steps[None]:
        found.extend((yield from chosen(range(most), lambda each: each % 1000 == 0)))

    assert list(choose()) == [Pause()] * 3
    assert found == list(range(0, most, 1000))
