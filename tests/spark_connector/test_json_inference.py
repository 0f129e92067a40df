"""The type of JSON objects, found from a sample."""

import pytest

json_inference = pytest.importorskip("kbroker.spark_connector.json_inference")


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([b'{"b":1,"a":"x"}'], "struct<a:string,b:bigint>"),
        ([b'{"a":1}', b'{"a":1.5}', b'{"c":true}', b'{"a":null}'], "struct<a:double,c:boolean>"),
        ([b'{"a":1}', b'{"a":"x"}'], "struct<a:string>"),
        ([b'{"a":null}', b'{"l":[]}', b'{"l":[1,null]}'], "struct<a:string,l:array<bigint>>"),
        ([b'{"o":{"x":1}}', b'{"o":{"y":[{"z":2}]}}'], "struct<o:struct<x:bigint,y:array<struct<z:bigint>>>>"),
        ([b"not json", b"[1]", b'{"a":123456789012345678901}'], "struct<a:double>"),
    ],
)
def test_types_are_those_that_sparks_json_reader_finds(texts: list[bytes], found: str) -> None:
    assert json_inference.infer_struct(texts).simpleString() == found


def test_nothing_is_found_where_there_is_no_object() -> None:
    assert json_inference.infer_struct([b"7", b"x"]) is None


@pytest.mark.parametrize("depth", [400, 100_000])
def test_a_record_nested_beyond_measure_shows_nothing_and_hides_no_other(depth: int) -> None:
    deep = b'{"x":' + b'{"y":' * depth + b"1" + b"}" * depth + b"}"
    assert json_inference.infer_struct([b'{"a":1}', deep, deep, b'{"b":1}']).fieldNames()[:2] == ["a", "b"]


def test_names_that_are_no_identifiers_of_sql_are_quoted() -> None:
    found = json_inference.infer_struct([b'{"plain_1":1,"flight-no":1,"a b":[{"1st":"x","tick`":null}],"\xc3\xbc":1}'])
    assert json_inference.ddl(found) == (
        "struct<`a b`:array<struct<`1st`:string,`tick```:string>>,`flight-no`:bigint,plain_1:bigint,`ü`:bigint>"
    )
