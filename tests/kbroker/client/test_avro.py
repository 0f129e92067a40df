"""Avro's binary form, there and back, and what bad bytes lead to."""

import datetime
import decimal
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.avro import AvroError, compile_schema, decode_whole

RECORD = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"]},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "legs", "type": {"type": "array", "items": {"type": "enum", "name": "Leg", "symbols": ["A", "B"]}}},
        {"name": "last", "type": "Leg"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "ratio", "type": "double"},
        {"name": "ok", "type": "boolean"},
    ],
}
FLIGHT = {
    "carrier": "UA",
    "delay": None,
    "tags": [("x", -3)],
    "legs": ["B", "A"],
    "last": "A",
    "day": datetime.date(2013, 1, 1),
    "at": datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC),
    "price": decimal.Decimal("-12.50"),
    "code": b"xy",
    "ratio": 0.5,
    "ok": True,
}


def encode(schema: Any, value: Any) -> bytes:
    out = bytearray()
    compile_schema(json.dumps(schema)).encode(value, out)
    return bytes(out)


def decode(schema: Any, data: bytes) -> Any:
    return decode_whole(compile_schema(json.dumps(schema)), data)


def test_a_record_of_everything_comes_back() -> None:
    assert decode(RECORD, encode(RECORD, FLIGHT)) == FLIGHT
    assert compile_schema(json.dumps(RECORD)).spark_type == (
        "struct<carrier:string,delay:int,tags:map<string,bigint>,legs:array<string>,last:string,day:date,"
        "at:timestamp,price:decimal(9,2),code:binary,ratio:double,ok:boolean>"
    )


@pytest.mark.parametrize(
    ("schema", "value", "data"),
    [
        ("long", 64, b"\x80\x01"),
        ("int", -2, b"\x03"),
        ("string", "foo", b"\x06foo"),
        ({"type": "array", "items": "long"}, [3, 27], b"\x04\x06\x36\x00"),
        (["null", "string"], "a", b"\x02\x02a"),
        (["null", "string"], None, b"\x00"),
    ],
)
def test_the_examples_of_the_specification_are_read_and_written(schema: Any, value: Any, data: bytes) -> None:
    assert encode(schema, value) == data
    assert decode(schema, data) == value


def test_items_of_no_bytes_are_few_in_all_arrays_of_a_value() -> None:
    nested = {"type": "array", "items": {"type": "array", "items": "null"}}
    few = encode(nested, [[None] * 1000] * 10)
    assert decode(nested, few) == [[None] * 1000] * 10
    assert decode(nested, few)[0][0] is None  # each value has its own
    with pytest.raises(AvroError, match="too few bytes"):
        decode(nested, encode(nested, [[None] * 1000] * 20))
    longs = {"type": "array", "items": "long"}
    assert decode(longs, encode(longs, [1] * 100_000)) == [1] * 100_000


def test_blocks_with_their_size_are_read() -> None:
    assert decode({"type": "array", "items": "long"}, b"\x03\x04\x06\x36\x00") == [3, 27]


@pytest.mark.parametrize(
    ("schema", "data", "said"),
    [
        ("string", b"\x06fo", "3 bytes at 1 of 3"),
        ("string", b"\x02aa", "1 bytes too many"),
        ("long", b"\x80", "do not follow"),
        ("long", b"\xff" * 9, "do not follow"),
        ("long", b"\xff" * 12, "more than 64 bits"),
        ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (["null", "int"], b"\x08", "no branch 4"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\x01\x00", "items in one block"),
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f", "do not follow"),
    ],
)
def test_bytes_that_do_not_follow_the_schema_are_told(schema: Any, data: bytes, said: str) -> None:
    with pytest.raises(AvroError, match=said):
        decode(schema, data)


STRANGE = [
    '{"type":"bytes","logicalType":"decimal"}',
    '{"type":"fixed","name":"F","size":"x"}',
    '{"type":"fixed","name":"F","size":null}',
    '{"type":"enum","name":"E","symbols":3}',
    '{"type":' * 5000 + '"int"' + "}" * 5000,
    "[" * 100_000,
]


@pytest.mark.parametrize("schema", ["{", '"strin"', '["int","string"]', '{"type":"record","name":"R"}', "7", *STRANGE])
def test_a_schema_that_makes_no_column_is_refused(schema: str) -> None:
    with pytest.raises(AvroError):
        compile_schema(schema)


@given(st.binary(max_size=40))
def test_no_bytes_do_more_harm_than_an_error(data: bytes) -> None:
    try:
        decode(RECORD, data)
    except AvroError:
        return


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_long_comes_back(number: int) -> None:
    assert decode("long", encode("long", number)) == number


def test_a_decimal_keeps_all_its_digits() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    value = decimal.Decimal("123456789012345678901234567890123456.78")
    assert decode(schema, encode(schema, value)) == value
