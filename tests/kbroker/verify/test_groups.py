"""Tests for kbroker.verify.groups: committed offsets beyond what was processed, and answers that do not hold."""

import pytest

from tests.kbroker.verify.written import Written, read, sent


def committed(history: Written, offset: int, process: int = 1, type: str = "ok") -> None:
    history.do(process, "commit", [["commit", "g", "x", offset]], type)


def answered(history: Written, offset: int) -> set[str]:
    history.do(9, "committed", [["committed", "g", "x", offset]])
    return set(history.findings(is_read_to_the_end=False)) - {"lost-write"}


def test_a_commit_may_not_pass_what_nobody_of_the_group_has_read() -> None:
    history = Written()
    history.do(0, "send", sent("x", [0, 1], [1, 2], [4, 3]))
    history.do(1, "poll", read(x=[[0, 1], [1, 2]]))
    history.do(7, "poll", read(x=[[4, 3]]))
    committed(history, 4)
    assert not history.findings(), "markers lie between"
    committed(history, 5)
    text = "group g committed 5 of x, and none of its members has read offset 4 (1 such records)"
    assert history.findings()["commit-beyond-processed"].examples[0].text == text


@pytest.mark.parametrize(
    ("offset", "names"),
    [
        (3, set()),
        (4, set()),
        (2, {"stale-committed-offset"}),
        (-1, {"stale-committed-offset"}),
        (5, {"aborted-offset-commit"}),
        (6, {"unexpected-committed-offset"}),
    ],
)
def test_an_answer_is_the_last_commit_or_one_that_nobody_knows_of(offset: int, names: set[str]) -> None:
    history = Written()
    history.do(0, "send", sent("x", [9, 1]))
    committed(history, 2)
    committed(history, 3)
    committed(history, 5, type="fail")
    committed(history, 4, process=2, type="info")
    assert answered(history, offset) == names


def test_a_group_that_never_committed_has_no_offset() -> None:
    assert answered(Written(), -1) == set()
    assert answered(Written(), 0) == {"unexpected-committed-offset"}
