"""Whole records as text."""

import json
import sys

import pytest
import yaml

from kbroker.cli.consume import _writer
from kbroker.cli.record_text import json_lines, table_lines, yaml_documents
from kbroker.protocol.records.record import Record


def record() -> Record:
    return Record(2, 3, 0, None, b"\xff\n", (("a", b"b"),), "t", 1)


def test_each_form_holds_the_whole_record() -> None:
    wanted = {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "key": None,
        "value": {"base64": "/wo="},
        "headers": [["a", "b"]],
    }
    assert json.loads(json_lines([record()])) == wanted
    assert list(yaml.safe_load_all(yaml_documents([record(), record()]))) == [wanted, wanted]
    assert yaml_documents([]) == b""
    assert table_lines([record()]).split() == [b"1", b"2", b"1970-01-01T00:00:00.003Z", b"-", b'{"base64":', b'"/wo="}']


@pytest.mark.parametrize("timestamp", [253402300800000, 2**62, -(2**62)])
def test_a_time_that_no_calendar_has_is_shown_as_its_number(timestamp: int) -> None:
    far = record()
    far.timestamp = timestamp
    assert table_lines([far]).split()[2] == str(timestamp).encode()


@pytest.mark.parametrize("template", [None, "%k %v %h\n"])
def test_nor_does_a_record_as_it_is_or_in_a_format(template: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = Record(2, 3, 0, b"\x1b[2J", b"\x1b]52;c;x\x07\xff", (("\x9b31m", b"\x1b"),), "t", 1)
    as_it_is = _writer(None, template, None, False)([hostile])
    assert b"\x1b]52;c;x\x07\xff" in as_it_is, "into a pipe go the bytes"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = _writer(None, template, None, False)([hostile]).decode()
    assert shown.endswith("\n")
    assert shown[:-1].isprintable()
    assert "\\x1b]52;c;x\\x07\\xff" in shown


def test_what_a_format_itself_writes_is_its_authors_also_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = Record(2, 3, 0, b"\x1b[2Jk", "ö\n".encode(), (), "t", 1)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write = _writer(None, r"\x1b[1m%k\x1b[0m\t%v\xff%%\r\n", None, False)
    assert write([hostile]) == b"\x1b[1m\\x1b[2Jk\x1b[0m\t" + "ö\n".encode() + b"\xff%\r\n"
    assert _writer(None, None, r"\x1b[0m", False)([hostile]) == b"\\x1b[2Jk\x1b[0m" + "ö\n\n".encode()


def test_no_record_steers_the_terminal_that_shows_it() -> None:
    hostile = Record(2, 3, 0, b"\x1b[2J", "a\n\x1b]52;c;x\x07\u202eb\u3000ö".encode(), (), "t", 1)
    (line,) = table_lines([hostile]).decode().splitlines()
    assert line.isprintable() or line.replace("\u3000", "").isprintable()
    assert line.split(maxsplit=3)[3].split(maxsplit=1) == ["\\x1b[2J", "a\\n\\x1b]52;c;x\\x07\\u202eb\u3000ö"]
