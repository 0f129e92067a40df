"""Declarations of metrics, and how names, labels and values stand in a line."""

import re

import pytest

from kbroker.metrics import gathering
from kbroker.metrics.families import FAMILIES, Section, escaped, number


def test_names_and_labels_are_what_prometheus_takes() -> None:
    assert gathering.COLLECTORS
    for family in FAMILIES.values():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)
        assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label) for label in family.labels)
        assert family.help.endswith("."), family.name


def test_a_name_is_declared_once() -> None:
    with pytest.raises(AssertionError):
        Section("Again").gauge("kafka_brokers", "Brokers.")


def test_labels_without_a_value_are_left_out_and_others_escaped() -> None:
    family = Section("For a test")._declare("a_metric_of_a_test", "gauge", "Nothing.", ("topic", "who"))
    try:
        assert family.sample(1, "", "") == "a_metric_of_a_test 1"
        assert family.sample(2.5, "", 'a "b"\n\\c') == 'a_metric_of_a_test{who="a \\"b\\"\\n\\\\c"} 2.5'
    finally:
        del FAMILIES["a_metric_of_a_test"]


@pytest.mark.parametrize(
    ("value", "text"), [(True, "1"), (3, "3"), (2.0, "2"), (0.25, "0.25"), (float("inf"), "inf"), (1e300, "1e+300")]
)
def test_values_are_written_as_they_are_read(value: float, text: str) -> None:
    assert number(value) == text
    assert float(text) == float(value)


def test_plain_text_is_not_copied_to_be_escaped() -> None:
    assert escaped("orders") == "orders"
