"""Whole records as text."""

import json

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
