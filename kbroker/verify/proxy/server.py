"""The proxy on its event loop: a listener for each broker, the links that run through them, and what holds for these.

A listener stands for an address of the cluster, for as long as the proxy runs. The first are those of the bootstrap
list; each broker that an answer names gets one before the client sees the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kbroker.protocol.frame import FrameError
from kbroker.protocol.messages.api_versions import ApiVersionsResponse
from kbroker.protocol.messages.metadata import MetadataResponse
from kbroker.protocol.records.buffers import BufferPool
from kbroker.verify.proxy.addresses import API_VERSIONS_KEY, Address, bound_versions, holds_addresses, rewrite
from kbroker.verify.proxy.exchange import Meddler, RequestHead
from kbroker.verify.proxy.faults import ActiveFaults, LinkFault, LinkName, Refuse
from kbroker.verify.proxy.link import Late, Link
from kbroker.verify.proxy.wire import STAGING_BYTES, prepare, reset

log = logging.getLogger(__name__)

MOST_LISTENERS = 1_000
MOST_LINKS = 5_000
MOST_TOPIC_IDS = 100_000
BACKLOG = 512
LATEST_S = 60.0
"""A held request arrives then, if the client has not come back or nobody has healed before."""
LAST_WORDS_S = 10.0
"""So long the broker may take to answer a request that arrived late."""
BREATH_S = 0.1
"""After a failure to accept a connection."""


@dataclass(eq=False, slots=True)
class Listener:
    """A port of the proxy's, and the address behind it."""

    sock: socket.socket
    upstream: Address
    broker: int | None = None

    @property
    def address(self) -> Address:
        """What clients connect to."""
        host, port = self.sock.getsockname()[:2]
        return str(host), int(port)


class Server:
    """All listeners and links. To be made and used on one event loop."""

    def __init__(self, host: str, max_frame: int) -> None:
        self.faults = ActiveFaults()
        self.meddlers: Sequence[Meddler] = ()
        self.topic_names: dict[bytes, str] = {}
        self.pool = BufferPool(max_bytes=64 << 20)
        self.max_frame = max_frame
        self._host = host
        self._listeners: dict[Address, Listener] = {}
        self._links: dict[asyncio.Task[None], tuple[LinkName, Listener]] = {}
        self._held: dict[asyncio.Task[None], tuple[Late, asyncio.Event]] = {}
        """Who delivers what late, and what it waits for."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_number = 0

    # -- listeners ------------------------------------------------------------------------------------------------

    def listen_for(self, upstream: Address, broker: int | None = None) -> Listener:
        """Return the listener of an address of the cluster; a new one serves at once."""
        listener = self._listeners.get(upstream)
        if listener is None:
            if len(self._listeners) >= MOST_LISTENERS:
                raise FrameError(f"more than {MOST_LISTENERS} brokers")
            listener = self._listeners[upstream] = Listener(self._bind(), upstream)
            self._listen(listener)
        if broker is not None and listener.broker != broker:
            listener.broker = broker
            for name, of in self._links.values():
                if of is listener:
                    name.broker = broker
        return listener

    def addresses(self) -> list[tuple[int | None, Address]]:
        """Broker and the proxy's address of each listener."""
        return [(listener.broker, listener.address) for listener in self._listeners.values()]

    def links(self) -> list[LinkName]:
        """Those that are open."""
        return [name for name, _ in self._links.values()]

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.bind((self._host, 0))
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        return sock

    def _accept(self, listener: Listener) -> None:
        """Take the connections that have come."""
        loop = asyncio.get_running_loop()
        for _ in range(BACKLOG):
            try:
                client, _ = listener.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                log.warning("cannot accept a connection: %s", error)
                loop.remove_reader(listener.sock)
                loop.call_later(BREATH_S, self._listen, listener)
                return
            if len(self._links) >= MOST_LINKS:
                reset(client)
            else:
                self._begin(listener, client)

    def _listen(self, listener: Listener) -> None:
        if listener.sock.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener.sock, self._accept, listener)

    def _begin(self, listener: Listener, client: socket.socket) -> None:
        prepare(client)
        self._last_number += 1
        name = LinkName(self._last_number, None, listener.broker)
        task = self._spawn(Link(name, client, listener.upstream, self).run())
        self._links[task] = (name, listener)
        task.add_done_callback(self._links.pop)
        task.add_done_callback(partial(_close, client))  # also where it never came to run

    # -- what links ask -------------------------------------------------------------------------------------------

    def rewrite(self, head: RequestHead, answer: Any) -> bool:
        """Replace the addresses in an answer, and bound the versions that are offered; whether anything was changed."""
        if head.api_key == API_VERSIONS_KEY:
            assert isinstance(answer, ApiVersionsResponse)
            return bound_versions(answer)
        if isinstance(answer, MetadataResponse):
            self._learn_names(answer)
        if not holds_addresses(head.api_key, head.api_version):
            return False
        return rewrite(answer, lambda broker, address: self.listen_for(address, broker).address)

    def _learn_names(self, answer: MetadataResponse) -> None:
        if len(self.topic_names) + len(answer.topics) > MOST_TOPIC_IDS:
            self.topic_names.clear()
        self.topic_names.update((topic.topic_id, topic.name) for topic in answer.topics if topic.name)

    def hold(self, late: Late) -> None:
        """Deliver a request late: when the client was answered on another link, or somebody heals."""
        released = asyncio.Event()
        task = self._spawn(self._deliver(late, released))
        self._held[task] = (late, released)
        task.add_done_callback(self._held.pop)
        task.add_done_callback(partial(_close, late.upstream))

    def answered(self, link: LinkName, api_key: int) -> None:
        """Release what waits for this answer."""
        for late, released in self._held.values():
            first = late.link
            if late.fault.api_key == api_key and first.client_id == link.client_id and first.number < link.number:
                released.set()

    async def _deliver(self, late: Late, released: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LATEST_S):
                await released.wait()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(LAST_WORDS_S):
                await loop.sock_sendall(late.upstream, late.frame)
                late.upstream.shutdown(socket.SHUT_WR)
                while await loop.sock_recv(late.upstream, STAGING_BYTES):
                    pass

    # -- what the outside asks ------------------------------------------------------------------------------------

    async def inject(self, fault: LinkFault) -> None:
        """From now on it holds."""
        self.faults.add(fault)
        if isinstance(fault, Refuse):
            await self._end(task for task, (name, _) in self._links.items() if fault.where.concerns(name))

    async def heal(self, *faults: LinkFault) -> None:
        """Undo these faults, or all; return when what they held back has arrived."""
        for fault in faults:
            self.faults.remove(fault)
        if not faults:
            self.faults.clear()
        delivering = []
        for task, (late, released) in self._held.items():
            if not faults or late.fault in faults:
                released.set()
                delivering.append(task)
        await asyncio.gather(*delivering)

    async def close(self) -> None:
        """End all links and listeners."""
        self.faults.clear()
        for listener in self._listeners.values():
            asyncio.get_running_loop().remove_reader(listener.sock)
            listener.sock.close()
        await self._end(set(self._tasks))

    async def _end(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        ending = list(tasks)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a part of the proxy has failed", exc_info=error)


def _close(sock: socket.socket, _: object) -> None:
    """Close the socket of a task that has ended."""
    sock.close()
