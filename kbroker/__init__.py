"""Kafka-compatible broker and clients: `from kbroker import Producer, Consumer, Admin`; for asyncio see kbroker.aio."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.client.blocking import Admin, Consumer, Producer
    from kbroker.client.group.listener import RebalanceListener
    from kbroker.client.types import NewTopic, OffsetAndMetadata, RecordMetadata, TopicPartition

__all__ = [
    "Admin",
    "Consumer",
    "NewTopic",
    "OffsetAndMetadata",
    "Producer",
    "RebalanceListener",
    "RecordMetadata",
    "TopicPartition",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load public names on first use: importing kbroker must load nothing heavy."""
    if name in ("Admin", "Consumer", "Producer"):
        from kbroker.client import blocking

        return getattr(blocking, name)
    if name == "RebalanceListener":
        from kbroker.client.group import listener

        return listener.RebalanceListener
    if name in ("NewTopic", "OffsetAndMetadata", "RecordMetadata", "TopicPartition"):
        from kbroker.client import types

        return getattr(types, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
