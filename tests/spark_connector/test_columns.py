"""Spark's schema and the clients' Arrow schema must be the same, to the letter; a user's schema finds its columns."""

import pytest

from kbroker.spark_connector.columns import plan_columns, schema_ddl
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.read_options import ReadOptions, read_options
from tests.spark_connector.schemas import plain_schema, schema

arrow = pytest.importorskip("kbroker.client.arrow")
typed_rows = pytest.importorskip("kbroker.spark_connector.typed_rows")
types = pytest.importorskip("pyspark.sql.types")
HEADER = schema(key="string", value="binary")
OBJECT = schema(a="int")


def options(**given: str) -> ReadOptions:
    return read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given})


def test_the_arrow_batches_have_exactly_sparks_types() -> None:
    with_headers = types.StructType([*plain_schema().fields, types.StructField("headers", types.ArrayType(HEADER))])
    assert arrow.SCHEMA.equals(typed_rows.arrow_schema(plain_schema()))
    assert arrow.SCHEMA_WITH_HEADERS.equals(typed_rows.arrow_schema(with_headers))


def test_formats_and_headers_change_the_schema() -> None:
    assert schema_ddl(options()).startswith("key binary, value binary, topic string, partition int, offset bigint")
    assert "headers" not in schema_ddl(options())
    assert schema_ddl(options(includeHeaders="true")).endswith("headers array<struct<key:string,value:binary>>")
    typed = schema_ddl(options(keyFormat="string", valueFormat="json"), value="struct<a:int>")
    assert typed.startswith("key string, value struct<a:int>, topic string")


def test_a_users_schema_takes_columns_and_fields_of_the_value() -> None:
    assert plan_columns(schema(offset="bigint", value="binary"), options()).taken == ("offset", "value")
    plan = plan_columns(
        schema(carrier="string", partition="int", timestamp="string", _corrupt_record="string"),
        options(valueFormat="json"),
    )
    assert (plan.taken, plan.fields, plan.has_corrupt_record) == (("partition",), ("carrier", "timestamp"), True)
    assert (
        plan_columns(schema(value=OBJECT, key="string"), options(valueFormat="json", keyFormat="string")).fields == ()
    )


@pytest.mark.parametrize(
    ("columns", "given", "said"),
    [
        ({"carrier": "string"}, {}, "column carrier (string) is not there: there are key, value"),
        ({"value": "string"}, {}, "column value (string) is not there: it must be binary"),
        ({"offset": "int"}, {}, "it must be bigint"),
        ({"value": OBJECT, "carrier": "string"}, {"valueFormat": "json"}, "column carrier"),
    ],
)
def test_a_column_without_a_place_is_refused(columns: dict[str, str], given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refusal:
        plan_columns(schema(**columns), options(**given))
    assert said in str(refusal.value)
