"""The way to the brokers: a connection per broker, the metadata cache and its refreshing, retries with back-off.

Bootstrap addresses are tried in turn until one answers. When no known broker answers any more, the client starts anew
from the bootstrap list (KIP-899).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kbroker.client.client_config import NEW_TOPIC_S, ClientConfig
from kbroker.client.closing import Closing
from kbroker.client.connection import Connection
from kbroker.client.errors import AFTER_FORK, KNOWS_NOBODY, ClientClosed, LoginFailed, NotConnected, TimedOut, error_for
from kbroker.client.metadata import ClusterMetadata, TopicMetadata
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.protocol.records.buffers import BufferPool

if TYPE_CHECKING:
    from kbroker.protocol.schema import Message

log = logging.getLogger(__name__)

DATA, CONTROL = "data", "control"
"""A broker's long-polling fetches and its other requests need not wait for each other: two connections."""

BOOTSTRAP = (-1, CONTROL)
"""As a broker's id and channel: whichever answers first."""


class Cluster:
    """Connections and metadata of one client; lives on one event loop."""

    def __init__(self, config: ClientConfig, *, is_patient: bool = False) -> None:
        """`is_patient`: brokers that were known are waited for when metadata are asked for (who does not ask again)."""
        self.config = config
        self.metadata = ClusterMetadata()
        self.pool = BufferPool(max_bytes=config.pool_bytes)
        self.refreshed: list[Callable[[], None]] = []
        """Called whenever the metadata is new."""
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._connections: dict[tuple[int, str], Connection] = {}
        self._opening: dict[tuple[int, str], asyncio.Task[Connection]] = {}
        self._bootstrap: Connection | None = None
        self._is_patient = is_patient
        self.follows_features = False
        """Whether features are asked for with each refresh: for who goes by them for longer than connections last."""
        self._features: dict[str, int] = {}
        self._features_epoch = -1
        self._refresh_lock = asyncio.Lock()
        self._asked: Connection | None = None
        """Where metadata were asked for last."""
        self._has_failed = False
        """Whether metadata could not be had when they were asked for last."""
        self._closed = False
        self._closing = Closing(self._close)

    async def connection(self, node_id: int, channel: str = CONTROL) -> Connection:
        """Return the open connection to a broker, opening it where needed; raises OSError."""
        key = (node_id, channel)
        connection = self._connections.get(key)
        if connection is not None and not connection.is_closed:
            return connection
        return await self._open_once(key, self._connect)

    async def _open_once(
        self, key: tuple[int, str], connect: Callable[[tuple[int, str]], Coroutine[Any, Any, Connection]]
    ) -> Connection:
        """Several wait for one connection: that one of them is cancelled does not concern the others."""
        self._check_open()
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = self._loop.create_task(connect(key))
            task.add_done_callback(lambda done: self._opened(key, done))
        return await asyncio.shield(task)

    def _opened(self, key: tuple[int, str], done: asyncio.Task[Connection]) -> None:
        self._opening.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever waited may have been cancelled: that nobody looks at it is no mistake

    def open_connection(self, node_id: int, channel: str = CONTROL) -> Connection | None:
        """Return the connection to a broker if there is an open one."""
        connection = self._connections.get((node_id, channel))
        return None if connection is None or connection.is_closed else connection

    def has_lost(self, node_id: int, channel: str = CONTROL) -> bool:
        """Whether the connection to a broker has ended, and there is no other one yet."""
        connection = self._connections.get((node_id, channel))
        return connection is not None and connection.is_closed

    async def _connect(self, key: tuple[int, str]) -> Connection:
        node = self.metadata.nodes.get(key[0])
        if node is None:
            raise NotConnected(f"broker {key[0]} is not known to the cluster")
        connection = await self._open(node.host, node.port)
        self._connections[key] = connection
        return connection

    async def _open(self, host: str, port: int) -> Connection:
        timeout = self.config.connect_timeout_ms / 1000
        config = self.config
        connection = await Connection.open(
            host, port, client_id=config.client_id, timeout=timeout, pool=self.pool, security=config
        )
        try:
            await connection.negotiate(timeout)
            self._check_open()
            self._learn_features(connection)
        except BaseException:
            connection.abort()
            raise
        return connection

    def feature_level(self, feature: str) -> int:
        """Return a feature's level in the cluster, 0 where it has none; as the broker said that knew the newest."""
        return self._features.get(feature, 0)

    def _learn_features(self, connection: Connection) -> None:
        if connection.features_epoch >= self._features_epoch:
            self._features, self._features_epoch = connection.features, connection.features_epoch

    @property
    def is_forked(self) -> bool:
        """Whether this is a child process: what it sent or read would disturb its parent."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Raise ClientClosed in a child process."""
        if os.getpid() != self._process:
            raise ClientClosed(AFTER_FORK)

    def _check_open(self) -> None:
        self.check_process()
        if self._closed:
            raise ClientClosed("this client is closed")

    async def any_connection(self, besides: Connection | None = None) -> Connection:
        """Return a connection to some broker: an open one, else a known one, else of the bootstrap list.

        Of the open ones the one with the fewest requests in flight: brokers answer in turn, and one may hang. `besides`
        only when no other is open, and one that is chosen at random cannot be reached either.
        """
        is_open = [connection for connection in self._connections.values() if not connection.is_closed]
        if is_open:
            best = min(is_open, key=lambda connection: (connection is besides, connection.in_flight))
            return best if best is not besides else await self._another(best)
        if self._bootstrap is not None and not self._bootstrap.is_closed:
            return self._bootstrap
        known = list(self.metadata.nodes)
        random.shuffle(known)
        for node_id in known:
            try:
                return await self.connection(node_id)
            except LoginFailed:
                raise
            except (OSError, KafkaError) as error:
                log.info("broker %d does not answer: %s", node_id, error)
        return await self._open_once(BOOTSTRAP, self._open_bootstrap)

    async def _another(self, only: Connection) -> Connection:
        """Return a connection to another broker than the only one that is connected; if it does not answer, to that."""
        connected = {node_id for (node_id, _), connection in self._connections.items() if connection is only}
        others = list(self.metadata.nodes.keys() - connected)
        random.shuffle(others)
        for node_id in others[:1]:
            try:
                return await self.connection(node_id)
            except (OSError, KafkaError) as error:
                log.info("broker %d does not answer: %s", node_id, error)
        return only

    async def _open_bootstrap(self, key: tuple[int, str]) -> Connection:
        problems = []
        for host, port in self.config.addresses():
            try:
                self._bootstrap = await self._open(host, port)
            except LoginFailed:
                raise
            except (OSError, KafkaError) as error:
                problems.append(str(error))
            else:
                return self._bootstrap
        raise NotConnected(f"no bootstrap broker answers, is bootstrap right? {'; '.join(problems)}")

    async def refresh(
        self, topics: Iterable[str] | None = (), auto_create: bool = False, *, alone: bool = False
    ) -> dict[str, TopicMetadata]:
        """Ask for metadata of some topics, besides those that are known (None: of all); returns the answer's topics.

        `alone` asks for these only, however many are known; the others' metadata are as old as they were.
        """
        async with self._refresh_lock:
            known = () if alone else self.metadata.topics
            names = None if topics is None else sorted({*topics, *known})
            wanted = None
            if names is not None:
                wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create)
            answer = await self._ask_for_metadata(request)
            answered = self.metadata.update(answer, self.metadata.updated_at if alone else self._loop.time())
            if topics is None:
                self.metadata.forget(self.metadata.topics.keys() - answered.keys())
            await self._leave_bootstrap()
            self._has_failed = False
        for listener in self.refreshed:
            listener()
        return answered

    async def _ask_for_metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Ask until a broker answers that knows the cluster.

        One that has just started knows of no broker, itself neither, and of no topic, until the controller told it.
        """
        timeout = self.config.request_timeout_ms / 1000
        async for _ in self.attempts(self.config.request_timeout_ms):
            is_known = bool(self.metadata.nodes)
            try:
                # A broker that is cut off from the others goes on telling what was, and has nothing else to do.
                connection = self._asked = await self.any_connection(besides=self._asked)
                is_known = True
                answer: MetadataResponse = await connection.request(request, timeout=timeout)
            except NotConnected as error:
                if not (self._is_patient and is_known):
                    raise
                problem = error
                continue
            if answer.brokers:
                if self.follows_features:
                    await connection.negotiate(timeout)
                    self._learn_features(connection)
                return answer
            problem = NotConnected(f"{connection.address}: {KNOWS_NOBODY}")
        raise problem

    def note_failure(self, error: Exception) -> None:
        """Metadata could not be had, and will be asked for again: the first failure of several is a warning."""
        log.log(logging.INFO if self._has_failed else logging.WARNING, "no new metadata, asking again: %s", error)
        self._has_failed = True

    async def _leave_bootstrap(self) -> None:
        """A bootstrap connection is needed no longer once the brokers are known, and all has been answered."""
        if self._bootstrap is not None and self.metadata.nodes and not self._bootstrap.in_flight:
            connection, self._bootstrap = self._bootstrap, None
            await connection.close()

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        own = sum(not connection.is_closed for connection in self._connections.values())
        return own + (self._bootstrap is not None and not self._bootstrap.is_closed)

    @property
    def metadata_age(self) -> float:
        """Seconds since the last refresh; 0 before the first."""
        since = self._loop.time() - self.metadata.updated_at
        return since if since < float("inf") else 0.0

    @property
    def is_metadata_old(self) -> bool:
        """Whether metadata_max_age_ms have passed since the last refresh."""
        return self._loop.time() - self.metadata.updated_at > self.config.metadata_max_age_ms / 1000

    async def topic(self, name: str, timeout_ms: int | None = None, auto_create: bool = True) -> TopicMetadata:
        """Return a topic's metadata, waiting while it is being made; raises what the broker says after the timeout.

        Without `auto_create` an unknown topic is waited for only as long as a broker may not have heard of it yet.
        With a timeout of 0 it is asked for once.
        """
        known = self.metadata.topics.get(name)
        if known is not None:
            return known
        limit_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        began = self._loop.time()
        answered: TopicMetadata | None = None
        problem: Exception = TimedOut(f"no broker has told of topic {name!r} within {limit_ms} ms")
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_ms / 1000 or None):
                async for _ in self.attempts(limit_ms):
                    try:
                        answered = (await self.refresh([name], auto_create)).get(name)
                    except OSError as error:
                        self.note_failure(error)
                        problem = error
                        continue
                    if name in self.metadata.topics:
                        return self.metadata.topics[name]
                    if answered is not None and not answered.error.retriable and answered.error is not ErrorCode.NONE:
                        break
                    unknown = answered is not None and answered.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if unknown and not auto_create and self._loop.time() - began > NEW_TOPIC_S:
                        break
        if answered is None:
            raise problem
        code = answered.error
        if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic", topic=name)
        raise error_for(code, topic=name)

    async def attempts(self, timeout_ms: int) -> AsyncIterator[int]:
        """Count 0, 1, 2…, with growing pauses between, until the time is over; at least once."""
        deadline = self._loop.time() + timeout_ms / 1000
        pause = self.config.retry_backoff_ms / 1000
        attempt = 0
        while True:
            yield attempt
            attempt += 1
            if self._loop.time() + pause >= deadline:
                return
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2 * pause, self.config.retry_backoff_max_ms / 1000)

    async def ask(self, message: Message, node_id: int | None = None, timeout_ms: int | None = None) -> Any:
        """Send a request to a broker (None: to any), again when the connection fails, until the time is over."""
        limit = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        problem: Exception = NotConnected("no broker answers")
        async for attempt in self.attempts(limit):
            try:
                if attempt and node_id is not None:
                    await self.refresh()
                connection = await (self.any_connection() if node_id is None else self.connection(node_id))
                return await connection.request(message, timeout=limit / 1000)
            except OSError as error:
                problem = error
        raise problem

    async def controller(self) -> int:
        """Return the controller's broker id."""
        async for attempt in self.attempts(self.config.request_timeout_ms):
            if attempt or self.metadata.controller_id not in self.metadata.nodes:
                await self.refresh()
            if self.metadata.controller_id in self.metadata.nodes:
                return self.metadata.controller_id
        raise error_for(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster has no controller")

    async def close(self) -> None:
        """Close all connections; nothing can be asked afterwards."""
        self._closed = True
        await self._closing.run()

    async def _close(self) -> None:
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        connections = [*self._connections.values(), *([self._bootstrap] if self._bootstrap else [])]
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections), return_exceptions=True)
        self.pool.clear()
