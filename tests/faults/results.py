"""What others' stream processors have committed: all that a reader of read_committed finds in a topic."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition


class Results:
    """A reader of a whole topic, from its beginning on."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.found: list[tuple[str, str]] = []
        """Keys and values, in the order of each partition; "" where there is none."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def read_on(self) -> int:
        """Read what there is; returns how many results have been seen so far."""
        for message in self._consumer.consume(1000, timeout=0.2):
            assert message.error() is None, message.error()
            self.found.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
        return len(self.found)

    def close(self) -> None:
        """Close the reader."""
        self._consumer.close()
