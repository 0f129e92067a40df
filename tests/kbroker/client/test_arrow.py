"""Decoded columns as record batches: types of Spark's source, nulls, headers, no copies."""

from typing import Any

import pytest

from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.columns import ColumnDecoder

pa = pytest.importorskip("pyarrow")
arrow = pytest.importorskip("kbroker.client.arrow")

RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]] = [
    (b"k", b"value", [("a", b"1"), ("b", None)], 1_700_000_000_123),
    (None, None, [], 1_700_000_000_124),
    (b"", b"", [("c", b"")], 1_700_000_000_125),
]


def decode(with_headers: bool) -> Any:
    builder = BatchBuilder(16_384)
    for key, value, headers, timestamp in RECORDS:
        assert builder.append(key, value, headers, timestamp)
    decoder = ColumnDecoder(with_headers=with_headers)
    decoder.append(builder.build(), 3)
    batch = arrow.RecordBatches("flights").wrap(decoder.finish())
    batch.validate(full=True)
    return batch


def test_columns_have_the_names_and_types_of_sparks_source() -> None:
    assert decode(False).schema == arrow.SCHEMA
    assert decode(True).schema == arrow.SCHEMA_WITH_HEADERS


def test_values_nulls_and_places_come_through() -> None:
    rows = decode(False).to_pylist()
    assert [row["key"] for row in rows] == [b"k", None, b""]
    assert [row["value"] for row in rows] == [b"value", None, b""]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [("flights", 3, n) for n in range(3)]
    assert [int(row["timestamp"].timestamp() * 1000) for row in rows] == [record[3] for record in RECORDS]


def test_a_record_without_headers_has_null_as_in_sparks_source() -> None:
    headers = decode(True)["headers"].to_pylist()
    assert headers == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        None,
        [{"key": "c", "value": b""}],
    ]


def test_the_topic_column_serves_batches_of_any_length() -> None:
    batches = arrow.RecordBatches("t")
    for rows in (2, 5, 1, 0):
        decoder = ColumnDecoder()
        if rows:
            builder = BatchBuilder(16_384)
            for _ in range(rows):
                builder.append(None, b"v", [], 1)
            decoder.append(builder.build(), 0)
        assert batches.wrap(decoder.finish())["topic"].to_pylist() == ["t"] * rows
