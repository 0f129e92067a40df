"""Who sends a marker a second time, when the next transaction of its producer is open, as a late network may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kbroker.client.connection import Connection
from kbroker.protocol.messages.transactions import WriteTxnMarkersRequest
from tests.simulation.clients import REQUEST_S
from tests.simulation.promises import PromiseBroken
from tests.simulation.strangers import Visitor

PATIENCE_S = 1.0
LOOK_S = 0.001
BETWEEN_S = 0.1
NEWEST = 4
"""One of so many requests is repeated."""


class LateMarkers(Visitor):
    """One after the other."""

    markers: Sequence[tuple[str, WriteTxnMarkersRequest]] = ()
    """What brokers have asked others for, in order: whom, and for what."""
    producer: Callable[[str, str, int, int], Any] = staticmethod(lambda host, topic, partition, producer_id: None)
    """What a leader on a host knows of a producer."""

    async def work(self) -> None:
        """Wait for a request that can be repeated."""
        while not self.trial.stop.is_set():
            await asyncio.sleep(self.rng.expovariate(1 / BETWEEN_S))
            if newest := self.markers[-NEWEST:]:
                host, request = self.rng.choice(newest)
                await self.call_on(host, "", partial(self._repeat, host, request))

    async def _repeat(self, host: str, request: WriteTxnMarkersRequest, connection: Connection, key: str) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() + PATIENCE_S
        while not (begun := self._that_have_begun(host, request)):
            if loop.time() > latest or self.trial.stop.is_set():
                return
            await asyncio.sleep(LOOK_S)
        await connection.request(request, timeout=REQUEST_S)
        for topic, partition, producer_id, epoch in begun:
            found = self.producer(host, topic, partition, producer_id)
            if found is not None and found.epoch == epoch and found.transaction_first_offset < 0:
                raise PromiseBroken(
                    f"{topic}-{partition}: a marker that {host} hears once more ends the next transaction of producer "
                    f"{producer_id}, epoch {epoch}"
                )

    def _that_have_begun(self, host: str, request: WriteTxnMarkersRequest) -> list[tuple[str, int, int, int]]:
        """The partitions in which the transaction after the marker's is open."""
        found = []
        for marker in request.markers:
            for topic in marker.topics:
                for partition in topic.partition_indexes:
                    known = self.producer(host, topic.name, partition, marker.producer_id)
                    if (
                        known is not None
                        and known.epoch == marker.producer_epoch
                        and known.transaction_first_offset >= 0
                    ):
                        found.append((topic.name, partition, marker.producer_id, marker.producer_epoch))
        return found
