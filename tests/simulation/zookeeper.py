"""ZooKeeper on a machine of its own, and kazoo's side of it without threads.

The server is the stand-in's service, which does all but sockets. The client has those methods of kazoo's that
controller/zookeeper.py uses, and does on each event what kazoo does: so the real adapter's retries, watches and
sessions are what is tested, and a lost answer is an answer lost on the simulated network.

    connected ──connection lost──▶ what waits fails, watches are told ──▶ connecting ──▶ connected
                                                            └──session refused──▶ what waits fails ──▶ connecting
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kazoo.client import KazooState
from kazoo.exceptions import EXCEPTIONS, ConnectionLoss, NoNodeError, SessionExpiredError
from kazoo.protocol import serialization
from kazoo.protocol.connection import EVENT_TYPE_MAP, PingInstance, ReplyHeader, Watch
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from kbroker.controller.zookeeper import STAND_IN_NODE
from kbroker.dev.stand_in.connection import Connection
from kbroker.dev.stand_in.operations import Deleted
from kbroker.dev.stand_in.service import Moment, Service
from kbroker.dev.stand_in.tree import Tree
from tests.simulation.acknowledged_changes import Register
from tests.simulation.loop import EPOCH_S, Machine
from tests.simulation.network import Network, Socket

HOST, PORT = "zookeeper", 2181
TICK_S = 0.2
PING_XID, EVENT_XID = -2, -1
CLOSE_TYPE = -11
RETRY_S = 0.1
ODDITIES = {"done": 0.2, "not done": 0.2, "expired": 0.02}
"""How often, while it is odd: a connection ends behind a request that was done, instead of one, or with its session."""
NO_PASSWORD = b"\0" * 16

log = logging.getLogger(__name__)


class ZooKeeperServer:
    """The tree, served on a machine of its own."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self._machine = machine
        self.tree = Tree()
        self.tree.nodes["/zookeeper"].children.pop("stand-in")
        del self.tree.nodes[STAND_IN_NODE]  # brokers take it for a real one
        rng = network.simulation.rng
        self._service = Service(self.tree, self._moment(), lambda: rng.randbytes(16), first_session_id=1)
        self._lines: dict[Connection, Socket] = {}
        self._unsent: dict[Connection, bytes] = {}
        self.oddity = ""
        """What it does now and then to who asks: one of ODDITIES."""
        self._rng = rng
        self._listening = network.listen(machine, HOST, PORT)
        machine.add_reader(self._listening.fileno(), self._accept)
        machine.call_later(TICK_S, self._tick)

    def controller_id(self) -> int | None:
        """Who is the controller."""
        node = self.tree.nodes.get("/controller")
        return None if node is None else int(json.loads(node.data or b"{}")["brokerid"])

    def isr(self, topic: str, partition: int) -> list[int]:
        """The ISR of a partition."""
        return list(self._state(topic, partition).get("isr", ()))

    def leader(self, topic: str, partition: int) -> int:
        """Its leader, -1 when there is none."""
        return int(self._state(topic, partition).get("leader", -1))

    def not_in_sync(self, topic: str) -> list[str]:
        """Partitions of which a replica is out of the ISR."""
        wanted = self._of(f"/brokers/topics/{topic}").get("partitions", {})
        return [
            f"{topic}-{each}" for each, replicas in wanted.items() if set(self.isr(topic, int(each))) != set(replicas)
        ]

    def under_way(self) -> list[str]:
        """What somebody has asked for and a controller has yet to finish: moves of partitions, deletions of topics."""
        moving = [
            f"{name}-{each} moves"
            for name in self._children("/brokers/topics")
            for kind in ("adding_replicas", "removing_replicas")
            for each in self._of(f"/brokers/topics/{name}").get(kind) or ()
        ]
        return [
            *dict.fromkeys(moving),
            *(f"{name} is to be deleted" for name in self._children("/admin/delete_topics")),
        ]

    def is_replica(self, broker_id: int, topic: str, partition: int) -> bool:
        """Whether a broker is to have a partition."""
        replicas = self._of(f"/brokers/topics/{topic}").get("partitions", {}).get(str(partition), ())
        return broker_id in replicas

    def register(self, register: Register) -> Any:
        """What there is of something that administrators change."""
        match register:
            case "topic", topic:
                return len(self._of(f"/brokers/topics/{topic}").get("partitions", ())) or None
            case "replicas", topic, partition:
                return self._of(f"/brokers/topics/{topic}").get("partitions", {}).get(partition)
            case "setting", topic, key:
                return self._of(f"/config/topics/{topic}").get("config", {}).get(key)
        raise AssertionError(f"nobody knows what {register} is")

    def _children(self, path: str) -> list[str]:
        node = self.tree.nodes.get(path)
        return [] if node is None else sorted(node.children)

    def _of(self, path: str) -> dict[str, Any]:
        """A node's content; nothing where there is none."""
        node = self.tree.nodes.get(path)
        return {} if node is None else dict(json.loads(node.data or b"{}"))

    def _state(self, topic: str, partition: int) -> dict[str, Any]:
        return self._of(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def expire(self, broker_id: int) -> None:
        """End the session of a broker that is registered."""
        node = self.tree.nodes.get(f"/brokers/ids/{broker_id}")
        if node is not None:
            self._service._end(node.owner, self._moment())
            self._answer()

    def depose(self) -> None:
        """Let somebody else be the controller: its node goes, and all sessions stay, so that no broker comes anew."""
        if "/controller" in self.tree.nodes:
            self.tree._carry_out([Deleted("/controller")], self._moment().wall_ms)
            self._answer()

    def _moment(self) -> Moment:
        now = self._machine.time()
        return Moment(int((EPOCH_S + now) * 1000), int(now * 1000))

    def _accept(self) -> None:
        try:
            sock, _ = self._listening.accept()
        except BlockingIOError:
            return
        connection = self._service.connect()
        self._lines[connection] = sock
        self._machine.add_reader(sock.fileno(), self._read, connection)

    def _read(self, connection: Connection) -> None:
        try:
            data = self._lines[connection].recv(1 << 20)
        except OSError:
            data = b""
        odd = "" if not self.oddity or self._rng.random() >= ODDITIES[self.oddity] else self.oddity
        if odd == "expired" and connection.session is not None:
            self._service._end(connection.session.session_id, self._moment())
        elif data and odd != "not done":
            self._service.receive(connection, data, self._moment())
        if odd or not data:
            self._close(connection)  # who asked does not learn what became of it
        self._answer()

    def _tick(self) -> None:
        self._service.tick(self._moment())
        self._answer()
        self._machine.call_later(TICK_S, self._tick)

    def _answer(self) -> None:
        for connection in self._service.take_ready():
            if connection in self._lines:
                self._send(connection)

    def _send(self, connection: Connection) -> None:
        sock = self._lines[connection]
        data = self._unsent.pop(connection, b"") + connection.take_queued()
        try:
            data = data[sock.sendmsg([data]) :] if data else b""
        except BlockingIOError:
            pass
        except OSError:
            self._close(connection)
            return
        if data:
            self._unsent[connection] = data
            self._machine.add_writer(sock.fileno(), self._send, connection)
            return
        self._machine.remove_writer(sock.fileno())
        if connection.is_closing:
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        sock = self._lines.pop(connection)
        self._unsent.pop(connection, None)
        self._service.disconnected(connection)
        self._machine.remove_reader(sock.fileno())
        self._machine.remove_writer(sock.fileno())
        sock.close()


class Kazoo(asyncio.Protocol):
    """A client: what KazooClient is to controller/zookeeper.py."""

    def __init__(self, hosts: str, timeout: float, **settings: Any) -> None:
        self._loop = asyncio.get_running_loop()
        host, _, port = hosts.partition(",")[0].partition(":")
        self._address = host, int(port or PORT)
        self._timeout_ms = int(timeout * 1000)
        self._connection = SimpleNamespace(_socket=None)
        """Where the adapter looks for a socket to hang up."""
        self._listeners: list[Callable[[str], None]] = []
        self._is_live = False
        self._is_stopped = False
        self._has_expired = False
        self._session_id, self._password = 0, NO_PASSWORD
        self._last_zxid = 0
        self._xid = 0
        self._queued: deque[tuple[Any, Any]] = deque()
        self._pending: deque[tuple[Any, Any, int]] = deque()
        self._watchers: dict[tuple[str, bool], Callable[[Any], None]] = {}
        """(path, whether it is about children) -> whom to tell; the adapter has one for all."""
        self._transport: Any = None
        self._received = bytearray()
        self._shaken: asyncio.Future[None] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._heard_at = 0.0

    # --- what the adapter uses ---

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """The session, while it is connected."""
        return (self._session_id, self._password) if self._is_live else None

    @property
    def connected(self) -> bool:
        """Whether it is."""
        return self._is_live

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Tell of changes of the state."""
        self._listeners.append(listener)

    def start_async(self) -> None:
        """Begin to connect."""
        self._task = self._loop.create_task(self._run(), name="kazoo")

    def _call(self, request: Any, reply: Any) -> None:
        if self._is_stopped or self._has_expired:
            reply.set_exception(SessionExpiredError())
        elif self._is_live:
            self._send(request, reply)
        else:
            self._queued.append((request, reply))

    def stop(self) -> None:
        """End the session, if it can be said, and the connection."""
        self._is_stopped = True
        if self._is_live:
            self._submit(self._next_xid(), CLOSE_TYPE, b"")
        self._is_live = False
        self._task.cancel()
        if self._transport is not None:
            self._transport.close()

    def close(self) -> None:
        """Nothing is left to be closed."""

    # --- the connection ---

    async def _run(self) -> None:
        while not self._is_stopped:
            self._has_expired = False
            try:
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await self._connect()
                await self._stay()
            except (OSError, TimeoutError):
                self._disconnected()
            await asyncio.sleep(RETRY_S)

    async def _connect(self) -> None:
        self._shaken, self._lost = self._loop.create_future(), self._loop.create_future()
        self._received.clear()
        self._transport, _ = await self._loop.create_connection(lambda: self, *self._address)
        first = serialization.Connect(
            0, self._last_zxid, self._timeout_ms, self._session_id, self._password, False
        ).serialize()
        self._transport.write(len(first).to_bytes(4) + first)
        await self._shaken
        while self._queued:
            self._send(*self._queued.popleft())

    async def _stay(self) -> None:
        """Until the connection is lost; a server that says nothing counts as lost."""
        assert self._lost is not None
        pause_s = self._timeout_ms / 1000 / 3
        while self._is_live:
            await asyncio.wait([self._lost], timeout=pause_s)
            if self._lost.done() or self._loop.time() - self._heard_at > 2 * pause_s:
                raise ConnectionError("lost")
            self._submit(PING_XID, PingInstance.type, b"")

    def _disconnected(self) -> None:
        """What waits fails, as nobody knows what became of it; watches are forgotten."""
        was_live, self._is_live = self._is_live, False
        if self._transport is not None:
            self._transport.abort()
        if not was_live or self._is_stopped:
            return
        self._fail_all(ConnectionLoss)
        self._tell(KazooState.SUSPENDED)
        event = WatchedEvent(EventType.NONE, KeeperState.CONNECTING, None)
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers.values():
            watcher(event)

    def _expire(self) -> None:
        self._is_live, self._has_expired = False, True
        self._session_id, self._password = 0, NO_PASSWORD
        self._tell(KazooState.LOST)
        self._fail_all(SessionExpiredError)
        self._watchers.clear()

    def _fail_all(self, error: type[Exception]) -> None:
        waiting = [reply for _, reply, _ in self._pending] + [reply for _, reply in self._queued]
        self._pending.clear()
        self._queued.clear()
        for reply in waiting:
            reply.set_exception(error())

    def _tell(self, state: str) -> None:
        for listener in self._listeners:
            listener(state)

    # --- requests ---

    def _next_xid(self) -> int:
        self._xid += 1
        return self._xid

    def _send(self, request: Any, reply: Any) -> None:
        xid = self._next_xid()
        self._pending.append((request, reply, xid))
        self._submit(xid, request.type, request.serialize())

    def _submit(self, xid: int, kind: int, body: bytes) -> None:
        data = xid.to_bytes(4, signed=True) + kind.to_bytes(4, signed=True) + body
        self._transport.write(len(data).to_bytes(4) + data)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection ended."""
        for future in (self._lost, self._shaken):
            if future is not None and not future.done():
                if future is self._shaken:
                    future.set_exception(ConnectionError("lost"))
                else:
                    future.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Answers and events come."""
        self._heard_at = self._loop.time()
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4])
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        if self._shaken is not None and not self._shaken.done():
            self._take_session(frame)
            return
        header, position = ReplyHeader.deserialize(frame, 0)
        if header.zxid > 0:
            self._last_zxid = header.zxid
        if header.xid == EVENT_XID:
            self._take_event(frame, position)
        elif header.xid != PING_XID and self._pending:
            self._take_answer(header, frame, position)

    def _take_session(self, frame: bytes) -> None:
        assert self._shaken is not None
        answer, _ = serialization.Connect.deserialize(frame, 0)
        if answer.time_out <= 0:
            self._expire()
            self._shaken.set_exception(ConnectionError("the session has expired"))
            return
        self._session_id, self._password, self._timeout_ms = answer.session_id, answer.passwd, answer.time_out
        self._is_live = True
        self._tell(KazooState.CONNECTED)
        self._shaken.set_result(None)

    def _take_event(self, frame: bytes, position: int) -> None:
        watch, _ = Watch.deserialize(frame, position)
        kind = EVENT_TYPE_MAP[watch.type]
        about = {EventType.CHILD: (True,), EventType.DELETED: (False, True)}.get(kind, (False,))
        event = WatchedEvent(kind, KeeperState.CONNECTED, watch.path)
        for is_about_children in about:
            watcher = self._watchers.pop((watch.path, is_about_children), None)
            if watcher is not None and not self._is_stopped:
                watcher(event)

    def _take_answer(self, header: Any, frame: bytes, position: int) -> None:
        request, reply, xid = self._pending.popleft()
        assert header.xid == xid, f"answer {header.xid} to request {xid}"
        is_absent = header.err == NoNodeError.code and request.type == serialization.Exists.type
        if header.err and not is_absent:
            reply.set_exception(EXCEPTIONS[header.err]())
            return
        reply.set(None if is_absent else request.deserialize(frame, position))
        watcher = getattr(request, "watcher", None)
        if watcher is not None:
            is_about_children = isinstance(request, serialization.GetChildren | serialization.GetChildren2)
            self._watchers[request.path, is_about_children] = watcher
