"""Typed columns straight out of `.load()`."""

import json
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.client.topics import produce_values
from tests.spark.test_read import create

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_json_values_become_typed_columns(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    create(broker, topic_name, partitions=1)
    values = [b'{"carrier":"UA","delay":%d,"at":"2013-01-01T05:00:00Z"}' % number for number in range(10)]
    produce_values(broker.bootstrap, topic_name, 0, [*values, b"junk"])
    reader = spark.read.format("kbroker").option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("subscribe", topic_name).option("valueFormat", "json")
    inferred = reader.load()
    assert inferred.schema["value"].dataType.simpleString() == "struct<at:string,carrier:string,delay:bigint>"
    assert inferred.selectExpr("sum(value.delay)").collect()[0][0] == 45
    given = reader.schema("carrier string, delay int, at timestamp, offset bigint, _corrupt_record string").load()
    assert given.where("delay >= 5 AND offset < 8").selectExpr("count(*)", "min(at)").collect()[0][0] == 3
    assert [row[0] for row in given.select("_corrupt_record").dropna().collect()] == ["junk"]
    assert reader.option("mode", "DROPMALFORMED").schema("delay int").load().count() == 10
    with pytest.raises(Exception, match=f"{topic_name}-0 at offset 10: value is not JSON"):
        reader.option("mode", "FAILFAST").option("valueSchema", "delay int").load().collect()


def test_avro_is_written_and_read_again_with_its_types(spark: Any, broker: BrokerProcess, topic_name: str) -> None:
    create(broker, topic_name, partitions=1)
    schema = {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "carrier", "type": "string"},
            {"name": "delay", "type": ["null", "int"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "stops", "type": {"type": "array", "items": "string"}},
        ],
    }
    frame = spark.sql(
        "SELECT carrier, delay, at, stops FROM VALUES"
        " ('UA', 5, TIMESTAMP '2013-01-01 05:15:00.123456', array('EWR', 'IAH')),"
        " ('AA', NULL, TIMESTAMP '2013-06-01 05:15:00', array()) AS flights(carrier, delay, at, stops)"
    ).coalesce(1)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "valueFormat": "avro", "valueSchema": json.dumps(schema)}
    frame.write.format("kbroker").mode("append").options(**options, topic=topic_name, keyColumn="carrier").save()
    produce_values(broker.bootstrap, topic_name, 0, [b"\xff"])
    rows = spark.read.format("kbroker").options(**options, subscribe=topic_name).load()
    assert rows.schema["value"].dataType.simpleString() == (
        "struct<carrier:string,delay:int,at:timestamp,stops:array<string>>"
    )
    assert rows.select("value.*").collect() == [*frame.collect(), (None, None, None, None)]
    assert [row.key for row in rows.select("key").collect()] == [b"UA", b"AA", None]
    with pytest.raises(Exception, match=f"{topic_name}-0 at offset 2: value is"):
        spark.read.format("kbroker").options(**options, subscribe=topic_name, mode="FAILFAST").load().collect()
