"""Tests for kbroker.verify.admin: acknowledged changes hold at the end."""

import pytest

from tests.kbroker.verify.written import Written


@pytest.mark.parametrize(
    ("changes", "topics", "wrong"),
    [
        ([("create-topic", "ok")], {"t": 2}, None),
        ([("create-topic", "ok")], {}, "topic t: create-topic was acknowledged, and the topic is missing"),
        ([("create-topic", "ok")], {"t": 1}, "topic t must have 2 partitions, and has 1"),
        ([("create-topic", "info")], {}, None),
        ([("create-topic", "fail")], {}, None),
        ([("create-topic", "ok"), ("delete-topic", "ok")], {}, None),
        ([("create-topic", "ok"), ("delete-topic", "ok")], {"t": 2}, "topic t was deleted, and is there"),
        ([("create-topic", "ok"), ("delete-topic", "info")], {"t": 2}, None),
        ([("delete-topic", "info"), ("create-topic", "ok")], {}, None),
    ],
)
def test_the_last_known_change_of_a_topic_must_hold(
    changes: list[tuple[str, str]], topics: dict[str, int], wrong: str | None
) -> None:
    history = Written()
    for process, (what, type) in enumerate(changes):
        history.do(process, "admin", [[what, "t", 2] if what == "create-topic" else [what, "t"]], type)
    history.do(9, "admin", [["topics", topics]], final=True)
    found = history.findings().get("admin-lost")
    assert (found.examples[0].text if found else None) == wrong


def test_without_a_last_list_nothing_is_said() -> None:
    history = Written()
    history.do(0, "admin", [["create-topic", "t", 2]])
    history.do(9, "admin", [["topics", {}]])
    assert not history.findings()
