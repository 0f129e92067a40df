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
    ],
)
def test_a_wrong_option_is_refused_by_name(changed: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refusal:
        write_options({**BASE, **changed})
    assert said in str(refusal.value)
