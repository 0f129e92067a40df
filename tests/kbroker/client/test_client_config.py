import pytest

from kbroker.client.client_config import ConsumerConfig, ProducerConfig
from kbroker.client.errors import ConfigurationError


def test_dotted_names_with_text_values_are_read() -> None:
    options = {"kafka.bootstrap.servers": "a:1,[::1]:2,c", "kafka.fetch.min.bytes": "7"}
    config = ConsumerConfig.read(options)
    assert config.addresses() == [("a", 1), ("::1", 2), ("c", 9092)]
    assert config.fetch_min_bytes == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"linger": 5}, "did you mean 'linger_ms'"),
        ({"acks": "some"}, "acks is"),
        ({"acks": 1, "enable_idempotence": True}, "needs acks='all'"),
        ({"compression": "rar"}, "compression is"),
        ({"linger_ms": "soon"}, "whole number"),
        ({"batch_size": -1}, "at least 0"),
        ({"sasl_mechanism": "PLAIN"}, "not there yet"),
        ({"security_protocol": "SSL"}, "only 'PLAINTEXT'"),
        ({"max_in_flight": 6}, "1 to 5"),
        ({"bootstrap": "host:port"}, "is not host:port"),
    ],
)
def test_what_is_wrong_is_told(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ProducerConfig.read({"bootstrap": "a:1", **options})


def test_without_acks_all_there_is_no_idempotence() -> None:
    assert ProducerConfig.read({"bootstrap": "a:1"}).idempotent
    assert not ProducerConfig.read({"bootstrap": "a:1", "acks": 1}).idempotent
