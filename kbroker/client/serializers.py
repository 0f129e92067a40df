"""Keys and values of the application to bytes: functions given to a producer, asked once for each record.

    Producer(…, value_serializer=lambda value: json.dumps(value).encode())

A serializer is a function of the value, or an object with `serialize(topic, value)`. None is no value and stays None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kbroker.client.errors import SerializationError


class TopicSerializer(Protocol):
    """What makes bytes of a value by the topic that it goes to."""

    def serialize(self, topic: str, value: Any, /) -> bytes | None:
        """Return the value's bytes."""


Serializer = Callable[[Any], bytes | None] | TopicSerializer


def is_serializer(value: object) -> bool:
    """Whether it can be asked for bytes."""
    return callable(value) or callable(getattr(value, "serialize", None))


class RecordSerializer:
    """A producer's two serializers; either may be missing."""

    def __init__(self, key: Serializer | None, value: Serializer | None) -> None:
        self._key = _by_topic(key)
        self._value = _by_topic(value)

    def serialize(self, topic: str, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        """Return a record's key and value as bytes; raises SerializationError."""
        return _asked("key", self._key, topic, key), _asked("value", self._value, topic, value)


def _by_topic(serializer: Serializer | None) -> Callable[[str, Any], bytes | None] | None:
    if serializer is None:
        return None
    method = getattr(serializer, "serialize", None)
    if method is not None:
        found: Callable[[str, Any], bytes | None] = method
        return found
    assert callable(serializer)
    function = serializer
    return lambda topic, value: function(value)


def _asked(role: str, serialize: Callable[[str, Any], bytes | None] | None, topic: str, value: Any) -> Any:
    if value is None or serialize is None:
        return value
    try:
        data = serialize(topic, value)
    except Exception as error:
        raise SerializationError(f"{topic}: the {role}'s serializer failed: {error!r}") from error
    if data is not None and not isinstance(data, bytes | bytearray | memoryview):
        raise SerializationError(f"{topic}: the {role}'s serializer returned {type(data).__name__}, not bytes")
    return data
