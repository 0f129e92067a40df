"""The ledgers' compacted topic: where the entries of all queries of a cluster are kept, read and written.

A query's entries are in the partition that the name says, the newest counts. Entries are written in transactions of the
query's driver, so that one that was fenced off writes none.
"""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING

from kbroker.client.errors import UnknownTopicOrPartitionError
from kbroker.client.plain_cluster import PlainCluster
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)
PARTITIONS = 8
"""Of the topic as it is made; more do no harm, for only these are used."""
REPLICAS = 3
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(8 << 20)}

_known: dict[tuple[object, ...], tuple[int, dict[bytes, bytes]]] = {}
"""What this process has read: (topic, its id, partition) -> next offset and newest values."""


class LedgerTopic:
    """`cluster` reads what is committed."""

    def __init__(self, cluster: PlainCluster, topic: str) -> None:
        self._cluster = cluster
        self.topic = topic

    def place_of(self, name: str) -> Key:
        """Return the partition of a query's entries."""
        return self.topic, zlib.crc32(name.encode()) % PARTITIONS

    def ensure(self) -> None:
        """Make the topic where there is none."""
        try:
            self._cluster.partitions([self.topic])
        except UnknownTopicOrPartitionError:
            replicas = min(REPLICAS, len(self._cluster.broker_ids()))
            configs = CONFIGS | ({"min.insync.replicas": "2"} if replicas == REPLICAS else {})
            log.info("creating the topic %s for ledgers", self.topic)
            self._cluster.create_topic(self.topic, PARTITIONS, replicas, configs)
            self._cluster.partitions([self.topic])

    def read(self, place: Key) -> dict[bytes, bytes]:
        """Return the newest value of each key; waits for transactions of others that are open in the partition.

        What was written before the call is in it: an open transaction of another query hides what is behind it.
        """
        from kbroker.client.range_reader import RangeReader

        self._cluster.partitions([self.topic])
        key = (self._cluster.config.bootstrap, self._cluster.topic_ids[self.topic], place)
        end = self._cluster.offsets([place], LATEST, read_committed=False)[place]
        start, values = _known.get(key, (0, {}))
        earliest = self._cluster.offsets([place], EARLIEST)[place]
        if not earliest <= start <= end:
            start, values = earliest, {}
        values = dict(values)
        for batch in RangeReader(self._cluster, *place, start, end) if start < end else ():
            _take_newest(values, zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
        _known[key] = end, values
        return values


def _take_newest(values: dict[bytes, bytes], records: Iterable[tuple[bytes, bytes | None]]) -> None:
    for key, value in records:
        values.pop(key, None)
        if value is not None:
            values[key] = value
