"""Options of writes: those of Spark's sink, and formats."""

import pytest

from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.write_options import write_options

BASE = {"kafka.bootstrap.servers": "h:1"}


def test_defaults_are_those_of_sparks_own_sink() -> None:
    options = write_options({**BASE, "checkpointLocation": "/somewhere", "kafka.compression.type": "zstd"})
    assert (options.topic, options.value_format, options.key_format) == ("", "binary", "binary")
    assert options.client == {"compression.type": "zstd"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"topics": "t"}, 'did you mean "topic"'),
        ({"valueFormat": "xml"}, "binary, json or avro"),
        ({"valueFormat": "avro"}, "needs valueSchema"),
        ({"valueFormat": "avro", "valueSchema": "{}", "avroFraming": "registry"}, "schemaRegistry"),
        ({"kafka.value.serializer": "x"}, "valueFormat says"),
        ({"exactlyOnce": "yes"}, "true"),
        ({"kafka.transactional.id": "mine"}, "exactlyOnce=true writes in transactions"),
        ({"exactlyOnce": "true", "kafka.transaction.timeout.ms": "1 min"}, "milliseconds"),
        ({"exactlyOnceLostBatch": "again"}, "17 again"),
    ],
)
def test_a_wrong_option_is_refused_by_name(changed: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refusal:
        write_options({**BASE, **changed})
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    "place", ["/data/checkpoint", "/data/checkpoint/", "file:/data/checkpoint", "file:///data/checkpoint"]
)
def test_a_query_that_writes_once_is_known_by_its_checkpoint_or_its_name(place: str) -> None:
    given = {**BASE, "exactlyOnce": "true", "checkpointLocation": place}
    assert write_options(given, streaming=True).name == "/data/checkpoint"
    assert write_options({**given, "exactlyOnceName": "mine"}, streaming=True).name == "mine"
    assert write_options({**BASE, "exactlyOnce": "true"}).name == "", "a frame needs none"
    with pytest.raises(OptionError, match="exactlyOnce=true needs the option checkpointLocation"):
        write_options({**BASE, "exactlyOnce": "true"}, streaming=True)


def test_the_time_of_transactions_may_be_limited() -> None:
    options = write_options({**BASE, "exactlyOnce": "true", "kafka.transaction.timeout.ms": "60000"})
    assert (options.transaction_timeout_ms, options.client) == (60_000, {})
