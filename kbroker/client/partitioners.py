"""Which partition a record goes to that names none: by its key, as Java's or librdkafka's producers do, or anywhere.

    murmur2_random     murmur2 of the key; without a key anywhere (Java's default)
    murmur2            the same, but records without a key all go where the empty key goes
    consistent_random  CRC32 of the key; with an empty key or none anywhere (librdkafka's default)
    consistent         CRC32 of the key, empty or not there as well
    fnv1a_random       FNV-1a of the key; without a key anywhere (Sarama's default)
    fnv1a              the same, but records without a key all go where the empty key goes
    random             anywhere, whatever the key

Names are librdkafka's. "Anywhere" is one partition until its batch is full or has waited long enough, then another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.client.wrong_records import explained
from kbroker.protocol.records.partitioner import CRC32, FNV1A, MURMUR2

if TYPE_CHECKING:
    from kbroker.client.accumulator import Accumulator, OnDelivery
    from kbroker.client.delivery import Delivery
    from kbroker.protocol.records.builder import Headers

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""(topic, key, value, number of partitions) -> partition"""

EMPTY, NOT_EMPTY, NO_KEY_IS_LONG_ENOUGH = 0, 1, 1 << 31
"""Shortest keys that say where a record goes; no key counts as one of -1 bytes."""


class KeyPlacement(NamedTuple):
    """A hash of the protocol room's partitioner; records with shorter keys go anywhere."""

    hashing: int
    shortest_key: int


BY_NAME = {
    "murmur2_random": KeyPlacement(MURMUR2, EMPTY),
    "murmur2": KeyPlacement(MURMUR2, -1),
    "consistent_random": KeyPlacement(CRC32, NOT_EMPTY),
    "consistent": KeyPlacement(CRC32, -1),
    "fnv1a_random": KeyPlacement(FNV1A, EMPTY),
    "fnv1a": KeyPlacement(FNV1A, -1),
    "random": KeyPlacement(MURMUR2, NO_KEY_IS_LONG_ENOUGH),
}


def placement_of(partitioner: str | Partitioner) -> KeyPlacement | Partitioner:
    """Return what a producer's setting stands for; the name is one of BY_NAME."""
    return BY_NAME[partitioner] if isinstance(partitioner, str) else partitioner


class Choosing:
    """Stands before an accumulator's `append`, with the same arguments, where the user's own function places records.

    It is called without the accumulator's lock: it may send, too (as a log handler does), and may take its time.
    """

    def __init__(self, accumulator: Accumulator, partitioner: Partitioner) -> None:
        self._accumulator = accumulator
        self._partitioner = partitioner

    def __call__(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery | None:
        """Append the record where the function says; one that finds no room is not asked about yet."""
        if partition is None:
            count = self._accumulator.count_to_choose_from(topic)
            if not count:
                return None
            try:
                chosen: int | None = self._partitioner(topic, key, value, count)
                if chosen is None:
                    raise TypeError("a partition is a whole number, not None")
            except (TypeError, ValueError, AttributeError) as error:
                explanation = explained(key, value, headers, timestamp or 0, error)
                if explanation is error:
                    raise
                raise explanation from None
            partition = chosen
        return self._accumulator.append(topic, value, key, partition, timestamp, headers, on_delivery)
