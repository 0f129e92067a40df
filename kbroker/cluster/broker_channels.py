"""The controller's lines to the brokers: one ordered queue and one connection each, retried until a broker is removed.

Implements controller.ports.BrokerChannels. Requests go out without waiting for the answers before; what got no answer
is sent again every 100 ms, in order; a broker that hangs delays only itself, and what waits for it has a limit. What
cannot be encoded is left out, for it would hold up all that comes after it. No ApiVersions handshake: the versions
follow the inter-broker protocol, the controller chooses them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kbroker.client.connection import Connection
from kbroker.cluster.setup_timeout import ConnectionSetup, SetupTimeout
from kbroker.cluster.shared_encoding import SharedEncoding
from kbroker.protocol.errors import KafkaError
from kbroker.protocol.messages.replication import LEADER_BEING_DELETED, UpdateMetadataRequest

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
ANEW_PAUSE_S = 5.0
"""After which a broker is told everything anew that something could not be told: the same may come again."""
DRAIN_POLL_S = 0.005
MAX_IN_FLIGHT = 5
"""Brokers carry the requests of a connection out in order, so the next ones may be on their way already."""
MOST_QUEUED = 5_000
"""Requests that may wait for one broker. One that is further behind is told everything anew instead."""
LARGEST_ANSWER = 100 * 1024 * 1024


@dataclass(slots=True)
class _Order:
    """A request, whom its answer goes to, and once it is sent the answer to come and the time it must be there."""

    request: Any
    version: int
    on_response: Callable[[Any], None]
    answer: asyncio.Future[Any] | None = None
    deadline: float = 0.0


class _Channel:
    """Queue, connection and sender of one broker."""

    def __init__(
        self,
        broker_id: int,
        address: tuple[str, int],
        client_id: str,
        timeout_s: float,
        shared: SharedEncoding,
        setup: SetupTimeout,
        on_behind: Callable[[], None],
    ) -> None:
        self.broker_id = broker_id
        self.address = address
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.shared = shared
        self.on_behind = on_behind
        self.setup = setup
        self.queue: deque[_Order] = deque()
        self.most_queued = MOST_QUEUED
        self.in_flight: deque[_Order] = deque()
        """Sent and not answered, oldest first."""
        self.wake = asyncio.Event()
        self.connection: Connection | None = None
        self.is_reachable = True
        self.anew: asyncio.TimerHandle | None = None
        """Will say that the broker is to be told everything anew."""
        self.task = asyncio.create_task(self._run(), name=f"controller-to-broker-{broker_id}")

    async def _run(self) -> None:
        """Send and hear for ever; after a failure everything not answered is sent again, in order."""
        while True:
            try:
                await self._exchange()
            except Exception as error:  # whatever it is: nobody else tells that broker anything
                waiting = self.in_flight or self.queue  # nothing, where it was dropped meanwhile
                if self.is_reachable and waiting:
                    kind = type(waiting[0].request).__name__
                    text = "broker %d at %s:%d: %s not sent, trying again: %s"
                    unexpected = None if isinstance(error, OSError | KafkaError) else error
                    log.warning(text, self.broker_id, *self.address, kind, error, exc_info=unexpected)
                    self.is_reachable = False
                await self._take_back()
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _take_back(self) -> None:
        """What was sent and not answered goes again, on another connection."""
        self.queue.extendleft(reversed(self.in_flight))
        self.in_flight.clear()
        await self.close()

    def move(self, address: tuple[str, int]) -> None:
        """Go on at another address, with all that waits or was not answered: nobody tells of it again."""
        self.address, self.is_reachable = address, True
        before = self.task
        before.cancel()
        self.task = asyncio.create_task(self._go_on(before), name=before.get_name())

    async def _go_on(self, before: asyncio.Task[None]) -> None:
        await asyncio.gather(before, return_exceptions=True)
        await self._take_back()
        await self._run()

    async def _exchange(self) -> None:
        """Keep some requests on their way; OSError or KafkaError when an answer is late or the connection ends."""
        while True:
            self.wake.clear()
            while self.in_flight and _answer_of(self.in_flight[0]).done():
                self._hear(_answer_of(self.in_flight[0]).result())
            if self.queue and len(self.in_flight) < MAX_IN_FLIGHT:
                await self._send()
                continue
            async with asyncio.timeout_at(self.in_flight[0].deadline if self.in_flight else None):
                await self.wake.wait()

    async def _send(self) -> None:
        if self.connection is None or self.connection.is_closed:
            await self.close()
            self.connection = await self.setup.connect(self.address, client_id=self.client_id, max_frame=LARGEST_ANSWER)
            if not self.queue:
                return  # so much came meanwhile that it was dropped
        order = self.queue[0]
        try:
            order.answer = self.connection.send(self.shared.share(order.request, order.version), order.version)
        except (OSError, MemoryError):  # the connection's end, or another time there may be room
            raise
        except Exception:
            self._leave_out(self.queue.popleft())
        else:
            order.answer.add_done_callback(self._answered)
            order.deadline = asyncio.get_running_loop().time() + self.timeout_s
            self.in_flight.append(self.queue.popleft())
        await asyncio.sleep(0)  # large requests take their time to encode: others come in between

    def _leave_out(self, order: _Order) -> None:
        """Go on without a request that cannot be encoded; call it in the handler of what was raised."""
        kind = type(order.request).__name__
        log.exception("broker %d at %s:%d: %s cannot be encoded and is left out", self.broker_id, *self.address, kind)
        if self.anew is None:
            self.anew = asyncio.get_running_loop().call_later(ANEW_PAUSE_S, self._tell_anew)

    def _tell_anew(self) -> None:
        self.anew = None
        self.on_behind()

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled():
            answer.exception()  # looked at here, for the case that an earlier one ended the exchange
        self.wake.set()

    def _hear(self, answer: Any) -> None:
        self.is_reachable = True
        order = self.in_flight.popleft()
        try:
            order.on_response(answer)
        except Exception:
            kind = type(order.request).__name__
            log.exception("the answer of broker %d to %s was not handled", self.broker_id, kind)

    def put(self, order: _Order) -> None:
        """Queue a request. When too many wait they are dropped, but for the deletions, of which nobody tells again."""
        self.queue.append(order)
        self.wake.set()
        if len(self.queue) > self.most_queued:
            log.warning("broker %d at %s:%d leaves %d orders unanswered", self.broker_id, *self.address, MOST_QUEUED)
            self.queue = deque(each for each in self.queue if tells_of_deletions(each.request))
            self.most_queued = len(self.queue) + MOST_QUEUED
            self.on_behind()

    @property
    def is_busy(self) -> bool:
        """Whether anything waits for an answer that may come."""
        return self.is_reachable and bool(self.queue or self.in_flight)

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self.anew is not None:
            self.anew.cancel()
        await self.close()


def tells_of_deletions(request: Any) -> bool:
    """Whether a request takes partitions out of a broker's metadata."""
    return isinstance(request, UpdateMetadataRequest) and any(
        state.leader == LEADER_BEING_DELETED for topic in request.topic_states for state in topic.partition_states
    )


def _answer_of(order: _Order) -> asyncio.Future[Any]:
    assert order.answer is not None
    return order.answer


class BrokerChannels:
    """All channels of the controller that lives in broker `broker_id`."""

    def __init__(
        self, broker_id: int, request_timeout_ms: int = 30_000, connections: ConnectionSetup | None = None
    ) -> None:
        self._client_id = f"broker-{broker_id}-controller"
        self._timeout_s = request_timeout_ms / 1000
        self._shared = SharedEncoding()
        self._connections = connections or ConnectionSetup()
        self._channels: dict[int, _Channel] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def add_broker(self, broker_id: int, host: str, port: int, on_behind: Callable[[], None] = lambda: None) -> None:
        """Open a channel; the broker may not answer yet. One that is open moves to the address with all that waits.

        `on_behind` is called when so much waited that it was dropped, and some seconds after something could not be
        encoded: the broker is to be told everything anew.
        """
        known = self._channels.get(broker_id)
        if known is not None:
            known.on_behind = on_behind
            known.move((host, port))
            return
        self._channels[broker_id] = _Channel(
            broker_id,
            (host, port),
            self._client_id,
            self._timeout_s,
            self._shared,
            self._connections.of_peer(),
            on_behind,
        )

    def remove_broker(self, broker_id: int) -> None:
        """Close the channel and drop what waits in it, without calling back."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            task = asyncio.create_task(channel.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    def send(self, broker_id: int, request: Any, version: int, on_response: Callable[[Any], None]) -> None:
        """Queue a request; the answer is handed over on the loop. No channel: dropped."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.put(_Order(request, version, on_response))

    def waiting(self) -> dict[int, int]:
        """Broker id -> requests that wait to be sent; may be called by any thread."""
        return {broker_id: len(channel.queue) for broker_id, channel in list(self._channels.items())}

    async def drain(self, timeout: float) -> None:
        """Wait until what is queued for brokers that answer has been answered, `timeout` s at most."""
        deadline = asyncio.get_running_loop().time() + timeout
        while any(channel.is_busy for channel in self._channels.values()):
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(DRAIN_POLL_S)

    async def close(self) -> None:
        """Close every channel."""
        for broker_id in list(self._channels):
            self.remove_broker(broker_id)
        if self._stopping:
            await asyncio.gather(*self._stopping, return_exceptions=True)
