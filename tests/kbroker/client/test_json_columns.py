"""JSON to Arrow: fast where all fits, exact where something does not."""

import datetime
import decimal
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
json_columns = pytest.importorskip("kbroker.client.json_columns")
KIND = pa.struct(
    [
        ("a", pa.int64()),
        ("s", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("list", pa.list_(pa.field("element", pa.int32()))),
        ("inner", pa.struct([("x", pa.float64())])),
    ]
)


def parse(texts: list[bytes | None], kind: Any = KIND) -> tuple[list[Any], dict[int, str]]:
    column, malformed = json_columns.JsonColumn(kind).parse(pa.array(texts, pa.binary()))
    assert column.type == kind
    assert len(column) == len(texts)
    return column.to_pylist(), malformed


def test_each_type_is_read_and_what_is_missing_is_null() -> None:
    text = (
        b'{"a":1,"s":"x","at":"2013-01-01T05:15:00Z","day":"2013-01-01","price":1.5,"list":[1],"inner":{"x":2},"z":0}'
    )
    [full, tombstone, empty], malformed = parse([text, None, b" {} "])
    assert malformed == {}
    assert full == {
        "a": 1,
        "s": "x",
        "at": datetime.datetime(2013, 1, 1, 5, 15, tzinfo=datetime.UTC),
        "day": datetime.date(2013, 1, 1),
        "price": decimal.Decimal("1.50"),
        "list": [1],
        "inner": {"x": 2.0},
    }
    assert tombstone is None
    assert empty == dict.fromkeys(full)


def test_a_field_that_does_not_fit_is_null_and_the_others_stay() -> None:
    rows, malformed = parse([b'{"a":1}', b'{"a":"x","s":7,"list":[1]}', b'{"a":1.5,"day":"soon"}'])
    assert [row["a"] for row in rows] == [1, None, None]
    assert rows[1]["s"] == "7", "a number where a text is wanted stands as its text"
    assert rows[1]["list"] == [1]
    assert malformed == {1: 'a: "x" is not int64', 2: 'a: 1.5 is not int64; day: "soon" is not date32[day]'}


@pytest.mark.parametrize(
    "bad", [b"", b"  ", b"7", b"[]", b"{", b'{"a":1}{"a":2}', b'{"a":1}}', b"\xff\xfe", b'{"a":1}\n{}']
)
def test_what_is_no_object_is_null_as_a_whole_and_moves_no_other_row(bad: bytes) -> None:
    rows, malformed = parse([b'{"a":1}', bad, b'{"a":3}'])
    assert [row and row["a"] for row in rows] == [1, None, 3]
    assert list(malformed) == [1]


def test_objects_over_several_lines_and_maps_and_bytes_are_read() -> None:
    assert parse([b'{\n "a":\n 1}'])[0][0]["a"] == 1
    kind = pa.struct([("m", pa.map_(pa.string(), pa.int32())), ("b", pa.binary())])
    assert parse([b'{"m":{"k":1},"b":"QUI="}'], kind) == ([{"m": [("k", 1)], "b": b"AB"}], {})
    assert list(parse([b'{"b":"!"}'], kind)[1]) == [0]


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (pa.decimal128(10, 2), b"12345678901.5"),
        (pa.decimal128(10, 2), b"99999999.995"),
        (pa.decimal128(10, 2), b"NaN"),
        (pa.decimal128(10, 2), b'"123456789012"'),
        (pa.decimal128(10, 2), b'"sNaN"'),
        (pa.decimal128(10, 2), b"2147483648"),
        (pa.decimal128(38, 18), b"1e30"),
        (pa.list_(pa.decimal128(38, 18)), b"[1e30]"),
        (pa.string(), b'"\\ud800"'),
        (pa.list_(pa.string()), b'["\\ud800"]'),
        (pa.map_(pa.string(), pa.int32()), b'{"\\ude00":1}'),
        (pa.list_(pa.int64()), DEEP),
        (pa.map_(pa.string(), pa.int64()), DEEP),
        (pa.binary(), DEEP),
    ],
)
def test_no_value_is_so_odd_that_it_takes_the_other_rows_along(kind: Any, bad: bytes) -> None:
    frame = pa.struct([("a", pa.int64()), ("x", kind)])
    rows, malformed = parse([b'{"a":1}', b'{"a":2,"x":%s}' % bad, b'{"a":3}'], frame)
    assert [row and row["x"] for row in rows] == [None] * 3
    assert [row["a"] for row in (rows[0], rows[2])] == [1, 3]
    assert list(malformed) == [1]


def test_a_decimal_is_rounded_to_its_scale_as_a_number_and_as_text() -> None:
    rows, malformed = parse([b'{"price":1.125}', b'{"price":"1.125"}', b'{"price":"99999999.99"}'])
    assert [str(row["price"]) for row in rows] == ["1.12", "1.12", "99999999.99"]
    assert malformed == {}


def test_bad_rows_among_many_cost_only_their_chunk() -> None:
    texts: list[bytes | None] = [b'{"a":%d}' % number for number in range(2_000)]
    texts[700] = b"bad"
    rows, malformed = parse(texts)
    assert [row["a"] for number, row in enumerate(rows) if number != 700] == [n for n in range(2_000) if n != 700]
    assert list(malformed) == [700]


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.lists(st.integers())
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.dictionaries(st.sampled_from(["a", "s", "list"]), VALUES), VALUES), max_size=6))
def test_at_once_and_row_by_row_agree(values: list[Any]) -> None:
    texts = pa.array([json.dumps(value).encode() for value in values], pa.binary())
    column = json_columns.JsonColumn(KIND)
    slowly, _ = column._parse_each(texts)
    assert column.parse(texts)[0].to_pylist() == slowly.to_pylist()
