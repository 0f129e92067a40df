"""What Spark sees first: the module it looks for, the format's name, the schema."""

import importlib

import pytest

datasource = pytest.importorskip("pyspark.sql.datasource")


def test_spark_finds_the_source_by_the_modules_name() -> None:
    source = importlib.import_module("pyspark_kbroker").DefaultSource
    assert issubclass(source, datasource.DataSource)
    assert source.name() == "kbroker"


def test_the_schema_follows_include_headers() -> None:
    source = importlib.import_module("pyspark_kbroker").DefaultSource
    assert "headers" not in source({}).schema()
    assert "headers" in source({"includeHeaders": "true"}).schema()
