"""This broker's line to the controller: finds it in the metadata cache, keeps one connection, asks again when it
moved. A controller that lives in this broker is asked directly. No wait is without an end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.client.connection import Connection
from kbroker.cluster.setup_timeout import ConnectionSetup
from kbroker.protocol.apis import api_of
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.replication import AlterPartitionRequest

if TYPE_CHECKING:
    from kbroker.cluster.metadata_cache import MetadataCache

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
FIRST_ISR_WITH_EPOCHS = 3
"""Of AlterPartition."""


class ControllerHere(Protocol):
    """The controller of our own broker, whether or not it is the one that counts."""

    @property
    def is_active(self) -> bool:
        """Whether it is the one."""
        ...

    async def serve(self, request: Any, version: int) -> Any:
        """Answer a broker's request."""
        ...


class ControllerChannel:
    """Requests to whoever is the controller, one at a time over the network."""

    def __init__(
        self,
        metadata: MetadataCache,
        broker_id: int,
        listener: str,
        request_timeout_ms: int,
        here: ControllerHere | None = None,
        connections: ConnectionSetup | None = None,
    ) -> None:
        self._metadata = metadata
        self._here = here
        self._client_id = f"broker-{broker_id}-to-controller"
        self._listener = listener
        self._timeout_s = request_timeout_ms / 1000
        self._setup = (connections or ConnectionSetup()).of_peer()
        self._connection: Connection | None = None
        self._address: tuple[str, int] | None = None
        self._silent: tuple[str, int] | None = None
        """The address that did not answer last: said once."""
        self._lock = asyncio.Lock()

    async def request(self, message: Any, timeout_s: float | None = None) -> Any:
        """Send a request to the controller, again and again until there is an answer that is not NOT_CONTROLLER.

        Raises KafkaError REQUEST_TIMED_OUT when there is none in time.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit):
                while True:
                    answer = await self._try(message)
                    if answer is not None:
                        return answer
                    await asyncio.sleep(RETRY_PAUSE_S)
        except TimeoutError:
            text = f"the controller did not answer within {limit:g} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None

    async def _try(self, message: Any) -> Any:
        """Return the answer, None when it has to be tried again."""
        if self._here is not None and self._here.is_active:
            answer = await self._here.serve(message, api_of(type(message)).max_version)
        else:
            async with self._lock:
                answer = await self._try_over_network(message)
        return None if getattr(answer, "error_code", None) is ErrorCode.NOT_CONTROLLER else answer

    async def _try_over_network(self, message: Any) -> Any:
        controller = self._metadata.controller_id
        address = None if controller is None else self._metadata.endpoint(controller, self._listener)
        if address is None:
            return None
        answer = None
        try:
            answer = await self._ask_unless_it_moves(controller, address, message)
            self._silent = None
        except (OSError, KafkaError) as error:
            if self._silent != address:
                log.info("the controller at %s:%d does not answer, asking again: %s", *address, error)
            self._silent = address
        finally:
            # Whatever ended the wait without an answer, nobody waits for one on this connection again.
            if answer is None:
                await self.close()
        if getattr(answer, "error_code", None) is ErrorCode.NOT_CONTROLLER:
            await self.close()
        return answer

    async def _ask_unless_it_moves(self, controller: int | None, address: tuple[str, int], message: Any) -> Any:
        """Return the answer, None once another broker is the controller: one that hangs may never answer."""
        asked = asyncio.create_task(self._ask(address, message))
        moved = asyncio.create_task(
            self._metadata.wait_for(lambda cache: cache.controller_id != controller, self._timeout_s)
        )
        try:
            await asyncio.wait((asked, moved), return_when=asyncio.FIRST_COMPLETED)
            return await asked if asked.done() or not moved.result() else None
        finally:
            for task in (asked, moved):
                task.cancel()

    async def _ask(self, address: tuple[str, int], message: Any) -> Any:
        connection = await self._connect(address)
        version = self._version(connection, message)
        return await connection.request(_in_version(message, version), version, timeout=self._timeout_s)

    async def _connect(self, address: tuple[str, int]) -> Connection:
        """Return the connection, made and asked for its versions when there is none to this address."""
        if self._connection is not None and self._address == address:
            return self._connection
        await self.close()
        connection = await self._setup.connect(address, client_id=self._client_id)
        try:
            await connection.negotiate(self._timeout_s)
        except BaseException:
            connection.abort()
            raise
        self._connection, self._address = connection, address
        return connection

    def _version(self, connection: Connection, message: Any) -> int:
        api = api_of(type(message))
        theirs = connection.versions[api.key]
        return min(api.max_version, theirs[1])

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _in_version(message: Any, version: int) -> Any:
    """Return the message as this version says it: a controller of Kafka before 3.5 knows ISRs without epochs."""
    if not isinstance(message, AlterPartitionRequest) or version >= FIRST_ISR_WITH_EPOCHS:
        return message
    asked = AlterPartitionRequest
    topics = [
        asked.TopicData(
            topic_id=topic.topic_id,
            partitions=[
                asked.PartitionData(
                    partition_index=each.partition_index,
                    leader_epoch=each.leader_epoch,
                    new_isr=[member.broker_id for member in each.new_isr_with_epochs],
                    partition_epoch=each.partition_epoch,
                )
                for each in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return asked(broker_id=message.broker_id, broker_epoch=message.broker_epoch, topics=topics)
