import json
from typing import Any

import pytest

from kbroker.client.client_config import ProducerConfig
from kbroker.client.errors import ConfigurationError, SerializationError
from kbroker.client.serializers import RecordSerializer


class ByTopic:
    def serialize(self, topic: str, value: Any) -> bytes:
        return f"{topic}:{value}".encode()


def test_functions_and_objects_make_bytes_of_values_and_none_stays_none() -> None:
    both = RecordSerializer(ByTopic(), lambda value: json.dumps(value).encode())
    assert both.serialize("t", 7, {"a": 1}) == (b"t:7", b'{"a": 1}')
    assert both.serialize("t", None, None) == (None, None)
    assert RecordSerializer(None, ByTopic()).serialize("t", b"key", "v") == (b"key", b"t:v")


def test_a_serializer_that_fails_is_named_with_its_topic() -> None:
    broken = RecordSerializer(lambda key: 1 // 0, lambda value: "text")  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match=r"t: the key's serializer failed: ZeroDivisionError") as raised:
        broken.serialize("t", "k", None)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    with pytest.raises(SerializationError, match="t: the value's serializer returned str, not bytes"):
        broken.serialize("t", None, "v")


def test_what_is_no_serializer_is_refused_when_the_producer_is_made() -> None:
    with pytest.raises(ConfigurationError, match="value_serializer='json': allowed is a function"):
        ProducerConfig.read({"bootstrap": "a:1", "value_serializer": "json"})
