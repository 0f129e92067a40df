import csv
import io
import json

import pytest

from kbroker.page.record_view import LONGEST_PREVIEW, LONGEST_SHOWN, content_of, csv_lines, spark_snippet, view_of
from kbroker.protocol.records.record import Record


@pytest.mark.parametrize(
    ("data", "form", "expected"),
    [
        (b'{"a": [1]}', "auto", "json"),
        (b"plain", "auto", "text"),
        (b"\x00\x01", "auto", "hex"),
        (b"\xff\xfe", "auto", "hex"),
        (b'{"a": 1}', "text", "text"),
        (b"\xff", "text", "text"),
        (b"no json", "json", "text"),
        (b"abc", "hex", "hex"),
        (b"[" * 100_000, "auto", "text"),
        (None, "auto", "null"),
        (b"", "auto", "text"),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, form: str, expected: str) -> None:
    assert content_of(data, form).form == expected


def test_json_has_lines_and_hexadecimal_has_places() -> None:
    assert content_of(b'{"a":"\xc3\xbc"}', "auto").full == '{\n  "a": "ü"\n}'
    lines = content_of(bytes(range(60, 80)), "hex").full.splitlines()
    assert lines[0].startswith("00000000  3c 3d 3e")
    assert lines[0].endswith("<=>?@ABCDEFGHIJK")
    assert lines[1].startswith("00000010  4c 4d 4e 4f ")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"a":1.10,"a":12345678901234567890.123}', '{\n  "a": 1.10,\n  "a": 12345678901234567890.123\n}'),
        ('{ "b" : [ ] , "c":{}, "d":[[1 ,2]]}', None),
        ('["]", "{", ",", ":", "\\"[", "\\u00e9"]', None),
        ("[1E400, -0, true]", "[\n  1E400,\n  -0,\n  true\n]"),
        ('"one"', '"one"'),
    ],
)
def test_json_is_shown_as_it_stands_in_the_record(data: str, expected: str | None) -> None:
    shown = content_of(data.encode(), "auto")
    assert shown.form == "json"
    if expected is None:
        expected = json.dumps(json.loads(data), indent=2).replace("\u00e9", "\\u00e9")
    assert shown.full == expected


def test_what_is_too_long_is_cut_at_a_character() -> None:
    content = content_of("ü".encode() * LONGEST_SHOWN, "auto")
    assert (content.form, content.is_cut, len(content.full)) == ("text", True, LONGEST_SHOWN // 2)
    assert content.size == 2 * LONGEST_SHOWN
    odd = content_of(b"x" + "ü".encode() * LONGEST_SHOWN, "auto")
    assert (odd.form, odd.full.endswith("ü")) == ("text", True)
    assert len(content.preview) == LONGEST_PREVIEW


def test_a_preview_is_one_line() -> None:
    assert content_of(b"a\n\n  b\tc", "auto").preview == "a b c"


def test_lines_of_csv_can_be_read_back() -> None:
    hostile = '",\n"=1+1<b>'
    record = Record(1, 2, 0, b"\xff", hostile.encode(), (("h", b"\x80"),), topic="t", partition=3)
    text = csv_lines([record], heading=True).decode()
    [row] = csv.DictReader(io.StringIO(text, newline=""))
    assert (row["value"], json.loads(row["key"])) == (hostile, {"base64": "/w=="})
    assert (row["partition"], json.loads(row["headers"])) == ("3", [["h", {"base64": "gA=="}]])


def test_a_place_is_told_as_spark_reads_it() -> None:
    text = spark_snippet("b:1", "it's", [(0, 5), (1, -2)], None)
    assert '.option(\'startingOffsets\', \'{"it\\\'s": {"0": 5, "1": -2}}\')' in text
    compile(text, "snippet", "exec")
    assert "'startingTimestamp', '7'" in spark_snippet("b:1", "t", None, 7)
    assert "'startingOffsets', 'earliest'" in spark_snippet("b:1", "t", None, None)


def test_a_record_is_written_out_with_its_headers() -> None:
    view = view_of(Record(1, 2, 0, None, b"{}", (("h", b"\x00"), ("n", None))), "auto")
    assert (view.key.form, view.value.form) == ("null", "json")
    assert [(name, content.form) for name, content in view.headers] == [("h", "hex"), ("n", "null")]


def test_json_that_grows_when_written_out_is_shown_as_it_stands() -> None:
    bomb = b"[" * 900 + b",".join([b"1"] * 15_000) + b"]" * 900
    content = content_of(bomb, "json")
    assert (content.form, content.full) == ("text", bomb.decode())


@pytest.mark.parametrize(("size", "count"), [(1, 100), (LONGEST_SHOWN, 1)])
def test_headers_are_shown_as_far_as_anybody_reads(size: int, count: int) -> None:
    view = view_of(Record(1, 2, 0, None, b"", (("h", b"x" * size),) * 20_000), "auto")
    assert (len(view.headers), view.headers_left) == (count, 20_000 - count)


def test_from_the_end_on_a_stream_reads_and_options_of_security_are_named() -> None:
    text = spark_snippet("b:1", "t", [(0, -1)], None, is_stream=True, is_secured=True)
    assert "spark.readStream.format" in text
    assert "kafka.security.protocol" in text
    compile(text, "snippet", "exec")
    assert "spark.read.format" in spark_snippet("b:1", "t", None, None)
