"""Files of rows as pieces of records."""

import bz2
import datetime
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.errors import CommandFailed

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
table_input = pytest.importorskip("kbroker.cli.table_input")
NOON = datetime.datetime(2013, 1, 1, 12, tzinfo=datetime.UTC)
NOON_MS = 1357041600000


def read(path: Path, kind: str, types: dict[str, str] | None = None, **columns: str) -> list[tuple[Any, Any, Any]]:
    """Key, value and timestamp of each row."""
    parsed = {name: table_input.column_type(text) for name, text in (types or {}).items()}
    rows: list[tuple[Any, Any, Any]] = []
    for piece in table_input.TableInput(path, kind, columns, parsed).pieces():
        assert piece.table.column_names == ["key", "value", "timestamp"]
        rows += [tuple(row.values()) for row in piece.table.to_pylist()]
    return rows


def refused(path: Path, kind: str, **arguments: Any) -> str:
    with pytest.raises(CommandFailed) as caught:
        read(path, kind, **arguments)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.slow
def test_rows_of_parquet_become_json_with_a_column_as_key_and_one_as_time(tmp_path: Path) -> None:
    path = tmp_path / "flights.parquet"
    table = pa.table({"carrier": ["UA", None], "delay": [7, None], "at": pa.array([NOON, NOON])})
    parquet.write_table(table, path)
    rows = read(path, "parquet", key="carrier", timestamp="at")
    assert [(key, time) for key, _, time in rows] == [("UA", NOON_MS), (None, NOON_MS)]
    assert json.loads(rows[0][1]) == {"carrier": "UA", "delay": 7, "at": "2013-01-01T12:00:00.000000Z"}
    assert [key for key, _, _ in read(path, "parquet", key="delay")] == ["7", None]
    assert read(path, "parquet", value="carrier")[0] == (None, "UA", None)


@pytest.mark.slow
def test_a_large_file_comes_in_pieces_that_say_how_far_they_are(tmp_path: Path) -> None:
    path = tmp_path / "many.parquet"
    parquet.write_table(pa.table({"n": list(range(200_000)), "text": ["x" * 100] * 200_000}), path)
    source = table_input.TableInput(path, "parquet", {"key": "n"})
    pieces = list(source.pieces())
    assert len(pieces) > 2
    assert max(piece.table.nbytes for piece in pieces) < 40 << 20
    assert [piece.first for piece in pieces][:2] == [1, 1 + pieces[0].table.num_rows]
    assert pieces[-1].done == source.total == 200_000
    assert [key.as_py() for piece in pieces for key in piece.table["key"]] == [str(n) for n in range(200_000)]


def test_columns_of_csv_have_the_types_of_their_first_values_or_those_given(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('zip,n,text,day\n007,1,"a, ""b""\nc",2013-01-01\n010,,"",\n')
    rows = read(path, "csv", key="zip")
    assert [key for key, _, _ in rows] == ["7", "10"]
    assert json.loads(rows[0][1]) == {"zip": 7, "n": 1, "text": 'a, "b"\nc', "day": "2013-01-01"}
    assert json.loads(rows[1][1]) == {"zip": 10, "n": None, "text": "", "day": None}
    rows = read(path, "csv", {"zip": "string", "n": "double"}, key="zip")
    assert [key for key, _, _ in rows] == ["007", "010"]
    assert read(path, "csv", {"zip": "string"}, value="text", key="day")[0][:2] == ("2013-01-01", 'a, "b"\nc')


def test_lines_of_json_are_sent_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    lines = ['{"b": 1.50,  "a":"x"}', "", '{"a":"2013-01-01","b":[1,"x"]}', ' {"a":null,"b":{"c":1}} ']
    path.write_text("\n".join(lines))
    there = [line.encode() for line in lines if line]
    assert read(path, "ndjson") == [(None, line, None) for line in there]
    assert [key for key, _, _ in read(path, "ndjson", key="a")] == [b"x", b"2013-01-01", None]


def test_files_made_on_windows_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b'\xef\xbb\xbf{"a":1}\r\n{"a":2}\r\n')
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfa\r\n1\r\n2\r\n")
    assert read(tmp_path / "a.ndjson", "ndjson", key="a") == [("1", b'{"a":1}', None), ("2", b'{"a":2}', None)]
    assert read(tmp_path / "a.csv", "csv", key="a") == [("1", '{"a":1}', None), ("2", '{"a":2}', None)]


@pytest.mark.parametrize("values", [["u", "v"], [1, -2], [True, False], [1.5, 2], [{"base64": "//4="}, "x"]])
def test_keys_of_json_are_what_stands_there(tmp_path: Path, values: list[Any]) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text("".join(json.dumps({"k": value}) + "\n" for value in values))
    wanted = [
        b"\xff\xfe" if isinstance(value, dict) else (value if isinstance(value, str) else json.dumps(value)).encode()
        for value in values
    ]
    found = [key if isinstance(key, bytes) else key.encode() for key, _, _ in read(path, "ndjson", key="k")]
    assert found == wanted


@pytest.mark.parametrize("values", [[NOON_MS], ["2013-01-01T12:00:00Z"], ["2013-01-01T13:00:00+01:00", NOON_MS]])
def test_times_of_json_are_numbers_or_iso_8601(tmp_path: Path, values: list[Any]) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text("".join(json.dumps({"t": value}) + "\n" for value in values))
    assert {time for _, _, time in read(path, "ndjson", timestamp="t")} == {NOON_MS}


def test_compressed_files_and_standard_input_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a\nx\n"))
    (tmp_path / "a.jsonl.bz2").write_bytes(bz2.compress(b'{"a":1}\n'))
    assert read(tmp_path / "a.csv.gz", "csv") == [(None, '{"a":"x"}', None)]
    assert read(tmp_path / "a.jsonl.bz2", "ndjson") == [(None, b'{"a":1}', None)]
    for kind, text in (("csv", b"a\n1\n"), ("ndjson", b'{"a":1}')):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        ((_, value, _),) = read(Path("-"), kind)
        assert json.loads(value) == {"a": 1}
    with pytest.raises(CommandFailed, match="name the file"):
        read(Path("-"), "parquet")


def test_a_line_across_two_blocks_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_input, "PIECE_BYTES", 4)
    assert b"".join(table_input.whole_lines(io.BytesIO(b"abcdefgh\nij\nk"))) == b"abcdefgh\nij\nk\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"a":1}\n\n{"a":\n', 'line 3 is no JSON object: Expecting value (column 6); {"a":'),
        ('{"a":1}\n[1]\n', "line 2 is no JSON object: [1]"),
        ('{"a":1}{"a":2}\n', "line 1 is no JSON object: Extra data (column 8)"),
        ('{"a":[]}\n', "line 1: 'a' is []: text or a number is wanted"),
        ('{"b":1}\n', "no line of the first 1 has the field 'a'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, wanted: str) -> None:
    path = tmp_path / "bad.ndjson"
    path.write_text(text)
    assert wanted in refused(path, "ndjson", key="a")


@pytest.mark.parametrize(
    ("text", "arguments", "wanted"),
    [
        ("a,b\n1,2\n3\n", {}, "Expected 2 columns, got 1: 3"),
        ("a,b\n1,2\n", {"key": "c"}, "--key: there is no column 'c'; columns: a, b"),
        ("a,a\n1,2\n", {}, "several columns 'a'"),
        ("a\n1\n", {"types": {"b": "string"}}, "--type names the column 'b'; there are a"),
        ("a\nx\n", {"types": {"a": "int64"}}, "row 2 (the heading is row 1), column number 1: invalid value 'x'"),
        ("a\n\n1\n", {"timestamp": "a", "types": {"a": "int64"}}, ""),
        ("a,t\n1,\n", {"timestamp": "t"}, "row 1 has no 't', which is to be the timestamp"),
        ("a\nx\n", {"timestamp": "a"}, "column 'a' is no time"),
        ("", {}, "Empty CSV file"),
        ("big\n1\n12345678901234567890\n", {}, "row 3 (the heading is row 1), column 'big': 1.2345678901234567e+19"),
        ("big\n9007199254740993\n2.0\n", {}, "--type big=string"),
        ("big\n9007199254740993\n1.5\n", {}, "row 2 (the heading is row 1), column 'big': 9007199254740992.0 is what"),
        ("f\n2e20\n1.5\n-12345678901234567890\n", {}, "row 4 (the heading is row 1), column 'f': -1.2345678901234567"),
        ("f\n1.5\nnan\n", {}, "row 3 (the heading is row 1), column 'f': NaN is no number of JSON, and would be null"),
        ("big\n12345678901234567890\nNaN\n", {}, "row 3 (the heading is row 1), column 'big': NaN is no number"),
        ("f\n1.5\n-1e400\n", {}, "row 3 (the heading is row 1), column 'f': it is too large for a number"),
        ("k,f\n1,1e400\n", {"value": "f"}, "column 'f': it is too large for a number"),
    ],
)
def test_bad_csv_is_named(tmp_path: Path, text: str, arguments: dict[str, Any], wanted: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    if wanted:
        assert wanted in refused(path, "csv", **arguments)
    else:
        assert read(path, "csv", **arguments) == [(None, '{"a":1}', 1)]


def test_csv_that_is_no_utf_8_is_sent_as_text_never_as_something_else(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes(b"city,n\nBerlin,1\n,2\nM\xfcnchen,3\n")
    said = refused(path, "csv")
    assert "row 4 (the heading is row 1), column 'city': M\ufffdnchen is not UTF-8" in said
    assert "--type city=binary" in said
    assert [value for _, value, _ in read(path, "csv", value="n")] == ["1", "2", "3"]
    assert read(path, "csv", {"city": "binary"}, value="city")[2][1] == b"M\xfcnchen"


def test_large_numbers_of_csv_are_taken_where_it_is_plain_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("big,f\n12345678901234567890,1.5e20\n,0.5\n")
    rows = read(path, "csv", {"big": "string"})
    assert json.loads(rows[0][1]) == {"big": "12345678901234567890", "f": 1.5e20}
    assert json.loads(read(path, "csv", {"big": "double"})[0][1])["big"] == 12345678901234567890.0
    assert read(path, "csv", value="f")[0][1] == "1.5e+20"


@pytest.mark.slow
def test_a_value_of_another_type_far_behind_is_named_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    with path.open("w") as file:
        file.write("n,text\n")
        for _ in range(900_000):
            file.write("1,abcdefgh\n")
        file.write("many,x\n")
    said = refused(path, "csv")
    assert "row 900002 (the heading is row 1), column 'n'" in said
    assert "'many'" in said
    assert "--type n=string" in said


def test_what_is_no_parquet_or_has_nested_keys_is_named(tmp_path: Path) -> None:
    path = tmp_path / "no.parquet"
    path.write_bytes(b"hello, this is no such file")
    assert "cannot be read as parquet" in refused(path, "parquet")
    parquet.write_table(pa.table({"list": [[1]]}), path)
    assert "column 'list' is list<" in refused(path, "parquet", key="list")
    (tmp_path / "no.csv.gz").write_bytes(b"not compressed")
    assert "cannot be read as csv" in refused(tmp_path / "no.csv.gz", "csv")


def test_an_unknown_type_is_told_with_known_ones() -> None:
    with pytest.raises(ValueError, match="'number' is no type; such as string"):
        table_input.column_type("number")
