"""What all errors of the clients have in common, and the kinds that ask for the same remedy."""

from __future__ import annotations

from typing import Any, ClassVar

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.errors import KafkaError as Refusal


class ClientError(Exception):
    """Whatever the clients raise on purpose is one, but for TypeError and ValueError at a wrong argument of a call."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    """Kafka's code for it; where it has none, the one that says nothing."""

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed when it is made again."""
        return self.code.retriable


KafkaError = ClientError
"""By the name that other libraries give to the base of their errors; the protocol's own is above BrokerError only."""


class FencedError(ClientError):
    """Another client has taken this one's place (its transactional id, its group_instance_id): close this one."""


class AbortableError(ClientError):
    """The transaction cannot be committed any more: abort it; the next one may succeed."""


class LoginFailed(ClientError):
    """This client is not let in, or does not trust whom it reached: trying again with the same settings is no use."""


class BrokerError(ClientError, Refusal):
    """What a broker (or this client in its place) refused; the message names topic, partition and broker."""

    by_code: ClassVar[dict[ErrorCode, type[BrokerError]]] = {}
    """The classes of broker_errors.py."""

    def __init_subclass__(cls, code: ErrorCode | None = None, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if code is not None:
            BrokerError.by_code[code] = cls

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

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.code, self.message, self.topic, self.partition, self.broker)


def _rebuild(
    kind: type[BrokerError],
    code: ErrorCode,
    message: str,
    topic: str | None,
    partition: int | None,
    broker: str | None,
) -> BrokerError:
    """Make a pickled error again; its message is already whole."""
    error = kind.__new__(kind)
    error.code, error.message, error.topic, error.partition, error.broker = code, message, topic, partition, broker
    error.args = (code, message)
    return error
