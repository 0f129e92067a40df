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
from typing import NamedTuple

from kbroker.protocol.records.partitioner import CRC32, FNV1A, MURMUR2

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
