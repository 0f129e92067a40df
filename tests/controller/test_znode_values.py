"""What requests could not carry is no value, whoever wrote it."""

from typing import Any

import pytest

from kbroker.controller.znode_values import UNREADABLE, broker_ids, number, read_json, text, topic_name


@pytest.mark.parametrize("value", [1 << 31, -1, float("nan"), float("inf"), "x", None, [1], "9" * 5000])
def test_what_fits_no_request_is_no_number(value: Any) -> None:
    with pytest.raises(UNREADABLE):
        number(value)


def test_numbers_may_be_written_as_text() -> None:
    assert (number("7"), number((1 << 31) - 1), number(-1, -1)) == (7, (1 << 31) - 1, -1)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "t" * 250, "t\n"])
def test_what_no_folder_can_be_called_is_no_topic(name: str) -> None:
    with pytest.raises(UNREADABLE):
        topic_name(name)
    assert [topic_name(each) for each in ("...", "..a", "a.b_c-D9", "t" * 249)]


@pytest.mark.parametrize("values", ["12", [1.0], ["1"], [True], [-1], [99999999999], [10**100], None, {"1": 1}])
def test_what_is_no_list_of_ids_names_no_brokers(values: Any) -> None:
    with pytest.raises(UNREADABLE):
        broker_ids(values)
    assert broker_ids([3, 0, (1 << 31) - 1]) == (3, 0, (1 << 31) - 1)


@pytest.mark.parametrize("value", [None, 5, ["h"], "h" * 32768, "é" * 20000])
def test_what_fits_no_request_is_no_text(value: Any) -> None:
    with pytest.raises(UNREADABLE):
        text(value)
    assert text("é" * 16383) == "é" * 16383


@pytest.mark.parametrize("data", [None, b"", b"\xff", b"[" * 99_999, rb'{"a":"\ud800"}', b'{"a":' + b"9" * 5000 + b"}"])
def test_what_is_no_json_in_any_encoding_is_not_read(data: bytes | None) -> None:
    with pytest.raises(UNREADABLE):
        read_json(data)
    assert read_json(rb'{"a":"\u00e9\ud83d\ude00"}') == {"a": "é😀"}
