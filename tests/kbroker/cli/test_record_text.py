"""Whole records as text."""

import json

import pytest
import yaml

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


def test_no_record_steers_the_terminal_that_shows_it() -> None:
    hostile = Record(2, 3, 0, b"\x1b[2J", "a\n\x1b]52;c;x\x07\u202eb\u3000ö".encode(), (), "t", 1)
    (line,) = table_lines([hostile]).decode().splitlines()
    assert line.isprintable() or line.replace("\u3000", "").isprintable()
    assert line.split(maxsplit=3)[3].split(maxsplit=1) == ["\\x1b[2J", "a\\n\\x1b]52;c;x\\x07\\u202eb\u3000ö"]
