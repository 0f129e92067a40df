"""Avro to and from Arrow, alone and framed with a registry's ids."""

import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kbroker.spark_connector.avro import AvroError

pa = pytest.importorskip("pyarrow")
avro_columns = pytest.importorskip("kbroker.spark_connector.avro_columns")
OLD = json.dumps({"type": "record", "name": "F", "fields": [{"name": "a", "type": "long"}]})
NEW = json.dumps(
    {"type": "record", "name": "F", "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": "long"}]}
)
KIND = pa.struct([("a", pa.int32()), ("b", pa.string())])


@pytest.fixture
def registry() -> Iterator[str]:
    answers = {
        "/schemas/ids/1": {"schema": OLD},
        "/schemas/ids/2": {"schema": NEW},
        "/subjects/flights-value/versions/latest": {"id": 2, "schema": NEW},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path)
            self.send_response(200 if answer else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_values_are_read_and_bad_ones_told_by_row() -> None:
    column = avro_columns.AvroColumn(KIND, NEW, framed=False, registry=None)
    values, malformed = column.parse(pa.array([b"\x02x\x0e", None, b"\x02", b"\x02x\xfe\xff\xff\xff\xff\x01"]))
    assert values.to_pylist() == [{"a": 7, "b": "x"}, None, None, None]
    assert list(malformed) == [2, 3]
    assert "not of the column's type" in malformed[3]


def test_framed_values_are_read_with_the_schema_that_wrote_them(registry: str) -> None:
    column = avro_columns.AvroColumn(KIND, "", framed=True, registry=avro_columns.Registry(registry))
    values = [struct.pack(">bI", 0, 1) + b"\x0e", struct.pack(">bI", 0, 2) + b"\x02x\x10", b"\x01zz", b"\0\0\0\0\x63"]
    found, malformed = column.parse(pa.array(values))
    assert found.to_pylist() == [{"a": 7, "b": None}, {"a": 8, "b": "x"}, None, None]
    assert "does not begin with" in malformed[2]
    assert "schemas/ids/99" in malformed[3]
    local = avro_columns.AvroColumn(KIND, OLD, framed=True, registry=None)
    assert local.parse(pa.array(values[:1]))[0].to_pylist() == [{"a": 7, "b": None}]


def test_structs_are_written_and_read_again(registry: str) -> None:
    rows = pa.chunked_array([pa.array([{"a": 1, "b": "x"}, None], KIND)])
    schema_id, schema = avro_columns.Registry(registry).latest("flights-value")
    framed = avro_columns.encode_column(rows, schema, schema_id)
    assert framed.to_pylist() == [b"\0\0\0\0\x02\x02x\x02", None]
    assert avro_columns.encode_column(rows, NEW, None).to_pylist() == [b"\x02x\x02", None]
    with pytest.raises(AvroError, match="row 0 does not follow the schema"):
        avro_columns.encode_column(pa.chunked_array([pa.array([{"a": None, "b": "x"}], KIND)]), NEW, None)
