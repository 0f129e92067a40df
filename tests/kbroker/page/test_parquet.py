import io

import pyarrow.parquet
import pytest

from kbroker.client.arrow import SCHEMA_WITH_HEADERS
from kbroker.page import parquet
from kbroker.page.parquet import ParquetWriter
from kbroker.protocol.records.record import Record


def test_records_come_back_from_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_RECORDS", 10)
    writer = ParquetWriter()
    records = [
        Record(number, 1_000 + number, 0, None, b"v%d" % number, (("h", b"\xff"), ("n", None)), "t", 2)
        for number in range(25)
    ]
    pieces = [writer.write(records[:3]), writer.write(records[3:12]), writer.write(records[12:]), writer.close()]
    assert pieces[1]
    table = pyarrow.parquet.read_table(io.BytesIO(b"".join(pieces)))
    assert table.schema.names == SCHEMA_WITH_HEADERS.names
    assert table["value"].to_pylist() == [record.value for record in records]
    assert table["headers"][0].as_py() == [{"key": "h", "value": b"\xff"}, {"key": "n", "value": None}]
    assert table["timestamp"].cast("int64").to_pylist()[:2] == [1_000_000, 1_001_000]


def test_a_file_without_records_has_its_columns() -> None:
    table = pyarrow.parquet.read_table(io.BytesIO(ParquetWriter().close()))
    assert (table.num_rows, table.schema.names) == (0, SCHEMA_WITH_HEADERS.names)


def test_headers_count_where_a_group_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 1_000)
    assert ParquetWriter().write([Record(0, 0, 0, None, None, (("h", b"x" * 2_000),), "t", 0)]).count(b"x" * 20)


@pytest.mark.parametrize("timestamp", [1 << 62, -(1 << 62)])
def test_a_time_that_no_file_holds_does_not_break_it_off(timestamp: int) -> None:
    writer = ParquetWriter()
    pieces = [writer.write([Record(0, timestamp, 0, None, b"v", (), "t", 0)]), writer.close()]
    table = pyarrow.parquet.read_table(io.BytesIO(b"".join(pieces)))
    [kept] = table["timestamp"].cast("int64").to_pylist()
    assert (kept > 0) == (timestamp > 0)
    assert abs(kept) > 1 << 62
