import json
from typing import Any

import pytest

from kbroker.page.expressions import WrongExpression, compile_expression
from kbroker.protocol.records.record import Record

FLIGHT = {"carrier": "AA", "delay": 75, "legs": [{"to": "JFK"}], "dest": None, "a b": 1}


def is_meant(text: str, value: Any = FLIGHT, **more: Any) -> bool:
    data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    fields = {"key": b"k1", "headers": (("origin", b"JFK"), ("bad", b"\xff")), **more}
    return compile_expression(text)(Record(7, 1_000, 0, value=data, topic="t", partition=3, **fields))


@pytest.mark.parametrize(
    "text",
    [
        "value.delay > 60",
        'value.carrier == "AA" and value.delay in [75, 76]',
        'value.legs[0].to == "JFK"',
        'value["a b"] == 1',
        "value.dest == null",
        "value.dest is None",
        "value.nothing.at.all == null",
        "not value.nothing",
        'headers.origin == "JFK"',
        'key == "k1" and partition == 3 and offset == 7',
        "1000 <= timestamp < 1001",
        "value.delay * 2 - 50 == 100",
        'lower(value.carrier) == "aa"',
        "len(value.legs) == 1",
        'matches(value.carrier, "^A+$")',
        'matches(value, "JF.")',
        '"FK" in headers.origin',
        'value.carrier > 5 or value.carrier == "AA"',
        "value.delay > -1",
    ],
)
def test_what_is_true_of_a_record_finds_it(text: str) -> None:
    assert is_meant(text)
    assert not is_meant(f"not ({text})")


@pytest.mark.parametrize(
    "text", ["value.delay > 'x'", "value.legs < 5", "value.delay / 0 == 1", "len(value.dest) == 0"]
)
def test_what_cannot_be_compared_is_not_meant(text: str) -> None:
    assert not is_meant(text)


def test_values_that_are_no_json_are_text() -> None:
    assert is_meant('"plain" in value', b"plain text")
    assert is_meant("value == null", None)
    assert is_meant("value == 5", b"5")
    assert is_meant("len(value) == 1", b"\xff")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "value.",
        "__import__('os')",
        "value.__class__()",
        "open('x')",
        "[x for x in value]",
        "lambda: 1",
        "(x := 5)",
        "f'{value}'",
        "2 ** 9999999",
        "1 << 9999999",
        "other == 1",
        "matches(value, key)",
        'matches(value, "(")',
        "value.a; value.b",
        "(" * 300 + "1" + ")" * 300,
        "not " * 100 + "value",
        "len(*value)",
        "b'x' == key",
        "1" * 3000,
    ],
)
def test_what_is_no_expression_of_ours_is_refused(text: str) -> None:
    with pytest.raises(WrongExpression):
        compile_expression(text)


def test_attributes_are_fields_and_never_pythons() -> None:
    assert is_meant("value.__class__ == null")
    assert is_meant("value.carrier.__class__ == null")
    assert is_meant("value.__class__ == 1", {"__class__": 1})


def test_texts_are_not_multiplied() -> None:
    assert not is_meant('len("aaaaaaaaaa" * 999999999) > 0')


@pytest.mark.parametrize("text", ["lambda:" + "-" * 1900 + "1", "{" + "-" * 900 + "1}"])
def test_what_is_nested_without_end_is_wrong_and_no_more(text: str) -> None:
    with pytest.raises(WrongExpression):
        compile_expression(text)


@pytest.mark.parametrize("text", ["value.n is 1000", "value is key", "5 is not value"])
def test_only_null_true_and_false_are_the_same_thing(text: str) -> None:
    with pytest.raises(WrongExpression, match="=="):
        compile_expression(text)


def test_null_true_and_false_are_compared_by_is() -> None:
    record = Record(0, 0, 0, None, b'{"yes": true}', (), "t", 0)
    for text in ("key is null", "value.yes is true", "value.no is None", "value is not null", "null is key"):
        assert compile_expression(text)(record), text


def test_a_pattern_with_a_backspace_for_a_boundary_is_refused() -> None:
    with pytest.raises(WrongExpression, match="write r"):
        compile_expression(r'matches(value, "\bfoo\b")')
    assert compile_expression(r'matches(value, r"\bfoo\b")')(Record(0, 0, 0, None, b"a foo", (), "t", 0))


def test_calls_are_counted_as_each_may_copy_a_value() -> None:
    with pytest.raises(WrongExpression, match="calls"):
        compile_expression("[" + ",".join(["lower(value)"] * 21) + "]")
