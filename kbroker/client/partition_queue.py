"""What waits for a partition: the batch that is being filled, those ready to go, in flight, and to be sent again."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

from kbroker.client.delivery import Batch


class PartitionQueue:
    """One partition's batches: the open one, those ready to go, in flight, and to be sent again."""

    __slots__ = (
        "epoch",
        "in_flight",
        "known_as",
        "next_sequence",
        "open",
        "partition",
        "ready",
        "retry",
        "retry_at",
        "sent",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: Batch | None = None
        self.ready: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.retry: list[Batch] = []
        self.retry_at = 0.0
        self.sent: deque[Batch] = deque()
        """All that were sent and have not finished, in the order of their first sending, which is that of finishing."""
        self.epoch = (-1, -1)
        """Producer id and epoch that the sequences count for."""
        self.next_sequence = 0
        self.known_as = -1
        """The producer id of which the leader has acknowledged something."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in it."""
        return self.open is None and not (self.ready or self.retry or self.sent)

    def take_back(self) -> None:
        """What is to be sent again goes before everything else, in the order of its first sending."""
        places = {id(batch): place for place, batch in enumerate(self.sent)}
        self.retry.sort(key=lambda batch: places.get(id(batch), len(places)))
        self.ready.extendleft(reversed(self.retry))
        self.retry = []

    def withdraw(self, batch: Batch) -> None:
        """It is not to be sent any more; where it is in flight its request goes on."""
        if batch in self.retry:
            self.retry.remove(batch)
        elif batch in self.ready:
            self.ready.remove(batch)

    def replace(self, batch: Batch, parts: list[Batch]) -> None:
        """These are to be sent again instead of a batch that was sent."""
        place = self.sent.index(batch)
        del self.sent[place]
        for part in reversed(parts):
            self.sent.insert(place, part)
        self.retry += parts

    def settle(self, batch: Batch, base_offset: int, timestamp: int, error: Exception | None) -> list[Batch]:
        """Note how a batch ended; finishes and returns those of which everything before has ended too.

        An answer can overtake one sent earlier, when that one was lost and is asked for again; callbacks of a
        partition come in the order of the records all the same.
        """
        batch.outcome = base_offset, timestamp, error
        if not batch.attempts:
            self.sent.append(batch)
        finished = []
        while self.sent and self.sent[0].outcome is not None:
            first = self.sent.popleft()
            finished.append(first)
            first.finish(*first.outcome)  # type: ignore[misc]
        return finished


class TopicQueues:
    """A topic's queues by partition, and the one that records without a key go to now."""

    __slots__ = ("count", "led", "queues", "sticky", "used_at")

    def __init__(self, topic: str, partitions: int, led: Sequence[int], now: float) -> None:
        self.queues = [PartitionQueue(topic, index) for index in range(partitions)]
        self.count = partitions
        self.led = led
        """Partitions that have a leader, in order: records that may go anywhere go there."""
        self.used_at = now
        """When the last batch was begun."""
        self.sticky = self.queues[0]
        self.change_sticky()

    def learn(self, topic: str, partitions: int, led: Sequence[int]) -> None:
        """Take over newer metadata; a topic made again may have fewer partitions."""
        self.queues += [PartitionQueue(topic, index) for index in range(len(self.queues), partitions)]
        self.count = partitions
        self.led = led
        if self.sticky.partition >= partitions or (led and self.sticky.partition not in led):
            self.change_sticky()

    def change_sticky(self) -> None:
        """Send records without a key to any partition from now on, to one without a leader only where none has one."""
        self.sticky = self.queues[random.choice(self.led or range(self.count))]

    def turn_sticky(self) -> int:
        """Return the partition for some more rows without keys; the next ones go to the one behind it."""
        partition = self.sticky.partition
        candidates = self.led or range(self.count)
        later = (candidate for candidate in candidates if candidate > partition)
        self.sticky = self.queues[next(later, candidates[0])]
        return partition
