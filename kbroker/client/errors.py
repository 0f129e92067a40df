"""One exception class per Kafka error code, named after it: UNKNOWN_TOPIC_OR_PARTITION -> UnknownTopicOrPartitionError.

    try: ...
    except errors.NotEnoughReplicasError as error:
        if error.retriable: ...

All derive from `BrokerError`, which is a `kbroker.protocol.errors.KafkaError` that knows topic, partition and broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.protocol.errors import ErrorCode, KafkaError


class BrokerError(KafkaError):
    """What a broker (or this client in its place) refused; the message names topic, partition and broker."""

    def __init__(
        self,
        code: ErrorCode,
        message: str = "",
        *,
        topic: str | None = None,
        partition: int | None = None,
        broker: str | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.broker = broker
        where = f"{topic}-{partition}" if topic is not None and partition is not None else topic or ""
        place = " at ".join(text for text in (where, broker and f"broker {broker}") if text)
        super().__init__(code, ": ".join(text for text in (place, message) if text))

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed when it is made again."""
        return self.code.retriable

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.code, self.message, self.topic, self.partition, self.broker)


def _rebuild(
    code: ErrorCode, message: str, topic: str | None, partition: int | None, broker: str | None
) -> BrokerError:
    """Make a pickled error again; its message is already whole."""
    error = error_for(code)
    error.message, error.topic, error.partition, error.broker = message, topic, partition, broker
    error.args = (code, message)
    return error


def _class_name(code: ErrorCode) -> str:
    name = "".join(word.capitalize() for word in code.name.split("_"))
    return name.removesuffix("Exception").removesuffix("Error") + "Error"


CLASS_BY_CODE: dict[ErrorCode, type[BrokerError]] = {
    code: type(
        _class_name(code), (BrokerError,), {"__doc__": f"Kafka's {code.name} ({code.value}).", "__module__": __name__}
    )
    for code in ErrorCode
    if code is not ErrorCode.NONE
}
globals().update({cls.__name__: cls for cls in CLASS_BY_CODE.values()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[BrokerError]: ...


def error_for(
    code: ErrorCode,
    message: str | None = "",
    *,
    topic: str | None = None,
    partition: int | None = None,
    broker: object = None,
) -> BrokerError:
    """Return the exception for a code (not NONE)."""
    name = None if broker is None else str(broker)
    return CLASS_BY_CODE[code](code, message or "", topic=topic, partition=partition, broker=name)


class BufferFull(BrokerError):
    """The producer's buffer_memory is used up and no room came within max_block_ms."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class DeliveryTimeout(BrokerError):
    """A record was not acknowledged within delivery_timeout_ms; it may have been written or not."""

    def __init__(self, message: str, **place: Any) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message, **place)


class RowTooLarge(ValueError):
    """A row of a table, counted from 0, that no request can hold; nothing of the table was sent."""

    def __init__(self, row: int, size: int, limit: int) -> None:
        self.row = row
        self.size = size
        self.limit = limit
        super().__init__(f"row {row} has {size} bytes, max_request_size allows {limit}")

    def __reduce__(self) -> tuple[Any, ...]:
        return RowTooLarge, (self.row, self.size, self.limit)


class MalformedValue(ValueError):
    """A value that is not of the format it is read in."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason
        how = f"seek to {offset + 1} to skip it, or take malformed='null'"
        super().__init__(f"{topic}-{partition} at offset {offset}: {reason}; {how}")

    def __reduce__(self) -> tuple[Any, ...]:
        return MalformedValue, (self.topic, self.partition, self.offset, self.reason)


class DeserializationError(ValueError):
    """A key or value that its deserializer does not take; `__cause__` is what that raised."""

    def __init__(self, topic: str, partition: int, offset: int, part: str, reason: str) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.part = part
        self.reason = reason
        super().__init__(
            f"{topic}-{partition} at offset {offset}: the {part}: {reason}; seek to {offset + 1} to skip it"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return DeserializationError, (self.topic, self.partition, self.offset, self.part, self.reason)


AFTER_FORK = "this client was made before a fork: make another one in the child process"


class ClientClosed(RuntimeError):
    """The client was closed before, or while, this was called."""


class WokenUp(RuntimeError):
    """A call of a consumer ended because `wakeup` was called."""


class ConfigurationError(ValueError):
    """An argument that does not exist, or a value it cannot have."""
