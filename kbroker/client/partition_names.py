"""How callers name partitions: as TopicPartition, or as a plain pair of topic and number."""

from typing import TypeVar

from kbroker.client.types import TopicPartition

Partition = TopicPartition | tuple[str, int]
Key = TypeVar("Key", bound=tuple[str, int])
"""The keys of a mapping by partition; a dict with keys of a union of both would take neither kind of dict."""
