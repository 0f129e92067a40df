"""Batches of records to batches of a frame's columns, in each mode."""

from typing import Any

import pytest

from kbroker.spark_connector.columns import plan_columns
from kbroker.spark_connector.read_options import read_options
from tests.spark_connector.schemas import plain_schema, schema

pa = pytest.importorskip("pyarrow")
arrow = pytest.importorskip("kbroker.client.arrow")
typed_rows = pytest.importorskip("kbroker.spark_connector.typed_rows")


def rows(wanted: Any, values: list[bytes | None], **given: str) -> list[dict[str, Any]]:
    options = read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given})
    count = len(values)
    numbers = pa.array(range(count))
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([b"k"] * count, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(["t"] * count),
            pa.array([3] * count, pa.int32()),
            numbers,
            numbers.cast(pa.timestamp("us", tz="UTC")),
            pa.array([0] * count, pa.int32()),
        ],
        schema=arrow.SCHEMA,
    )
    plan = plan_columns(wanted, options)
    typed = typed_rows.TypedRows(options, plan).convert(batch)
    typed.validate(full=True)
    assert typed.schema.equals(typed_rows.arrow_schema(wanted))
    return typed.to_pylist()  # type: ignore[no-any-return]


def test_binary_columns_pass_as_they_are() -> None:
    [row] = rows(plain_schema(), [b"\xff"])
    assert (row["key"], row["value"], row["offset"]) == (b"k", b"\xff", 0)


def test_texts_are_utf_8() -> None:
    found = rows(schema(key="string", value="string"), [b"x", b"\xff", None], valueFormat="string", keyFormat="string")
    assert found == [{"key": "k", "value": "x"}, {"key": "k", "value": "\ufffd"}, {"key": "k", "value": None}]


def test_objects_are_one_column_or_many() -> None:
    values = [b'{"a":1}', None]
    assert rows(schema(value=schema(a="int"), offset="bigint"), values, valueFormat="json") == [
        {"value": {"a": 1}, "offset": 0},
        {"value": None, "offset": 1},
    ]
    assert rows(schema(a="int", offset="bigint"), values, valueFormat="json") == [
        {"a": 1, "offset": 0},
        {"a": None, "offset": 1},
    ]


def test_malformed_rows_are_kept_dropped_or_fatal_as_the_mode_says() -> None:
    values: list[bytes | None] = [b'{"a":1}', b"oops", b'{"a":"x"}']
    kept = rows(schema(a="int", _corrupt_record="string"), values, valueFormat="json")
    assert [row["_corrupt_record"] for row in kept] == [None, "oops", '{"a":"x"}']
    assert [row["a"] for row in kept] == [1, None, None]
    assert rows(schema(a="int"), values, valueFormat="json", mode="DROPMALFORMED") == [{"a": 1}]
    with pytest.raises(typed_rows.MalformedRecord, match="t-3 at offset 1: value is not JSON"):
        rows(schema(a="int"), values, valueFormat="json", mode="FAILFAST")
