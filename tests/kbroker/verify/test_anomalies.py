"""Tests for kbroker.verify.anomalies: the smallest examples first, and what is allowed."""

from kbroker.verify.anomalies import ALLOWED_MEANINGS, MOST_EXAMPLES, Example, finding, is_allowed


def test_the_smallest_examples_go_first_and_not_all_are_told() -> None:
    examples = [Example(str(size), tuple(range(size))) for size in range(20, 0, -1)]
    (found,) = finding("duplicate", 20, examples)
    assert [len(each.operations) for each in found.examples] == list(range(1, MOST_EXAMPLES + 1))
    assert found.meaning == "one value stands at several offsets"
    assert finding("duplicate", 0, []) == []


def test_what_is_allowed_depends_on_the_isolation_level() -> None:
    assert all(is_allowed(name, "read_committed") for name in ALLOWED_MEANINGS)
    assert not is_allowed("G1a", "read_committed")
    assert is_allowed("G1a", "read_uncommitted")
    assert not is_allowed("lost-write", "read_uncommitted")
