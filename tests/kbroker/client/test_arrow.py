"""Decoded columns as record batches: types of Spark's source, nulls, headers, no copies."""

import subprocess
import sys
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


ASKS_FOR_PANDAS = """
import sys
asked = []
class Finder:
    def find_spec(name, *_):
        asked.append(name)
sys.meta_path.insert(0, Finder)
import pyarrow as pa
from kbroker.client.arrow import RecordBatches, TableRows
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.columns import ColumnDecoder
builder = BatchBuilder(16_384)
builder.append(b"k", b"value", [("a", b"1")], 1)
builder.append(None, None, [], 1)
decoder = ColumnDecoder(with_headers=True)
decoder.append(builder.build(), 0)
batch = RecordBatches("t").wrap(decoder.finish())
table = pa.Table.from_batches([batch.slice(0, 1)])
rows = TableRows(table, "key", "value", None, None, None)
rows.check_sizes(100)
assert [one.rows for one in rows.slices()] == [1]
print("pandas" in asked)
asked.clear()
pa.scalar(1)
print("pandas" in asked)
"""


def test_neither_a_batch_nor_a_table_to_be_sent_loads_pandas() -> None:
    """Where that is installed a program would wait for it at its first batch; pyarrow does that for any scalar."""
    command = [sys.executable, "-c", ASKS_FOR_PANDAS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["False", "True"]
