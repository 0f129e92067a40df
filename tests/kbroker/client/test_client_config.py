import pytest

from kbroker.client.client_config import LEVELS, ConsumerConfig, ProducerConfig
from kbroker.client.errors import ConfigurationError
from kbroker.protocol.records.compression import CompressionType, compress, decompress


def test_dotted_names_with_text_values_are_read() -> None:
    options = {"kafka.bootstrap.servers": "a:1,[::1]:2,c", "kafka.fetch.min.bytes": "7"}
    config = ConsumerConfig.read(options)
    assert config.addresses() == [("a", 1), ("::1", 2), ("c", 9092)]
    assert config.fetch_min_bytes == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"linger": 5}, "did you mean 'linger_ms'"),
        ({"acks": "some"}, "acks=.some.: allowed is all, -1, 1, 0"),
        ({"acks": 1, "enable_idempotence": True}, "needs acks='all'"),
        ({"transactional_id": ""}, "transactional_id is empty"),
        ({"transactional_id": "x", "acks": 1}, "transactional_id needs acks='all', not acks=1"),
        ({"transactional_id": "x", "enable_idempotence": False}, "transactional_id needs idempotence"),
        ({"transactional_id": "x", "max_in_flight": 6}, "max_in_flight is 1 to 5"),
        ({"transactional_id": "x", "transaction_timeout_ms": 0}, "transaction_timeout_ms"),
        ({"compression": "rar"}, "allowed is none, gzip"),
        ({"linger_ms": "soon"}, "whole number"),
        ({"batch_size": -1}, "batch_size=-1: allowed is ≥ 0"),
        ({"security.protocol": "SASL_SSL"}, "sasl_mechanism is missing"),
        ({"security_protocol": "TLS"}, "security_protocol='TLS': allowed is PLAINTEXT, SSL, "),
        ({"ssl.key.password": 5}, "ssl.key.password is text, not this secret"),
        ({"max_in_flight": 6}, "1 to 5"),
        ({"max_in_flight": 0}, "max_in_flight=0: allowed is ≥ 1"),
        ({"linger_ms": 500, "delivery_timeout_ms": 500}, "must be above linger_ms=500"),
        ({"partitioner": "murmur3"}, "partitioner='murmur3': allowed is murmur2_random, "),
        ({"compression": "gzip", "compression_level": 10}, "compression_level=10: gzip has levels 1 to 9 or -1"),
        ({"compression": "gzip", "compression_level": -2}, "compression_level=-2: gzip has levels"),
        ({"compression": "lz4", "compression_level": 18}, "compression_level=18: lz4 has levels 1 to 17"),
        ({"compression": "zstd", "compression_level": 23}, "zstd has levels -131072 to 22"),
        ({"compression": "snappy", "compression_level": 3}, "compression='snappy' has no levels"),
        ({"compression.gzip.level": 99}, "compression_gzip_level=99: gzip has levels"),
        ({"bootstrap": "host:port"}, "is not host:port"),
        ({"buffer_memory": 0}, "buffer_memory=0: allowed is ≥ 1"),
    ],
)
def test_what_is_wrong_is_told(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ProducerConfig.read({"bootstrap": "a:1", **options})


@pytest.mark.parametrize("name", ["max_poll_records", "prefetch_bytes"])
def test_a_consumer_that_could_read_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}=0: allowed is ≥ 1"):
        ConsumerConfig.read({"bootstrap": "a:1", name: 0})


def test_without_acks_all_there_is_no_idempotence() -> None:
    assert ProducerConfig.read({"bootstrap": "a:1"}).idempotent
    assert not ProducerConfig.read({"bootstrap": "a:1", "acks": 1}).idempotent


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"compression": "gzip", "compression_level": -1}, None),
        ({"compression": "gzip", "compression.gzip.level": "-1"}, None),
        ({"compression": "gzip", "compression.gzip.level": "9", "compression.zstd.level": "3"}, 9),
        ({"compression": "zstd", "compression.gzip.level": "9", "compression_level": -5}, -5),
        ({"compression": "none", "compression.lz4.level": "9"}, None),
    ],
)
def test_the_level_is_that_of_the_codec_in_use(options: dict[str, object], level: int | None) -> None:
    assert ProducerConfig.read({"bootstrap": "a:1", **options}).level == level


@pytest.mark.parametrize("codec", LEVELS)
def test_every_level_that_is_allowed_compresses(codec: str) -> None:
    lowest, highest = LEVELS[codec]
    for level in {lowest, -1, 1, 9, 12, highest}:
        if lowest <= level <= highest:
            data = compress(CompressionType.of_name(codec), b"kbroker " * 1_000, level)
            assert bytes(decompress(CompressionType.of_name(codec), data)) == b"kbroker " * 1_000
