"""The network between brokers and ZooKeeper as the test's own: each link can be cut in one direction or in both.

Every broker registers, for its listener among brokers, a port of a proxy here, and reaches ZooKeeper through a port of
its own. What is cut is held back, as a network that loses packets does: bytes sent before or during the cut arrive
after it, late, unless a side gave the connection up; and nobody learns that the other side has closed. `refuse` is the
other kind of failure: connections are reset and new ones refused, as by a firewall that answers.

    links = Links()
    port = links.listen(2, "127.0.0.1", 11002, lambda port: 1)      # a way to node 2; 1 is who comes
    links.cut(1, 2)         nothing gets from 1 to 2: neither 1's requests to 2 nor 1's answers to 2's requests
    links.isolate(1)        nothing gets from or to 1
    links.heal()
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

ZOOKEEPER = 0
"""ZooKeeper's number among the nodes; no broker has it."""
CLIENTS = -1
"""All clients together; whoever is none of the nodes is one of them."""

Node = int
PIECE = 1 << 18
CALL_TIMEOUT = 30.0


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
        self.nodes: set[Node] = set()
        self._thread.start()

    def listen(self, target: Node, host: str, port: int, who: Callable[[int], Node | None]) -> int:
        """Open a way to a node, and return its port; `who` tells from a client's port which node it is, if any."""
        self.nodes.add(target)
        return int(self._call(self._listen(target, host, port, who)))

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

    # -- in the thread ------------------------------------------------------------------------------------------

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_TIMEOUT)

    def _change(self, change: Callable[[], object]) -> None:
        async def do() -> None:
            change()
            self._changed.set()
            self._changed = asyncio.Event()

        self._call(do())

    async def _listen(self, target: Node, host: str, port: int, who: Callable[[int], Node | None]) -> int:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections[task] = (CLIENTS, target)
            try:
                source = await asyncio.to_thread(who, writer.get_extra_info("peername")[1])
                self._connections[task] = pair = (CLIENTS if source is None else source, target)
                await self._serve(pair, (host, port), reader, writer)
            except asyncio.CancelledError:
                pass
            finally:
                del self._connections[task]
                writer.transport.abort()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

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
            server.close()
        await asyncio.sleep(0.01)  # who was let in at the last moment closes what it was given only once it has begun
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._servers:
            with contextlib.suppress(OSError):
                await server.wait_closed()
