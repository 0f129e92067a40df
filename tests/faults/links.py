"""The network between brokers and ZooKeeper as the test's own: each link can be cut in one direction or in both.

Every broker registers, for its listener among brokers, a port of a proxy here, and reaches ZooKeeper through a port of
its own. What is cut is held back, as a network that loses packets does: bytes sent before or during the cut arrive
after it, late, unless a side gave the connection up; and nobody learns that the other side has closed. `refuse` is the
other kind of failure: connections are reset and new ones refused, as by a firewall that answers.

    links = Links()
    port = links.listen(2, "127.0.0.1", 11002, 1)      # a way to node 2; 1 is who comes
    links.cut(1, 2)         nothing gets from 1 to 2: neither 1's requests to 2 nor 1's answers to 2's requests
    links.isolate(1)        nothing gets from or to 1
    links.heal()
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.fixtures.streams import stop_listening

log = logging.getLogger(__name__)

ZOOKEEPER = 0
"""ZooKeeper's number among the nodes; no broker has it."""
CLIENTS = -1
"""All clients together; whoever is none of the nodes is one of them."""

Node = int
PIECE = 1 << 18
CALL_TIMEOUT = 30.0

Owners = Callable[[Collection[int]], Mapping[int, Node]]
"""Tells from clients' ports which nodes they are; whoever is left out is one of the clients."""


class Links:
    """Proxies in a thread of their own. All methods may be called from any other thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links")
        self._cut: set[tuple[Node, Node]] = set()
        """(from, to): what sends and whom it does not reach."""
        self._refused: set[frozenset[Node]] = set()
        self._changed = asyncio.Event()
        """Replaced at each change of what is cut."""
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], tuple[Node, Node]] = {}
        self._readers: set[asyncio.StreamReader] = set()
        self._looker = ThreadPoolExecutor(1, thread_name_prefix="links-owners")
        self._unknown: dict[Owners, dict[int, asyncio.Future[Node]]] = {}
        """By port, who is to be looked up next: all that came while the last ones were, at once."""
        self._looking: asyncio.Task[None] | None = None
        self.nodes: set[Node] = set()
        self._thread.start()

    def listen(self, target: Node, host: str, port: int, who: Node | Owners) -> int:
        """Open a way to a node, and return its port; `who` comes by it, or tells who has come."""
        self.nodes.add(target)
        return int(self._call(self._listen(target, host, port, who)))

    @property
    def given_up(self) -> int:
        """How many connections their clients have ended that are still here."""
        return int(self._call(self._count_given_up()))

    async def _count_given_up(self) -> int:
        return sum(map(_is_given_up, self._readers))

    def cut(self, source: Node, target: Node) -> None:
        """Let nothing get from one node to the other; the way back stays open."""
        self._change(lambda: self._cut.add((source, target)))

    def cut_both(self, one: Node, other: Node) -> None:
        """Let nothing get through between two nodes."""
        self._change(lambda: self._cut.update({(one, other), (other, one)}))

    def isolate(self, node: Node) -> None:
        """Let nothing get through between a node and all others, ZooKeeper too."""
        others = self.nodes - {node}
        self._change(lambda: self._cut.update({(node, o) for o in others} | {(o, node) for o in others}))

    def refuse(self, one: Node, other: Node) -> None:
        """Reset the connections between two nodes, and refuse new ones."""
        self._change(lambda: self._refused.add(frozenset({one, other})))
        self._call(self._reset(frozenset({one, other})))

    def reset(self, one: Node, other: Node) -> None:
        """Reset the connections between two nodes, once: answers on their way are lost."""
        self._call(self._reset(frozenset({one, other})))

    def heal(self) -> None:
        """Open all links; what was held back arrives."""

        def forget() -> None:
            self._cut.clear()
            self._refused.clear()

        self._change(forget)

    def close(self) -> None:
        """End all connections and the thread."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT)
        self._loop.close()
        self._looker.shutdown()

    # -- in the thread ------------------------------------------------------------------------------------------

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_TIMEOUT)

    def _change(self, change: Callable[[], object]) -> None:
        async def do() -> None:
            change()
            self._changed.set()
            self._changed = asyncio.Event()

        self._call(do())

    async def _listen(self, target: Node, host: str, port: int, who: Node | Owners) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            source = who if isinstance(who, int) else await self._owner(who, writer.get_extra_info("peername")[1])
            self._connections[task] = pair = (source, target)
            if not _is_given_up(reader):
                await self._serve(pair, (host, port), reader, writer)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Begin at once, and end what was begun though the task is cancelled before its first step."""

            def ended(task: asyncio.Task[None]) -> None:
                del self._connections[task]
                self._readers.discard(reader)
                writer.transport.abort()

            task = self._loop.create_task(serve(reader, writer))
            self._connections[task] = (CLIENTS, target)
            self._readers.add(reader)
            task.add_done_callback(ended)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _owner(self, owners: Owners, port: int) -> Node:
        """Look up who has come from a port: one look for all that wait, for a look at processes takes its time."""
        found: asyncio.Future[Node] = asyncio.get_running_loop().create_future()
        self._unknown.setdefault(owners, {})[port] = found
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        return await found

    async def _look(self) -> None:
        while self._unknown:
            owners, waiting = self._unknown.popitem()
            nodes: Mapping[int, Node] = {}
            try:
                nodes = await asyncio.get_running_loop().run_in_executor(self._looker, owners, tuple(waiting))
            except Exception:
                log.exception("who has come cannot be told, and is taken for a client")
            for port, found in waiting.items():
                if not found.done():
                    found.set_result(nodes.get(port, CLIENTS))
        self._looking = None

    async def _serve(
        self,
        pair: tuple[Node, Node],
        address: tuple[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        onward: asyncio.StreamWriter | None = None
        try:
            if frozenset(pair) not in self._refused:
                answers, onward = await asyncio.open_connection(*address)
                await asyncio.gather(
                    self._carry(reader, onward, pair), self._carry(answers, writer, (pair[1], pair[0]))
                )
        except OSError:
            pass
        finally:
            if onward is not None:
                onward.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: tuple[Node, Node]) -> None:
        """Carry bytes one way to the end; the end itself is held back by a cut like the rest."""
        while True:
            piece = await reader.read(PIECE)
            while way in self._cut:
                await self._changed.wait()
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
        # Neither brokers nor ZooKeeper close one half of a connection only.
        raise ConnectionResetError

    async def _reset(self, pair: frozenset[Node]) -> None:
        for task, nodes in list(self._connections.items()):
            if frozenset(nodes) == pair:
                task.cancel()

    async def _close(self) -> None:
        for server in self._servers:
            await stop_listening(server)
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(10):
            await asyncio.sleep(0)  # sockets are closed in a turn after the one that aborts their transports
        for server in self._servers:
            with contextlib.suppress(OSError):
                await server.wait_closed()


def _is_given_up(reader: asyncio.StreamReader) -> bool:
    """Whether the client has ended the connection; what it sent before may wait here still."""
    return bool(reader._eof)  # type: ignore[attr-defined]
