"""What the clients raise: one class per Kafka error code, and what goes wrong on this side.

    try: ...
    except NotEnoughReplicasError as error:
        if error.retriable: ...
    except ClientError: ...

All derive from `ClientError`, which is also called `KafkaError`; those of brokers from `BrokerError`, which is a
`kbroker.protocol.errors.KafkaError`, too, and knows topic, partition and broker. `from kbroker import …` has them all.
"""

from __future__ import annotations

from typing import Any

from kbroker.client.broker_errors import *  # noqa: F403 - the names of all error codes
from kbroker.client.error_base import AbortableError as AbortableError
from kbroker.client.error_base import BrokerError as BrokerError
from kbroker.client.error_base import ClientError as ClientError
from kbroker.client.error_base import FencedError as FencedError
from kbroker.client.error_base import KafkaError as KafkaError
from kbroker.client.error_base import LoginFailed as LoginFailed
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.succession import Succession

NO_ADDRESS = "no host has such a name, or no port such a number"
"""What Python says by a ValueError, mostly a UnicodeError, or by an OverflowError, not by an OSError."""


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
    return BrokerError.by_code[code](code, message or "", topic=topic, partition=partition, broker=name)


def error_out_of_order(topic: str, partition: int, seen: Succession) -> BrokerError:
    """Say which offset cannot be read because a batch lies about its own, and how to go on."""
    how = f"seek to {seen.resume_at} to skip it" if seen.resume_at >= 0 else "seek behind it"
    text = f"offset {seen.next_offset} cannot be read: {seen.problem}; a batch is damaged on the broker, {how}"
    return error_for(ErrorCode.CORRUPT_MESSAGE, text, topic=topic, partition=partition)


class NotConnected(ClientError, ConnectionError):
    """No connection to a broker, or it ended before the answer; the message names the address."""

    code = ErrorCode.NETWORK_EXCEPTION


class TimedOut(ClientError, TimeoutError):
    """No answer, or no acknowledgement, within the time that was given; it may still come."""

    code = ErrorCode.REQUEST_TIMED_OUT


class TlsFailed(LoginFailed, BrokerError):
    """The TLS handshake with a broker failed: a certificate or a name that does not fit, or no TLS there at all."""

    def __init__(self, address: str, message: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message, broker=address)

    def __str__(self) -> str:
        return self.message  # Kafka has no code for it


class IllegalState(ClientError, RuntimeError):
    """A call that cannot be made now."""


class NotAssigned(IllegalState, ValueError):
    """A partition that is not this consumer's, or not any more: a rebalance may have taken it between two calls."""


class ClientClosed(ClientError, RuntimeError):
    """The client was closed before, or while, this was called."""


class WokenUp(ClientError, RuntimeError):
    """A call of a consumer ended because `wakeup` was called."""


class ConfigurationError(ClientError, ValueError):
    """An argument that does not exist, or a value it cannot have."""


class BufferFull(BrokerError):
    """The producer's buffer_memory is used up and no room came within max_block_ms."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class DeliveryTimeout(BrokerError):
    """A record was not acknowledged within delivery_timeout_ms; it may have been written or not."""

    def __init__(self, message: str, **place: Any) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message, **place)


class OutcomeUnknown(TimedOut):
    """Whether a transaction is committed (or aborted) is not known; the message says how to learn it."""


class TransactionTimedOut(AbortableError):
    """The transaction was open for longer than transaction_timeout_ms, so its coordinator has aborted it."""


class SerializationError(ClientError, ValueError):
    """A serializer failed, or gave what are no bytes; nothing was sent. Its own error is the `__cause__`."""


class BatchNotBuilt(ClientError):
    """A batch could not be put together or compressed; nothing of it was sent."""

    def __init__(self, topic: str, partition: int, reason: Exception) -> None:
        self.topic = topic
        self.partition = partition
        self.reason = reason
        super().__init__(f"a batch for {topic}-{partition} could not be made, and was not sent: {reason!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchNotBuilt, (self.topic, self.partition, self.reason)


class RowTooLarge(ClientError, ValueError):
    """A row of a table, counted from 0, that no request can hold; nothing of the table was sent."""

    def __init__(self, row: int, size: int, limit: int) -> None:
        self.row = row
        self.size = size
        self.limit = limit
        super().__init__(f"row {row} has {size} bytes, max_request_size allows {limit}")

    def __reduce__(self) -> tuple[Any, ...]:
        return RowTooLarge, (self.row, self.size, self.limit)


class MalformedValue(ClientError, ValueError):
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


class DeserializationError(ClientError, ValueError):
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


KNOWS_NOBODY = "it knows of no broker, itself neither: it has just started, or there is no controller"
AFTER_FORK = "this client was made before a fork: make another one in the child process"
