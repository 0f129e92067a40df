"""The proxy as an object: it serves in a thread of its own, and all its methods may be called from any other.

    with Proxy("broker-1:9092,broker-2:9092") as proxy:
        ...                                   # clients that use proxy.bootstrap go through it to every broker
        cut = proxy.inject(Cut(where=Where(broker=2)))
        proxy.heal(cut)

Nothing is configured at the cluster, whoever it is of: all it needs is listeners without TLS.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from kbroker.client.client_config import ClientConfig
from kbroker.client.connection import Connection
from kbroker.protocol.errors import KafkaError
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.verify.proxy.addresses import Address
from kbroker.verify.proxy.exchange import Meddler
from kbroker.verify.proxy.faults import LinkFault, LinkName
from kbroker.verify.proxy.server import Server

log = logging.getLogger(__name__)

T = TypeVar("T")
F = TypeVar("F", bound=LinkFault)

DEFAULT_MAX_FRAME = 128 << 20
CALL_TIMEOUT_S = 90.0
ASK_TIMEOUT_S = 10.0
OLDEST_METADATA = 1
"""The version that every broker knows and that can ask for no topic at all."""


class Proxy:
    """Between clients and the cluster at `bootstrap`; a context manager."""

    def __init__(self, bootstrap: str, *, host: str = "127.0.0.1", max_frame: int = DEFAULT_MAX_FRAME) -> None:
        """Describe it; nothing runs yet. `host`: where it listens; frames above `max_frame` bytes end their link."""
        self._upstream = ClientConfig(bootstrap=bootstrap).addresses()
        self._host = host
        self._max_frame = max_frame
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: Server | None = None

    def start(self) -> Proxy:
        """Serve; the brokers that a bootstrap address names are known when it returns."""
        assert self._loop is None, "started twice"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        try:
            self._server = self._call(self._start())
        except BaseException:
            self._end_thread()
            raise
        return self

    def stop(self) -> None:
        """End all links and the thread."""
        if self._loop is None:
            return
        try:
            self._call(self._serving.close())
        finally:
            self._end_thread()

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """`host:port,…` for the clients that are to go through the proxy."""
        return ",".join(_written(address) for _, address in self._call(_soon(self._serving.addresses)))

    def brokers(self) -> dict[int, str]:
        """The proxy's address of each broker that is known so far."""
        known = self._call(_soon(self._serving.addresses))
        return {broker: _written(address) for broker, address in known if broker is not None}

    def links(self) -> list[LinkName]:
        """The connections that clients have open now, oldest first."""
        return sorted(self._call(_soon(self._serving.links)), key=lambda link: link.number)

    def inject(self, fault: F) -> F:
        """Let a fault hold from now on; it is good for one time."""
        self._call(self._serving.inject(fault))
        return fault

    def heal(self, *faults: LinkFault) -> None:
        """Undo these faults, without any: all. What they held back has arrived when it returns."""
        self._call(self._serving.heal(*faults))

    def meddle(self, *meddlers: Meddler) -> None:
        """Let these look into all requests and answers that begin from now on; nobody else does any more."""
        serving = self._serving

        def change() -> None:
            serving.meddlers = list(meddlers)

        self._call(_soon(change))

    @property
    def _serving(self) -> Server:
        assert self._server is not None, "the proxy is not started"
        return self._server

    async def _start(self) -> Server:
        server = Server(self._host, self._max_frame)
        try:
            for address in self._upstream:
                server.listen_for(address)
            for broker, address in await self._ask_for_brokers():
                server.listen_for(address, broker)
        except BaseException:
            await server.close()
            raise
        return server

    async def _ask_for_brokers(self) -> Sequence[tuple[int, Address]]:
        """Ask the bootstrap addresses in turn; where none tells (it may want a password), clients' answers will."""
        for host, port in self._upstream:
            try:
                connection = await Connection.open(host, port, client_id="kbroker-proxy", timeout=ASK_TIMEOUT_S)
                try:
                    request = MetadataRequest(topics=[])
                    answer: MetadataResponse = await connection.request(request, OLDEST_METADATA, timeout=ASK_TIMEOUT_S)
                finally:
                    await connection.close()
                return [(broker.node_id, (broker.host, broker.port)) for broker in answer.brokers]
            except (OSError, KafkaError) as error:
                log.info("%s:%d does not say which brokers there are: %s", host, port, error)
        return ()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "the proxy is not started"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_TIMEOUT_S)

    def _end_thread(self) -> None:
        loop, thread = self._loop, self._thread
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CALL_TIMEOUT_S)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        self._loop = self._thread = self._server = None


async def _soon(function: Any) -> Any:
    """Call something on the loop."""
    return function()


def _written(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
