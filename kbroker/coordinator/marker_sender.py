"""Has the markers that end transactions written, on whatever brokers lead the partitions.

    send(Ending)  -->  to be routed  --led here-->        appended directly
                          ^    |     --led elsewhere-->   that broker's queue  -->  WriteTxnMarkers, one at a time
                          |    |     --leader unknown-->  +
                          |    +---> --not in the cluster (any more)--> counts as done
                          +--- a pause, or until the metadata change <--+ <-- an error that another try may mend

What errors mean is the table REACTIONS. An Ending is over when every partition has its marker; or when a partition
knows a newer producer or coordinator than ours: then somebody else ends this transaction, and it is given up here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from kbroker.cluster.setup_timeout import ConnectionSetup, SetupTimeout
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key, by_topic
from kbroker.protocol.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kbroker.replica.turns import Turn, in_turns

if TYPE_CHECKING:
    from kbroker.client.connection import Connection
    from kbroker.cluster.metadata_cache import MetadataCache

log = logging.getLogger(__name__)


MOST_PER_REQUEST = 1000
"""Partitions; what is left goes with the next request."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
ABSENT_S = 5.0
"""For so long after a broker has become the coordinator a partition may be missing in its metadata: it may hear of it
later than of its own part. After that each was known when it was added, and one that is missing has been deleted: its
marker must not wait until the name belongs to another topic."""


class Reaction(Enum):
    """What follows from the error of one partition."""

    DONE = auto()
    AGAIN = auto()
    GIVE_UP = auto()


REACTIONS: dict[ErrorCode, Reaction] = {
    ErrorCode.NONE: Reaction.DONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.AGAIN,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Reaction.AGAIN,
    ErrorCode.REQUEST_TIMED_OUT: Reaction.AGAIN,
    ErrorCode.NOT_ENOUGH_REPLICAS: Reaction.AGAIN,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Reaction.AGAIN,
    ErrorCode.KAFKA_STORAGE_ERROR: Reaction.AGAIN,
    ErrorCode.INVALID_PRODUCER_EPOCH: Reaction.GIVE_UP,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Reaction.GIVE_UP,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Reaction.DONE,
    ErrorCode.UNSUPPORTED_VERSION: Reaction.DONE,
}
"""Any other error is a mistake of somebody's: it is told in the log, and tried again."""


@dataclass(slots=True, eq=False)
class Ending:
    """One transaction's markers."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    coordinated_since: float
    """Since when this broker is the coordinator: a time of `monotonic`, in seconds."""
    partitions: set[Key]
    """Those that have no marker yet."""
    done: Callable[[], None]
    """Called when all have."""
    transaction_version: int = 0
    """By which it is ended: from 2 on the epoch is the one after that of the transaction (KIP-1228)."""
    is_over: bool = False
    """Done, given up, or not ours any more: nothing is sent."""
    pause_s: float = FIRST_PAUSE_S
    """Before the next try of what cannot be brought on its way."""

    def marked(self, key: Key) -> None:
        """The partition has its marker, or is gone."""
        self.partitions.discard(key)
        if not self.partitions and not self.is_over:
            self.is_over = True
            self.done()


Item = tuple[Ending, Key]


class LocalPartitions(Protocol):
    """The partitions that this broker leads."""

    def write_marker(self, ending: Ending, key: Key, done: Callable[[ErrorCode], None]) -> None:
        """Append a marker; `done` gets NONE when it is replicated: at once, or from the event loop."""


class MarkerSender:
    """Of all transactions that this broker coordinates. `close` ends its tasks."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        listener: str,
        local: LocalPartitions,
        request_timeout_ms: int = 30_000,
        connections: ConnectionSetup | None = None,
    ) -> None:
        """`listener`: the name of the one between brokers."""
        self._broker_id = broker_id
        self._metadata = metadata
        self._listener = listener
        self._local = local
        self._timeout_s = request_timeout_ms / 1000
        self._connections = connections or ConnectionSetup()
        self._unrouted: deque[Item] = deque()
        self._parked: dict[float, list[Item]] = {}
        """To be routed anew, by the pause before that."""
        self._unparkers: dict[float, asyncio.Task[None]] = {}
        """One for each pause."""
        self._queues: dict[int, _Queue] = {}
        self._is_routing = False
        self._router: asyncio.Future[None] | None = None
        """Of what takes longer than a turn."""
        self._is_closed = False

    def send(self, ending: Ending) -> None:
        """Have all markers written."""
        if not ending.partitions:
            ending.is_over = True
            asyncio.get_running_loop().call_soon(ending.done)
            return
        self.route((ending, key) for key in tuple(ending.partitions))

    def route(self, items: Iterable[Item]) -> None:
        """Bring markers on their way."""
        if self._is_closed:
            return
        self._unrouted.extend(items)
        if self._unrouted and not self._is_routing:
            self._is_routing = True
            others = in_turns(self._route_all())
            if others is not None:
                self._router = asyncio.ensure_future(others)

    def _route_all(self) -> Generator[None, None, None]:
        try:
            while self._unrouted:
                item = self._unrouted.popleft()
                try:
                    self._route(*item)
                except Exception:
                    log.exception("a marker of transaction %s is not on its way", item[0].transactional_id)
                    self.park([item])
                yield
        finally:
            self._is_routing = False

    def _route(self, ending: Ending, key: Key) -> None:
        if ending.is_over:
            return
        found = self._metadata.partition(*key)
        if found is None:
            self._route_absent(ending, key)
            return
        if found.leader == self._broker_id:
            self._local.write_marker(ending, key, lambda error: self.settle(ending, key, error))
            return
        address = self._metadata.endpoint(found.leader, self._listener)
        if address is None:
            self.park([(ending, key)])
            return
        queue = self._queues.get(found.leader)
        if queue is None or queue.is_ended:
            queue = self._queues[found.leader] = _Queue(
                self, found.leader, f"broker-{self._broker_id}-markers", self._connections.of_peer()
            )
        ending.pause_s = FIRST_PAUSE_S
        queue.put((ending, key))

    def _route_absent(self, ending: Ending, key: Key) -> None:
        if monotonic() - ending.coordinated_since < ABSENT_S:
            self.park([(ending, key)])
        else:
            log.info("%s-%d is gone: transaction %s ends without it", *key, ending.transactional_id)
            ending.marked(key)

    # --- what became of them ----------------------------------------------------------------------------------

    def settle(self, ending: Ending, key: Key, error: ErrorCode) -> None:
        """A partition has answered; that this fails for one marker keeps nothing from the others."""
        try:
            self._settle(ending, key, error)
        except Exception:
            log.exception("transaction %s does not go on", ending.transactional_id)

    def _settle(self, ending: Ending, key: Key, error: ErrorCode) -> None:
        if ending.is_over:
            return
        reaction = REACTIONS.get(error)
        if reaction is None:
            log.error("%s-%d takes no marker of %s: %s", *key, ending.transactional_id, error.name)
            reaction = Reaction.AGAIN
        if reaction is Reaction.DONE:
            ending.marked(key)
        elif reaction is Reaction.AGAIN:
            self.park([(ending, key)])
        else:
            ending.is_over = True
            log.warning(
                "transaction %s of producer %d, epoch %d, is left to whoever is newer: %s-%d answered %s",
                ending.transactional_id,
                ending.producer_id,
                ending.producer_epoch,
                *key,
                error.name,
            )

    @property
    def parked(self) -> int:
        """How many markers wait for another attempt."""
        return sum(map(len, list(self._parked.values())))

    def park(self, items: Iterable[Item]) -> None:
        """Route markers anew after a pause, or when the metadata have changed."""
        for item in items:
            self._parked.setdefault(item[0].pause_s, []).append(item)
        if self._is_closed:
            return
        for pause_s in self._parked.keys() - self._unparkers.keys():
            self._unparkers[pause_s] = asyncio.create_task(self._unpark(pause_s), name="route-markers-again")

    async def _unpark(self, pause_s: float) -> None:
        """Those that have just been parked do not wait as long as those that have been tried again and again."""
        updates = self._metadata.updates
        try:
            await asyncio.sleep(FIRST_PAUSE_S)
            changed = await self._metadata.wait_for(partial(_has_changed, updates), pause_s - FIRST_PAUSE_S)
        finally:
            del self._unparkers[pause_s]
        parked = self._parked.pop(pause_s)
        next_s = FIRST_PAUSE_S if changed else min(2 * pause_s, LONGEST_PAUSE_S)
        for ending, _ in parked:
            ending.pause_s = next_s
        self.route(parked)

    # --- for the queues ---------------------------------------------------------------------------------------

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Where a live broker is reached."""
        return self._metadata.endpoint(broker_id, self._listener)

    async def ask(
        self, connection: Connection, broker_id: int, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Return the answer; raises OSError, and KafkaError, also when the broker is gone, or elsewhere."""
        async with self._metadata.while_reached(broker_id, self._listener):
            if not connection.versions:
                await connection.negotiate(self._timeout_s)
            answer: WriteTxnMarkersResponse = await connection.request(request, timeout=self._timeout_s)
            return answer

    async def close(self) -> None:
        """Send no more."""
        self._is_closed = True
        tasks: list[asyncio.Future[None]] = list(self._unparkers.values())
        if self._router is not None:
            tasks.append(self._router)
        tasks += [queue.task for queue in self._queues.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for queue in self._queues.values():
            await queue.disconnect()


class _Queue:
    """The markers for one broker, and the connection they go by. It ends when it has nothing more to send to."""

    def __init__(self, sender: MarkerSender, broker_id: int, client_id: str, setup: SetupTimeout) -> None:
        self._sender = sender
        self._broker_id = broker_id
        self._client_id = client_id
        self._setup = setup
        self._items: deque[Item] = deque()
        self._wake = asyncio.Event()
        self._connection: Connection | None = None
        self._address: tuple[str, int] | None = None
        self._is_heard = True
        """Whether the broker answered last: said once."""
        self.task = asyncio.create_task(self._run(), name=f"markers-for-broker-{broker_id}")

    @property
    def is_ended(self) -> bool:
        """Whether nobody takes what is put here."""
        return self.task.done()

    def put(self, item: Item) -> None:
        """Send a marker with the next request."""
        self._items.append(item)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while items := list(self._take()):
                await self._send(items)

    def _take(self) -> Iterator[Item]:
        taken = 0
        while self._items and taken < MOST_PER_REQUEST:
            item = self._items.popleft()
            if not item[0].is_over:
                taken += 1
                yield item

    async def _send(self, items: list[Item]) -> None:
        try:
            answer = await self._ask(_request(items))
            if not self._is_heard:
                log.info("broker %d takes markers again", self._broker_id)
            self._is_heard = True
        except Exception as error:
            if self._is_heard:
                unexpected = None if isinstance(error, OSError | KafkaError) else error
                log.warning("broker %d takes no markers, trying again: %s", self._broker_id, error, exc_info=unexpected)
            self._is_heard = False
            await self.disconnect()
            self._sender.park([*items, *self._items])
            self._items.clear()
            return
        turn = Turn()
        for ending, key, error_code in _outcomes(items, answer):
            self._sender.settle(ending, key, error_code)
            await turn.end_if_over()

    async def _ask(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        address = self._sender.address_of(self._broker_id)
        if address is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "it left the cluster")
        if self._connection is None or self._connection.is_closed or self._address != address:
            await self.disconnect()
            self._connection = await self._setup.connect(address, client_id=self._client_id)
            self._address = address
        return await self._sender.ask(self._connection, self._broker_id, request)

    async def disconnect(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _has_changed(updates: int, metadata: MetadataCache) -> bool:
    return metadata.updates != updates


def _request(items: Iterable[Item]) -> WriteTxnMarkersRequest:
    by_ending: dict[Ending, list[Key]] = {}
    for ending, key in items:
        by_ending.setdefault(ending, []).append(key)
    return WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=ending.producer_id,
                producer_epoch=ending.producer_epoch,
                transaction_result=ending.is_commit,
                topics=[
                    WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)
                    for topic, partitions in by_topic(keys).items()
                ],
                coordinator_epoch=ending.coordinator_epoch,
                transaction_version=ending.transaction_version,
            )
            for ending, keys in by_ending.items()
        ]
    )


def _outcomes(items: Iterable[Item], answer: WriteTxnMarkersResponse) -> Iterator[tuple[Ending, Key, ErrorCode]]:
    """Give every marker that was sent its error; one that the answer leaves out is sent again."""
    errors = {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
    for ending, key in items:
        yield ending, key, errors.get((ending.producer_id, *key), ErrorCode.REQUEST_TIMED_OUT)
