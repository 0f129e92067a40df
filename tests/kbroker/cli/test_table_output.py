"""Records as rows of files, without a broker."""

import io
import json
from typing import Any

import pytest

from kbroker.cli.errors import CommandFailed

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")
parquet = pytest.importorskip("pyarrow.parquet")
table_output = pytest.importorskip("kbroker.cli.table_output")


def batch_of(*values: bytes | None, first: int = 0, headers: Any = None) -> Any:
    place = {"topic": "t", "partition": 0, "timestamp": 1_000, "timestampType": 0}
    rows = [
        {"key": b"k", "value": value, "offset": first + at, "headers": headers, **place}
        for at, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, table_output.SCHEMA_WITH_HEADERS)


def written(kind: str, *batches: Any, unpack: bool = False) -> bytes:
    stream = io.BytesIO()
    sink = table_output.TableSink(stream, kind, unpack=unpack)
    for batch in batches:
        sink.write(batch)
        sink.flush()
    sink.close()
    return stream.getvalue()


def test_parquet_holds_the_records_as_the_client_gives_them() -> None:
    batches = [batch_of(b"a", None), batch_of(b"\xff", first=2, headers=[{"key": "h", "value": None}])]
    table = parquet.read_table(io.BytesIO(written("parquet", *batches)))
    assert table.select(["key", "value", "offset", "headers"]).to_pylist() == [
        {"key": b"k", "value": b"a", "offset": 0, "headers": None},
        {"key": b"k", "value": None, "offset": 1, "headers": None},
        {"key": b"k", "value": b"\xff", "offset": 2, "headers": [{"key": "h", "value": None}]},
    ]
    assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")


def test_many_rows_make_several_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_output, "GROUP_BYTES", 1000)
    batches = [batch_of(b"x" * 600, first=number) for number in range(6)]
    file = parquet.ParquetFile(io.BytesIO(written("parquet", *batches)))
    assert (file.num_row_groups, file.metadata.num_rows) == (3, 6)


def test_csv_holds_texts_and_headers_as_json() -> None:
    lines = written("csv", batch_of(b'a,"b"', headers=[{"key": "h", "value": b"\xff"}]), batch_of(None, b"", first=1))
    heading, first, second, third = lines.decode().splitlines()
    assert heading == '"key","value","topic","partition","offset","timestamp","timestampType","headers"'
    assert first == ('"k","a,""b""","t",0,0,"1970-01-01T00:00:00.001000Z",0,"[[""h"", {""base64"": ""/w==""}]]"')
    assert second == '"k",,"t",0,1,"1970-01-01T00:00:00.001000Z",0,'
    assert third == '"k","","t",0,2,"1970-01-01T00:00:00.001000Z",0,'


def test_bytes_that_csv_cannot_hold_are_named_after_what_is_before_them() -> None:
    stream = io.BytesIO()
    sink = table_output.TableSink(stream, "csv", unpack=False)
    sink.write(batch_of(b"a", b"\xff", first=7))
    with pytest.raises(CommandFailed, match="t-0 at offset 8: the value is not UTF-8: CSV cannot hold it"):
        sink.close()
    assert stream.getvalue().count(b"\n") == 2


@pytest.mark.parametrize(
    ("kind", "largest_us", "too_large_us"),
    [
        ("parquet", 2**63 - 808, 2**63 - 1),
        ("parquet", -(2**63) + 808, -(2**63)),
        ("csv", 971890963199999000, 971890963200000000),
    ],
)
def test_times_that_a_file_cannot_hold_are_named(kind: str, largest_us: int, too_large_us: int) -> None:
    batch = batch_of(b"a", b"b", b"c")
    at = batch.schema.get_field_index("timestamp")
    times = pa.array([1000, largest_us, too_large_us], pa.int64()).cast(batch.schema.field(at).type)
    stream = io.BytesIO()
    sink = table_output.TableSink(stream, kind, unpack=False)
    sink.write(batch.set_column(at, batch.schema.field(at), times))
    with pytest.raises(CommandFailed, match=f"t-0 at offset 2: .*: {kind} cannot hold it, "):
        sink.close()
    if kind == "parquet":
        assert parquet.read_table(stream)["timestamp"].cast(pa.int64()).to_pylist() == [1000, largest_us]
    else:
        assert stream.getvalue().decode().splitlines()[2].split(",")[5] == '"32767-12-31T23:59:59.999000Z"'


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_fields_of_json_values_become_columns(kind: str) -> None:
    batch = batch_of(b'{"n":1,"at":"2013-01-01T05:00:00Z","tags":["a"],"s":null}', b'{"n":2}', None)
    data = io.BytesIO(written(kind, batch, unpack=True))
    table = parquet.read_table(data) if kind == "parquet" else csv.read_csv(data)
    assert table.column_names == ["n", "at", "tags", "s"]
    assert table["n"].to_pylist() == [1, 2, None]
    assert table["at"].to_pylist()[0].year == 2013
    assert table["tags"].to_pylist()[0] == (["a"] if kind == "parquet" else '["a"]')


def test_fields_that_come_later_are_told_not_lost() -> None:
    sink = table_output.TableSink(io.BytesIO(), "csv", unpack=True)
    sink.write(batch_of(b'{"n":1}'))
    sink.flush()
    sink.write(batch_of(b'{"n":2}', b'{"n":3,"late":1}', first=1))
    with pytest.raises(CommandFailed, match=r"t-0 at offset 2: the value is late: not a field .*NDJSON"):
        sink.flush()


def test_lines_of_json_stand_as_they_are() -> None:
    values = (b'{"b": 1.50, "a": "2013-01-01"}', b'{\n "a": 1\n}', None)
    lines = written("ndjson", batch_of(*values), unpack=True).splitlines()
    assert lines[0] == values[0]
    assert [json.loads(line) for line in lines[1:]] == [{"a": 1}, None]


@pytest.mark.parametrize("kind", ["ndjson", "csv", "parquet"])
def test_values_that_are_no_objects_are_named(kind: str) -> None:
    for bad in (b"[1]", b"text"):
        with pytest.raises(CommandFailed, match="t-0 at offset 1: the value is"):
            written(kind, batch_of(b'{"n":1}', bad), unpack=True)
    with pytest.raises(CommandFailed, match="no type in common"):
        written("csv", batch_of(b'{"n":1}', b'{"n":"x"}'), unpack=True)


@pytest.mark.parametrize("unpack", [False, True])
def test_no_records_make_a_file_without_rows(unpack: bool) -> None:
    assert parquet.read_table(io.BytesIO(written("parquet", unpack=unpack))).num_rows == 0
    assert len(written("csv", unpack=unpack).splitlines()) <= 1
    assert written("ndjson", unpack=True) == b""
