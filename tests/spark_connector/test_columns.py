"""Spark's schema and the clients' Arrow schema must be the same, to the letter: Spark checks the first batch only."""

from typing import Any

import pytest

from spark_connector.columns import schema_ddl

pytest.importorskip("pyspark")
arrow = pytest.importorskip("kbroker.client.arrow")


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("include_headers", [False, True])
def test_the_arrow_batches_have_exactly_sparks_types(spark: Any, include_headers: bool) -> None:
    pandas_types = pytest.importorskip("pyspark.sql.pandas.types")
    schema = spark.createDataFrame([], schema_ddl(include_headers)).schema
    expected = pandas_types.to_arrow_schema(schema, timezone="UTC")
    ours = arrow.SCHEMA_WITH_HEADERS if include_headers else arrow.SCHEMA
    assert ours.equals(expected)
