"""What can be wrong with record batches: both errors carry Kafka's own code."""

from kbroker.protocol.errors import ErrorCode, KafkaError


class CorruptBatch(KafkaError):
    """The bytes are no whole, checksummed record batch (CORRUPT_MESSAGE)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class UnpacksToMore(CorruptBatch):
    """Compressed records are longer than whoever unpacks them allows; nothing else was found wrong so far."""


class InvalidRecord(KafkaError):
    """The batch is well-formed as bytes but breaks a rule of its contents (INVALID_RECORD)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
