"""What Spark sees first: the module it looks for, the format's name, the schema."""

import importlib

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.spark_connector.options import OptionError
from tests.kbroker.client.topics import create_topic, produce_values
from tests.spark_connector.schemas import plain_schema

datasource = pytest.importorskip("pyspark.sql.datasource")


def test_spark_finds_the_source_by_the_modules_name() -> None:
    source = importlib.import_module("pyspark_kbroker").DefaultSource
    assert issubclass(source, datasource.DataSource)
    assert source.name() == "kbroker"


def test_the_schema_follows_include_headers() -> None:
    source = importlib.import_module("pyspark_kbroker").DefaultSource
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    assert "headers" not in source(given).schema()
    assert "headers" in source({**given, "includeHeaders": "true"}).schema()


def test_typed_columns_are_those_given_or_those_of_a_sample(broker: BrokerProcess, topic_name: str) -> None:
    source = importlib.import_module("pyspark_kbroker").DefaultSource
    create_topic(broker.bootstrap, topic_name, partitions=2)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic_name, "valueFormat": "json"}
    assert "value struct<a int, b string>" in source({**options, "valueSchema": "a int, b string"}).schema()
    with pytest.raises(OptionError, match="valueSchema is needed"):
        source(options).schema()
    produce_values(broker.bootstrap, topic_name, 1, [b"junk", b'{"carrier":"UA","delay":2,"flight-no":7}'])
    assert "value struct<carrier:string,delay:bigint,`flight-no`:bigint>" in source(options).schema()


def test_filters_are_taken_only_where_each_use_has_a_plan_of_its_own() -> None:
    source = importlib.import_module("pyspark_kbroker").DefaultSource(
        {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    )
    shared = datasource.DataSourceReader.pushFilters
    assert type(source.reader(plain_schema())).pushFilters is shared
    source.takes_filters = True
    assert type(source.reader(plain_schema())).pushFilters is not shared
