"""The thin adapter on kazoo: one ZooKeeper session, as coroutines of the loop.

Only this file and `zookeeper_connections` know kazoo.

kazoo's threads do nothing but hand over: answers, watches and session changes reach the loop through
`call_soon_threadsafe`, in the order in which ZooKeeper sent them.

    connected ──connection lost──▶ suspended ──in time──▶ connected      requests wait or are sent again: invisible
                                       └──────too late──▶ expired ─▶ connected with a new session

Watches are one-shot. After a reconnection each registered path counts as changed, since kazoo forgets its watches
with the connection: whoever watches reads again, which sets the watch again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id

from kbroker.controller import multi_codec
from kbroker.controller.acl_store import AclStore
from kbroker.controller.broker_store import BrokerStore
from kbroker.controller.controller_store import ControllerStore
from kbroker.controller.handover import Handover, Reply
from kbroker.controller.znode_access import ZooKeeperAccess, acl_of
from kbroker.controller.znode_operations import (
    ANY_VERSION,
    BadVersion,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    Operation,
    Outcome,
    SessionExpired,
    Stat,
    TooLarge,
    Unimplemented,
    ZnodeError,
    ZooKeeperError,
    ZooKeeperUnreachable,
)
from kbroker.controller.zookeeper_connections import Connections, SaslConnection, first_patience, kazoo_logger
from kbroker.protocol.distribution import Distribution

log = logging.getLogger(__name__)

T = TypeVar("T")

STAND_IN_NODE = "/zookeeper/stand-in"
CLOSE_PATIENCE_S = 3.0
"""How long closing waits for a server that says nothing."""

_EPHEMERAL = 1
_SEQUENTIAL = 2
_READS_IN_FLIGHT = 50
"""A request per node: kazoo's thread is woken for each, and may then keep the interpreter from the loop for 5 ms."""
_OLD_SERVER = (
    "this ZooKeeper is older than 3.6: nodes are read one by one, and taking over a large cluster takes longer"
)
_MAX_REQUEST = 4 << 20  # Kafka's clients read no larger node
_LARGE = 900_000
_ATTEMPTS_WHEN_LARGE = 2
_ERRORS: dict[type[KazooException], type[ZnodeError]] = {
    NoNodeError: NoNode,
    NodeExistsError: NodeExists,
    BadVersionError: BadVersion,
    NotEmptyError: NotEmpty,
    NoAuthError: NotAllowed,
}


class ZooKeeper(BrokerStore, ControllerStore, AclStore):
    """Everything the broker and its controller ask of ZooKeeper.

    `connect` is Kafka's `zookeeper.connect`: `host:port,host:port/chroot`. To be made and used on the running loop.
    """

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        reads_in_flight: int | None = None,
        access: ZooKeeperAccess | None = None,
    ) -> None:
        super().__init__()
        self._access = access or ZooKeeperAccess()
        self._servers, slash, chroot = connect.partition("/")
        self._chroot = ("/" + chroot.rstrip("/")) if slash and chroot.strip("/") else ""
        self._reads_in_flight = reads_in_flight or _READS_IN_FLIGHT
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms
        self._kazoo: KazooClient | None = None
        self._handover: Handover | None = None
        self._watches: dict[str, Callable[[str], None]] = {}
        self._on_watch = self._watch_fired  # one object: kazoo keeps watchers in sets
        self._established = asyncio.Event()
        self._is_connected = False
        self._is_closing = False
        self.latency = Distribution()
        """Milliseconds until requests were answered."""
        self.events: Counter[str] = Counter()
        """How often the session was Disconnected, SyncConnected, Expired."""
        self._login: SaslConnection | None = None
        """Where log-ins are asked for."""
        self._session = 0
        """Counts sessions; an operation that began in an earlier one has failed."""
        self._session_id = 0
        self._reads_many = True
        """Until the server says that it does not know MultiRead."""
        self._refused_size = _MAX_REQUEST
        """A request of that many bytes has been refused, or would be for sure."""
        self.on_disconnected: list[Callable[[], None]] = []
        """Called on the loop when the connection is lost; the session lives on for a while."""
        self.on_session_expired: list[Callable[[], None]] = []
        """Called when the session is over: ephemeral nodes are gone, the term of our controller too."""
        self.on_session_established: list[Callable[[], None]] = []
        """Called when a new session stands after an expired one: time to register again. Not for the first."""
        self.on_reconnected: list[Callable[[], None]] = []
        """Called when the same session is connected again; watches have been called back by then."""

    # --- life of the session ---

    async def connect(self) -> None:
        """Open the session and make the chroot. Raises ZooKeeperUnreachable after the connection timeout."""
        loop = asyncio.get_running_loop()
        self._handover = Handover(loop)
        retry = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0, ignore_expire=False)
        access = self._access
        patience = first_patience(self._session_timeout_ms / 1000, len(self._servers.split(",")))
        handler = Connections(patience, access.tls)
        self._kazoo = KazooClient(
            hosts=self._servers,
            timeout=self._session_timeout_ms / 1000,
            connection_retry=retry,
            logger=kazoo_logger(),
            handler=handler,
            auth_data=None if access.digest is None else [("digest", access.digest)],
        )
        login = self._login
        if access.sasl is not None:
            login = self._login = SaslConnection(self._kazoo, retry.copy(), access.sasl, self._state_changed)
            self._kazoo._connection = login
        self._kazoo.add_listener(self._state_changed if login is None else login.state_changed)
        self._kazoo.start_async()
        try:
            async with asyncio.timeout(self._connection_timeout_ms / 1000):
                await self._established.wait()
                await self._make_chroot()
        except TimeoutError:
            await self.close()
            if handler.problem:
                raise ZooKeeperUnreachable(f"no TLS with ZooKeeper at {self._servers}: {handler.problem}") from None
            if login is not None and login.problem:
                raise ZooKeeperUnreachable(f"no log-in at ZooKeeper at {self._servers}: {login.problem}") from None
            raise ZooKeeperUnreachable(
                f"no ZooKeeper answers at {self._servers} (tried for {self._connection_timeout_ms / 1000:g} s): "
                f"check that it runs and that zookeeper.connect is right, or raise "
                f"zookeeper.connection.timeout.ms"
            ) from None

    @property
    def refused_logins(self) -> int:
        """How often ZooKeeper has not let us in."""
        return 0 if self._login is None else self._login.refusals

    async def _make_chroot(self) -> None:
        chroot, self._chroot = self._chroot, ""
        try:
            if await self.exists(chroot or "/") is None:  # also the proof that the server has let us in
                await self.create_recursive(chroot, None)
        except NodeExists:
            return
        finally:
            self._chroot = chroot

    async def close(self) -> None:
        """End the session: our ephemeral nodes go at once."""
        self._is_closing = True
        if self._kazoo is not None:
            kazoo, self._kazoo = self._kazoo, None
            await asyncio.to_thread(_stop, kazoo)
        self._watches.clear()

    @property
    def is_connected(self) -> bool:
        """Whether a session stands and is connected at this moment."""
        return self._is_connected

    @property
    def session_id(self) -> int:
        """The present session; 0 before the first."""
        return self._session_id

    @property
    def connect_string(self) -> str:
        """Servers and chroot, as given."""
        return self._servers + self._chroot

    def _state_changed(self, state: str) -> None:
        """On a thread of kazoo's."""
        assert self._handover is not None
        session_id = self._kazoo.client_id[0] if self._kazoo is not None and self._kazoo.client_id else 0
        self._handover.put(self._take_state, (state, session_id))

    def _take_state(self, change: tuple[str, int]) -> None:
        state, session_id = change
        if self._is_closing:
            return
        if state == KazooState.CONNECTED:
            self._take_connection(session_id)
        elif state == KazooState.SUSPENDED:
            self._is_connected = False
            self.events["Disconnected"] += 1
            log.warning("connection to ZooKeeper lost (%s)", self._servers)
            _call_all(self.on_disconnected)
        else:
            self._expire()

    def _take_connection(self, session_id: int) -> None:
        is_first = self._session == 0
        is_new = session_id != self._session_id
        if is_new and self._established.is_set():
            self._expire()  # kazoo tells of the loss first; this is for the case that it did not
        self._session_id = session_id
        self._is_connected = True
        self.events["SyncConnected"] += 1
        if is_new:
            self._session += 1
        self._established.set()
        if is_first:
            return
        log.info("connected to ZooKeeper again (%s)", "new session" if is_new else "same session")
        for path, callback in list(self._watches.items()):
            callback(path)
        _call_all(self.on_session_established if is_new else self.on_reconnected)

    def _expire(self) -> None:
        self._is_connected = False
        if not self._established.is_set():
            return
        self._established.clear()
        self.events["Expired"] += 1
        log.warning("ZooKeeper session expired")
        _call_all(self.on_session_expired)

    # --- requests ---

    async def _call(self, request: Any) -> Any:
        """One request; sent again when the connection was lost, as long as the session lives."""
        await self._established.wait()
        session, losses = self._session, 0
        self._refuse_too_large(request, losses)
        loop, is_large = asyncio.get_running_loop(), _size(request) > _LARGE
        while True:
            kazoo = self._kazoo
            if kazoo is None:
                raise SessionExpired("the connection to ZooKeeper is closed")
            assert self._handover is not None
            future = loop.create_future()
            begun = monotonic()
            kazoo._call(request, Reply(self._handover, future))
            # kazoo does not see that a server has hung up while it writes what that server does not read any more.
            patience = loop.call_later(self._session_timeout_ms / 4000, _hang_up, kazoo) if is_large else None
            try:
                answer = await future
                self.latency.add((monotonic() - begun) * 1000)
                return answer
            except ConnectionLoss:
                losses += 1
                self._refuse_too_large(request, losses)
                if session != self._session or not self._established.is_set():
                    raise SessionExpired("the session ended before the answer came") from None
                if not self._is_connected:
                    await asyncio.sleep(0.02)
            except (SessionExpiredError, ConnectionClosedError):
                raise SessionExpired("the ZooKeeper session is over") from None
            except UnimplementedError:
                raise Unimplemented(f"ZooKeeper does not know {type(request).__name__}") from None
            except KazooException as error:
                kind = _ERRORS.get(type(error))
                if kind is not None:
                    raise kind(getattr(request, "path", "")) from None
                raise ZooKeeperError(f"{type(error).__name__} {error} for {getattr(request, 'path', '')}") from None
            finally:
                if patience is not None:
                    patience.cancel()

    def _refuse_too_large(self, request: Any, losses: int) -> None:
        """A server hangs up on what is larger than its jute.maxbuffer: sent for ever, it would stop everything."""
        size = _size(request)
        if losses >= _ATTEMPTS_WHEN_LARGE and size > _LARGE:
            self._refused_size = min(self._refused_size, size)
        if size >= self._refused_size:
            raise TooLarge(
                f"{request.path}: {size} bytes are more than ZooKeeper takes at once (jute.maxbuffer, 1 MiB by default)"
            )

    async def is_stand_in(self) -> bool:
        """Whether this is no ZooKeeper but kbroker's stand-in, which says so in a node that nothing else has."""
        return await self._call(serialization.Exists(STAND_IN_NODE, None)) is not None

    def _path(self, path: str) -> str:
        return (self._chroot + path) if path != "/" else (self._chroot or "/")

    async def sync(self) -> None:
        """See Znodes."""
        await self._call(serialization.Sync(self._path("/")))

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        """See Znodes."""
        watcher = self._on_watch if watch else None
        data, stat = await self._call(serialization.GetData(self._path(path), watcher))
        return data, Stat._make(stat)

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """See Znodes."""
        watcher = self._on_watch if watch else None
        stat = await self._call(serialization.Exists(self._path(path), watcher))
        return Stat._make(stat) if stat is not None else None

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """See Znodes."""
        watcher = self._on_watch if watch else None
        return sorted(await self._call(serialization.GetChildren(self._path(path), watcher)))

    async def get_many(self, paths: Sequence[str], *, watch: bool = False) -> list[tuple[bytes | None, Stat] | None]:
        """See Znodes. Several hundred nodes per request; one request per node where each is to be watched."""

        async def get(path: str) -> tuple[bytes | None, Stat] | None:
            try:
                return await self.get(path, watch=watch)
            except NoNode:
                return None

        return await self._read_many(paths, get, None if watch else multi_codec.ReadData)

    async def children_of_many(self, paths: Sequence[str]) -> list[list[str]]:
        """See Znodes."""

        async def children(path: str) -> list[str]:
            try:
                return await self.children(path)
            except NoNode:
                return []

        return await self._read_many(paths, children, multi_codec.ReadChildren)

    async def _read_many(
        self,
        paths: Sequence[str],
        read: Callable[[str], Awaitable[T]],
        at_once: type[multi_codec.ReadData] | None,
    ) -> list[T]:
        """Many in one request, where the server knows how; else many requests, without waiting for each."""
        found: list[T] = []
        for portion in multi_codec.reads(paths):
            if at_once is not None and self._reads_many:
                try:
                    found += await self._call(at_once([self._path(path) for path in portion]))
                    continue
                except Unimplemented:
                    if self._reads_many:
                        log.warning(_OLD_SERVER)
                    self._reads_many = False
            for begin in range(0, len(portion), self._reads_in_flight):
                found += await asyncio.gather(*map(read, portion[begin : begin + self._reads_in_flight]))
        return found

    async def create(self, path: str, data: bytes | None, *, ephemeral: bool = False, sequential: bool = False) -> str:
        """See Znodes."""
        flags = (_EPHEMERAL if ephemeral else 0) | (_SEQUENTIAL if sequential else 0)
        acl = [ACL(each.permissions, Id(each.scheme, each.id)) for each in acl_of(path, self._access.is_protected)]
        created = await self._call(serialization.Create(self._path(path), data, acl, flags))
        return str(created)[len(self._chroot) :]

    async def create_recursive(self, path: str, data: bytes | None) -> None:
        """See Znodes."""
        try:
            await self.create(path, data)
        except NoNode:
            parent = path.rpartition("/")[0]
            with contextlib.suppress(NodeExists):
                await self.create_recursive(parent, None)
            await self.create(path, data)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """See Znodes."""
        return Stat._make(await self._call(serialization.SetData(self._path(path), data, version)))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See Znodes."""
        await self._call(serialization.Delete(self._path(path), version))

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        """See Znodes."""
        outcomes: list[Outcome] = await self._call(
            multi_codec.Multi(operations, self._chroot, self._access.is_protected)
        )
        return outcomes

    # --- watches ---

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        """See Znodes. One callback per path."""
        self._watches[path] = callback

    def unwatch(self, path: str) -> None:
        """See Znodes."""
        self._watches.pop(path, None)

    def _watch_fired(self, event: Any) -> None:
        """On a thread of kazoo's. Events of type NONE only tell of the connection, which we hear of elsewhere."""
        if event.type != EventType.NONE and self._handover is not None:
            self._handover.put(self._take_watch, event.path)

    def _take_watch(self, path: str) -> None:
        path = path[len(self._chroot) :] or "/"
        callback = self._watches.get(path)
        if callback is not None and not self._is_closing:
            callback(path)


def _size(request: Any) -> int:
    """About how many bytes a request has."""
    if isinstance(request, multi_codec.Multi | multi_codec.ReadData):
        return request.size
    return len(getattr(request, "path", "").encode()) + len(getattr(request, "data", None) or b"")


def _call_all(callbacks: Sequence[Callable[[], None]]) -> None:
    for callback in list(callbacks):
        callback()


def _stop(kazoo: KazooClient) -> None:
    """Close the session, waiting a little for the server's word; threads and sockets are gone afterwards."""
    # kazoo would wait for a server that says nothing as long as a session lasts.
    patience = threading.Timer(CLOSE_PATIENCE_S if kazoo.connected else 0.1, _hang_up, (kazoo,))
    patience.start()
    try:
        kazoo.stop()
    except OSError as error:
        log.debug("closing the ZooKeeper session: %s", error)
    finally:
        patience.cancel()
    kazoo.close()


def _hang_up(kazoo: KazooClient) -> None:
    """End the connection under kazoo's waiting thread."""
    connection = kazoo._connection._socket
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
