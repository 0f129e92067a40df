"""JSON made of columns says the same as Python's json."""

import datetime
import decimal
import json
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
json_rows = pytest.importorskip("kbroker.client.arrow").json_rows

UTC = datetime.UTC


def rows_of(**columns: Any) -> list[object]:
    return [json.loads(text) for text in json_rows(pa.RecordBatch.from_pydict(columns)).to_pylist()]


def test_numbers_texts_and_nulls_are_what_json_reads_back() -> None:
    rows = rows_of(
        n=pa.array([1, None, -(2**63)]),
        f=pa.array([1.5, None, 1e300]),
        t=pa.array(["a", None, ""]),
        b=pa.array([True, None, False]),
        z=pa.nulls(3),
        d=pa.array([decimal.Decimal("1.50"), None, None]),
    )
    assert rows == [
        {"n": 1, "f": 1.5, "t": "a", "b": True, "z": None, "d": 1.5},
        {"n": None, "f": None, "t": None, "b": None, "z": None, "d": None},
        {"n": -(2**63), "f": 1e300, "t": "", "b": False, "z": None, "d": None},
    ]


def test_every_character_is_escaped_as_json_wants_it() -> None:
    texts = [chr(code) + "x" for code in range(0x250)] + ['\\"', "\\n", "\U0001f600", 'a"b\\c\nd']
    assert [row["t"] for row in rows_of(t=pa.array(texts))] == texts  # type: ignore[index]
    assert rows_of(**{'a"b': pa.array([1])}) == [{'a"b': 1}]


def test_what_json_has_no_number_for_is_null() -> None:
    assert rows_of(f=pa.array([float("nan"), float("inf"), 2.0])) == [{"f": None}, {"f": None}, {"f": 2.0}]


def test_times_are_iso_8601() -> None:
    moment = datetime.datetime(2013, 1, 1, 5, 15, 0, 250_000)
    rows = rows_of(
        at=pa.array([moment.replace(tzinfo=UTC)], pa.timestamp("ms", "UTC")),
        local=pa.array([moment], pa.timestamp("ms")),
        day=pa.array([moment.date()]),
    )
    assert rows == [{"at": "2013-01-01T05:15:00.250Z", "local": "2013-01-01T05:15:00.250", "day": "2013-01-01"}]


def test_nested_columns_bytes_and_dictionaries_come_through() -> None:
    rows = rows_of(
        l=pa.array([[1, 2], None]), s=pa.array([{"a": b"x"}, {"a": None}]), d=pa.array(["u", "v"]).dictionary_encode()
    )
    assert rows == [{"l": [1, 2], "s": {"a": "eA=="}, "d": "u"}, {"l": None, "s": {"a": None}, "d": "v"}]


def test_a_batch_without_columns_gives_empty_objects() -> None:
    batch = pa.RecordBatch.from_pydict({"n": pa.array([1, 2])}).select([])
    assert json_rows(batch).to_pylist() == ["{}"] * batch.num_rows
