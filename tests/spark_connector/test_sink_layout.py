"""Which columns become what of a record, and which types are refused."""

from typing import Any

import pytest

from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.write_options import write_options

types = pytest.importorskip("pyspark.sql.types")
sink_layout = pytest.importorskip("kbroker.spark_connector.sink_layout")
SIMPLE = {"string": types.StringType(), "binary": types.BinaryType(), "int": types.IntegerType()}
OBJECT = types.StructType([types.StructField("a", types.IntegerType())])
HEADER = types.StructType(
    [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
)


def layout(options: dict[str, str], **columns: Any) -> Any:
    schema = types.StructType([types.StructField(name, SIMPLE.get(kind, kind)) for name, kind in columns.items()])
    return sink_layout.sink_layout(schema, write_options({"kafka.bootstrap.servers": "h:1", **options}))


def test_the_columns_of_sparks_sink_have_their_places() -> None:
    headers = types.ArrayType(HEADER)
    found = layout({}, topic="string", key="string", value="binary", partition="int", headers=headers, other="int")
    assert (found.key, found.value, found.topic, found.partition, found.headers) == (
        *("key", "value", "topic"),
        *("partition", "headers"),
    )
    assert layout({"topic": "t"}, topic="string", value="string").topic == "", "the option goes before the column"


def test_a_typed_frame_becomes_objects_of_all_its_columns_or_of_its_value() -> None:
    json = {"topic": "t", "valueFormat": "json"}
    found = layout({**json, "keyColumn": "carrier"}, carrier="string", delay="int", partition="int")
    assert (found.key, found.fields, found.partition) == ("carrier", ("carrier", "delay"), "partition")
    found = layout(json, key="string", value=OBJECT)
    assert (found.key, found.value, found.fields) == ("key", "value", ())


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({}, {"value": "string"}, 'option "topic" nor a column "topic"'),
        ({"topic": "t"}, {"key": "string"}, 'no column "value"'),
        ({"topic": "t"}, {"value": "int"}, "value is int, it must be string or binary (or give valueFormat=json)"),
        ({"topic": "t"}, {"value": "string", "key": "int"}, "key is int"),
        ({"topic": "t"}, {"value": "string", "partition": "string"}, "partition is string, it must be an int"),
        ({"topic": "t"}, {"value": "string", "headers": "string"}, "headers is string"),
        ({"topic": "t", "keyColumn": "k"}, {"value": "string"}, "keyColumn=k"),
        ({"topic": "t", "valueFormat": "json"}, {"key": "string"}, "no column to make an object of"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_by_column(
    options: dict[str, str], columns: dict[str, str], said: str
) -> None:
    with pytest.raises(OptionError) as refusal:
        layout(options, **columns)
    assert said in str(refusal.value)
