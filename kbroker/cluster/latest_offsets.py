"""Where partitions end that other brokers lead: asked of their leaders, for whoever shows the lag of groups.

Called by other threads than the loop's. What was heard some seconds ago is told at once; older is asked for again, and
waited for no longer than PATIENCE_S. What no leader has confirmed for a while is not told any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from time import monotonic

from kbroker.client.connection import Connection
from kbroker.client.error_base import ClientError
from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.cluster.setup_timeout import ConnectionSetup, SetupTimeout
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.offsets import LATEST, ListOffsetsRequest

log = logging.getLogger(__name__)

FRESH_S = 5.0
STALE_S = 60.0
PATIENCE_S = 0.15
TIMEOUT_S = 10.0
CONSUMER = -1
VERSION = 5
"""Of ListOffsets; every broker of today knows it."""
PARTITIONS_AT_ONCE = 2_000


class LatestOffsets:
    """The high watermarks of partitions led elsewhere."""

    def __init__(
        self,
        metadata: MetadataCache,
        broker_id: int,
        listener: str,
        connections: ConnectionSetup | None = None,
    ) -> None:
        """`listener`: by which brokers reach each other."""
        self._loop = asyncio.get_running_loop()
        self._metadata = metadata
        self._broker_id = broker_id
        self._listener = listener
        self._setup = connections or ConnectionSetup()
        self._setups: dict[int, SetupTimeout] = {}
        self._connections: dict[int, Connection] = {}
        self._known: dict[Key, tuple[float, int]] = {}
        """When it was heard, and the offset."""
        self._asking: asyncio.Task[None] | None = None
        self._is_closed = False

    def __call__(self, wanted: set[Key]) -> dict[Key, int]:
        """Return what is known of these partitions, after a short wait where that is old. For other threads."""
        now = monotonic()
        known = self._known
        old = [key for key in wanted if key not in known or now - known[key][0] > FRESH_S]
        if old and not self._is_closed:
            answered = asyncio.run_coroutine_threadsafe(self.refresh(old), self._loop)
            try:
                answered.result(PATIENCE_S)
            except TimeoutError:
                log.debug("not all leaders have said yet where their partitions end")
        oldest = monotonic() - STALE_S
        return {key: found[1] for key in wanted if (found := known.get(key)) is not None and found[0] >= oldest}

    async def refresh(self, wanted: Iterable[Key]) -> None:
        """Ask the leaders, unless they are being asked."""
        if self._asking is None and not self._is_closed:
            self._asking = asyncio.create_task(self._ask_all(wanted), name="latest-offsets")
            self._asking.add_done_callback(self._asked)
        if self._asking is not None:
            await asyncio.wait([self._asking])

    def _asked(self, asking: asyncio.Task[None]) -> None:
        self._asking = None
        if not asking.cancelled() and (error := asking.exception()) is not None:
            log.error("where partitions end could not be asked", exc_info=error)

    async def _ask_all(self, wanted: Iterable[Key]) -> None:
        by_leader: dict[int, list[Key]] = defaultdict(list)
        for key in wanted:
            found = self._metadata.partition(*key)
            if found is not None and found.leader >= 0 and found.leader != self._broker_id:
                by_leader[found.leader].append(key)
        await asyncio.gather(*(self._ask(leader, keys) for leader, keys in by_leader.items()))
        gone = [key for key in self._known if not self._metadata.knows(*key)]
        for key in gone:
            del self._known[key]

    async def _ask(self, leader: int, keys: list[Key]) -> None:
        try:
            for start in range(0, len(keys), PARTITIONS_AT_ONCE):
                connection = self._connections.get(leader) or await self._connect(leader)
                request = _request(keys[start : start + PARTITIONS_AT_ONCE])
                answer = await connection.request(request, VERSION, timeout=TIMEOUT_S)
                heard = monotonic()
                for topic in answer.topics:
                    for each in topic.partitions:
                        if each.error_code is ErrorCode.NONE:
                            self._known[topic.name, each.partition_index] = heard, each.offset
        except (OSError, KafkaError, ClientError) as error:
            log.debug("broker %d does not say where its partitions end: %s", leader, error)
            former = self._connections.pop(leader, None)
            if former is not None:
                former.abort()

    async def _connect(self, leader: int) -> Connection:
        address = self._metadata.endpoint(leader, self._listener)
        if address is None:
            raise ConnectionError(f"broker {leader} is not known to be alive")
        setup = self._setups.setdefault(leader, self._setup.of_peer())
        connection = await setup.connect(address, client_id=f"broker-{self._broker_id}-lag")
        self._connections[leader] = connection
        return connection

    def close(self) -> None:
        """Ask nobody any more."""
        self._is_closed = True
        if self._asking is not None:
            self._asking.cancel()
        for connection in self._connections.values():
            connection.abort()
        self._connections.clear()


def _request(keys: list[Key]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
    for topic, partition in keys:
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        topics.setdefault(topic, []).append(wanted)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
    )
