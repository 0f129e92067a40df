"""The controller's lines to the brokers: one ordered queue and one connection each, retried until a broker is removed.

Implements controller.ports.BrokerChannels. A failed request is sent again every 100 ms; a broker that hangs delays only
itself. No ApiVersions handshake: the versions follow the inter-broker protocol, the controller chooses them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from kbroker.client.connection import Connection
from protocol.errors import KafkaError

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
LARGEST_ANSWER = 100 * 1024 * 1024


class _Channel:
    """Queue, connection and sender of one broker."""

    def __init__(self, broker_id: int, host: str, port: int, client_id: str, timeout_s: float) -> None:
        self.broker_id = broker_id
        self.address = (host, port)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.queue: deque[tuple[Any, int, Callable[[Any], None]]] = deque()
        self.wake = asyncio.Event()
        self.connection: Connection | None = None
        self.is_reachable = True
        self.task = asyncio.create_task(self._run(), name=f"controller-to-broker-{broker_id}")

    async def _run(self) -> None:
        while True:
            while not self.queue:
                self.wake.clear()
                await self.wake.wait()
            request, version, on_response = self.queue[0]
            answer = await self._send(request, version)
            self.queue.popleft()
            try:
                on_response(answer)
            except Exception:
                log.exception("the answer of broker %d to %s was not handled", self.broker_id, type(request).__name__)

    async def _send(self, request: Any, version: int) -> Any:
        """Send until there is an answer."""
        while True:
            try:
                if self.connection is None:
                    self.connection = await Connection.open(
                        *self.address, client_id=self.client_id, timeout=self.timeout_s, max_frame=LARGEST_ANSWER
                    )
                answer = await self.connection.request(request, version, timeout=self.timeout_s)
            except (OSError, KafkaError) as error:
                if self.is_reachable:
                    text = "broker %d at %s:%d: %s not sent, trying again: %s"
                    log.warning(text, self.broker_id, *self.address, type(request).__name__, error)
                self.is_reachable = False
                await self.close()
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            self.is_reachable = True
            return answer

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.close()


class BrokerChannels:
    """All channels of the controller that lives in broker `broker_id`."""

    def __init__(self, broker_id: int, request_timeout_ms: int = 30_000) -> None:
        self._client_id = f"broker-{broker_id}-controller"
        self._timeout_s = request_timeout_ms / 1000
        self._channels: dict[int, _Channel] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def add_broker(self, broker_id: int, host: str, port: int) -> None:
        """Open a channel; the broker may not answer yet. An existing one is replaced, its queue dropped."""
        self.remove_broker(broker_id)
        self._channels[broker_id] = _Channel(broker_id, host, port, self._client_id, self._timeout_s)

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
            channel.queue.append((request, version, on_response))
            channel.wake.set()

    async def close(self) -> None:
        """Close every channel."""
        for broker_id in list(self._channels):
            self.remove_broker(broker_id)
        if self._stopping:
            await asyncio.gather(*self._stopping, return_exceptions=True)
