"""Avro to and from Arrow, alone and framed with a registry's ids."""

import json
import struct
from collections.abc import Iterator

import pytest

from kbroker.client.avro import AvroError
from kbroker.client.schema_registry import Registry, RegistryError
from tests.spark_connector.registries import FakeRegistry, serving

pa = pytest.importorskip("pyarrow")
avro_columns = pytest.importorskip("kbroker.spark_connector.avro_columns")
OLD = json.dumps({"type": "record", "name": "F", "fields": [{"name": "a", "type": "long"}]})
NEW = json.dumps(
    {"type": "record", "name": "F", "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": "long"}]}
)
KIND = pa.struct([("a", pa.int32()), ("b", pa.string())])


SEVEN = struct.pack(">bI", 0, 1) + b"\x0e"


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    answers = {
        "/schemas/ids/1": {"schema": OLD},
        "/schemas/ids/2": {"schema": NEW},
        "/subjects/flights-value/versions/latest": {"id": 2, "schema": NEW},
    }
    with serving(answers) as fake:
        yield fake


def test_values_are_read_and_bad_ones_told_by_row() -> None:
    column = avro_columns.AvroColumn(KIND, NEW, framed=False, registry=None)
    values, malformed = column.parse(pa.array([b"\x02x\x0e", None, b"\x02", b"\x02x\xfe\xff\xff\xff\xff\x01"]))
    assert values.to_pylist() == [{"a": 7, "b": "x"}, None, None, None]
    assert list(malformed) == [2, 3]
    assert "not of the column's type" in malformed[3]


def test_a_number_of_more_than_64_bits_is_malformed_in_its_row_alone() -> None:
    kind = pa.struct([("a", pa.int64())])
    column = avro_columns.AvroColumn(kind, OLD, framed=False, registry=None)
    largest = b"\xfe" + b"\xff" * 8 + b"\x01"
    values, malformed = column.parse(pa.array([b"\x0e", largest[:-1] + b"\x03", largest]))
    assert values.to_pylist() == [{"a": 7}, None, {"a": (1 << 63) - 1}]
    assert list(malformed) == [1]
    assert "a number of more than 64 bits" in malformed[1]


@pytest.mark.slow
def test_framed_values_are_read_with_the_schema_that_wrote_them(registry: FakeRegistry) -> None:
    column = avro_columns.AvroColumn(KIND, "", framed=True, registry=Registry(registry.url))
    values = [SEVEN, struct.pack(">bI", 0, 2) + b"\x02x\x10", b"\x01zz", b"\0\0\0\0\x63"]
    found, malformed = column.parse(pa.array(values))
    assert found.to_pylist() == [{"a": 7, "b": None}, {"a": 8, "b": "x"}, None, None]
    assert "does not begin with" in malformed[2]
    assert "schemas/ids/99" in malformed[3]
    local = avro_columns.AvroColumn(KIND, OLD, framed=True, registry=None)
    assert local.parse(pa.array(values[:1]))[0].to_pylist() == [{"a": 7, "b": None}]


def test_structs_are_written_and_read_again(registry: FakeRegistry) -> None:
    rows = pa.chunked_array([pa.array([{"a": 1, "b": "x"}, None], KIND)])
    schema_id, schema = Registry(registry.url).latest("flights-value")
    framed = avro_columns.encode_column(rows, schema, schema_id)
    assert framed.to_pylist() == [b"\0\0\0\0\x02\x02x\x02", None]
    assert avro_columns.encode_column(rows, NEW, None).to_pylist() == [b"\x02x\x02", None]
    with pytest.raises(AvroError, match="row 0 does not follow the schema"):
        avro_columns.encode_column(pa.chunked_array([pa.array([{"a": None, "b": "x"}], KIND)]), NEW, None)


def test_a_registry_that_fails_makes_no_value_null() -> None:
    with serving({}) as gone:
        pass
    away = avro_columns.AvroColumn(KIND, "", framed=True, registry=Registry(gone.url, retry_for=0.2))
    with pytest.raises(RegistryError, match="schemas/ids/1"):
        away.parse(pa.array([SEVEN]))
    with serving({"/schemas/ids/1": {"schema": '{"type":"unheard of"}'}}) as strange:
        column = avro_columns.AvroColumn(KIND, "", framed=True, registry=Registry(strange.url))
        with pytest.raises(RegistryError, match="schema 1 of the registry: 'unheard of' is no type"):
            column.parse(pa.array([SEVEN]))


def test_an_id_that_the_registry_is_yet_to_learn_is_asked_for_again(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_columns, "DOUBT_S", 0.01)
    registry.failures = [(404, json.dumps({"error_code": 40403}).encode())]
    column = avro_columns.AvroColumn(KIND, "", framed=True, registry=Registry(registry.url))
    assert column.parse(pa.array([SEVEN]))[0].to_pylist() == [{"a": 7, "b": None}]
    garbage = pa.array([struct.pack(">bI", 0, number) for number in (50, 51, 52, 53, 54, 50)])
    assert len(column.parse(garbage)[1]) == 6
    asked = [path.rpartition("/")[2] for path in registry.asked]
    assert asked == ["1", "1", "50", "50", "50", "51", "52", "53", "54"], "a task that meets garbage doubts thrice"
