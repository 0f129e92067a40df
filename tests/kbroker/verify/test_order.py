"""Tests for kbroker.verify.order: what is skipped, what goes backwards, and what forgives it."""

from typing import Any

import pytest

from tests.kbroker.verify.written import Written, read, sent

KNOWN = sent("x", *([offset, 10 + offset] for offset in range(8)))


def polled(*operations: tuple[str, list[Any], dict[str, Any]]) -> set[str]:
    """What is found when one process does this, and another reads all."""
    history = Written()
    history.do(0, "send", KNOWN)
    history.do(2, "poll", read(x=[[offset, 10 + offset] for offset in range(8)]))
    for f, what, more in operations:
        history.do(1, f, what, **more)
    return set(history.findings())


def offsets(*wanted: int, **more: Any) -> tuple[str, list[Any], dict[str, Any]]:
    return "poll", read(x=[[offset, 10 + offset] for offset in wanted]), more


def test_skips_and_steps_back_are_told_apart_within_and_between_operations() -> None:
    assert polled(offsets(1, 2), offsets(3)) == set()
    assert polled(offsets(1, 3)) == {"int-poll-skip"}
    assert polled(offsets(2, 1)) == {"int-nonmonotonic-poll"}
    assert polled(offsets(2, 2)) == {"int-nonmonotonic-poll"}
    assert polled(offsets(1), offsets(3)) == {"poll-skip"}
    assert polled(offsets(2), offsets(2, 3)) == {"nonmonotonic-poll"}


@pytest.mark.parametrize(
    ("event", "is_forgiven"),
    [
        (("assign", ["y"], {}), True),
        (("assign", ["x", "y"], {}), False),
        (("assign", ["x"], {"from_beginning": True}), True),
        (("subscribe", ["y"], {"type": "fail"}), False),
        (("seek", ["x"], {}), True),
        (("seek", ["y"], {}), False),
        (("poll", read(), {"rebalances": ["x"]}), True),
        (("poll", read(), {"rebalances": ["y"]}), False),
    ],
)
def test_only_what_moves_the_position_of_that_key_forgives(event: Any, is_forgiven: bool) -> None:
    found = polled(("assign", ["x"], {}), offsets(1), event, offsets(5))
    assert found == (set() if is_forgiven else {"poll-skip"})


def test_an_aborted_transaction_does_not_move_the_position() -> None:
    for again, wrong in (((1, 2), set()), ((3,), {"poll-skip"})):
        history = Written()
        history.do(0, "send", KNOWN[:4])
        history.do(1, "txn", read(x=[[0, 10]]))
        history.do(1, "txn", read(x=[[1, 11], [2, 12]]), "fail")
        history.do(1, "txn", read(x=[[offset, 10 + offset] for offset in again]))
        assert set(history.findings(is_read_to_the_end=False)) - {"lost-write", "unseen"} == wrong


def test_what_lies_between_but_failed_is_not_skipped() -> None:
    history = Written()
    history.do(0, "send", [["send", "x", 1], ["send", "x", 3]], "info")
    history.do(0, "txn", sent("x", [1, 2]), "fail")
    history.do(1, "poll", read(x=[[0, 1], [2, 3]]))
    assert not history.findings()


def test_sends_out_of_order_are_told_apart_by_where_they_came_from() -> None:
    inside = Written()
    inside.do(0, "send", sent("x", [5, 1], [4, 2]))
    assert "int-nonmonotonic-send" in inside.findings()
    between = Written()
    between.do(0, "send", sent("x", [5, 1]))
    between.do(0, "send", sent("x", [4, 2]))
    assert {"nonmonotonic-send", "realtime-send-order"} <= set(between.findings())
    others = Written()
    others.do(0, "send", sent("x", [5, 1]))
    others.do(1, "send", sent("x", [4, 2]))
    assert "realtime-send-order" in others.findings()
    assert "nonmonotonic-send" not in others.findings()


def test_sends_of_two_at_the_same_time_may_lie_in_any_order() -> None:
    history = Written()
    history.begin(0, "send", [["send", "x", 1]])
    history.do(1, "send", sent("x", [0, 2], [3, 4]))
    history.end(0, "send", sent("x", [1, 1]))
    found = history.findings(is_read_to_the_end=False)
    assert set(found) - {"lost-write"} == {"int-send-skip"}
