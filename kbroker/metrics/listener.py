"""Serves the metrics by HTTP, at /metrics, from threads of its own: also when the event loop is held up.

    GET /metrics    Prometheus' text format, gzipped where that is accepted
    bounds          MOST_CLIENTS at once, MOST_OF_ADDRESS of them from one address: others are told 503;
                    ASK_S for the whole request, and ANSWER_S to take the whole answer
    together        who asks while somebody else's answer is gathered gets the same one

It is for those who may see the names of all topics and groups: there is no log-in, so it belongs on loopback or into
a network of the operators.
"""

from __future__ import annotations

import gzip
import io
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any, Protocol
from urllib.parse import urlsplit

from kbroker.cluster.latest_offsets import LatestOffsets
from kbroker.cluster.setup_timeout import ConnectionSetup
from kbroker.cluster.stand_in_refusal import is_loopback
from kbroker.metrics.exposition import CONTENT_TYPE
from kbroker.metrics.gathering import gather
from kbroker.metrics.runtime import Collections
from kbroker.metrics.sources import Sources

log = logging.getLogger(__name__)

MOST_CLIENTS = 8
MOST_OF_ADDRESS = 4
"""So that who holds its places shuts nobody else out."""
NO_HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
NO_PLACE = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
    b"as many ask for the metrics as may at once: %d, %d of them from one address\n"
)
ASK_S = 5.0
ANSWER_S = 30.0
POLL_S = 0.1
"""How soon a listener ends."""
FRESH_S = 0.5
"""What was gathered so recently is served again."""
PATH = "/metrics"


class Address(Protocol):
    """Where to listen."""

    @property
    def host(self) -> str:
        """Empty: on all addresses."""

    @property
    def port(self) -> int:
        """0: a free one."""


class MetricsListener:
    """The listeners of `metrics.listeners`, from `start` to `close`."""

    def __init__(self, sources: Sources, listeners: Sequence[Address]) -> None:
        self._sources = sources
        self._page = Page(lambda: gather(sources))
        self._listeners = listeners
        self._servers: list[_Server] = []

    @property
    def addresses(self) -> list[str]:
        """http://host:port/metrics of each."""
        return [server.url for server in self._servers]

    def start(self) -> None:
        """Bind and serve; raises OSError whose text names the address."""
        self._sources.collections = Collections()
        for each in self._listeners:
            try:
                server = _Server(self._page, each.host, each.port)
            except OSError as error:
                self.close()
                text = f"cannot serve metrics on HTTP://{each.host}:{each.port}: {error.strerror or error}"
                raise OSError(error.errno, f"{text}; choose another port in metrics.listeners") from error
            self._servers.append(server)
            threading.Thread(target=server.serve_forever, args=(POLL_S,), name="metrics", daemon=True).start()
            log.info("metrics are served at %s", server.url)
            if not is_loopback(each.host):
                log.warning("whoever reaches %s may read the names of all topics and groups", server.url)

    def close(self) -> None:
        """Serve no more."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers = []
        if self._sources.latest_offsets is not None:
            self._sources.latest_offsets.close()
        if self._sources.collections is not None:
            self._sources.collections.close()
            self._sources.collections = None


def serve_metrics(sources: Sources, connections: ConnectionSetup) -> MetricsListener | None:
    """Serve them where the configuration says; None for nowhere. `connections`: to the other brokers.

    Raises OSError whose text names the address that is taken.
    """
    services = sources.services
    listeners = services.config.parsed_metrics_listeners
    if not listeners:
        return None
    inter_broker = services.config.inter_broker_listener
    sources.latest_offsets = LatestOffsets(services.metadata, services.broker_id, inter_broker, connections)
    listener = MetricsListener(sources, listeners)
    listener.start()
    return listener


class Page:
    """What is served: gathered by one thread at a time, kept for a moment."""

    def __init__(self, gather_now: Callable[[], list[bytes]]) -> None:
        self._gather = gather_now
        self._lock = threading.Lock()
        self._pieces: list[bytes] = []
        self._gathered_at = float("-inf")

    def pieces(self) -> list[bytes]:
        """Return it in pieces, not older than FRESH_S."""
        with self._lock:
            if monotonic() - self._gathered_at > FRESH_S:
                self._pieces = self._gather()
                self._gathered_at = monotonic()
            return self._pieces


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    """Who finds the queue full tries again after a second."""

    def __init__(self, page: Page, host: str, port: int) -> None:
        self.page = page
        self.is_local = is_loopback(host)
        self._clients: dict[socket.socket, str] = {}
        """Those who are being served, with their addresses."""
        self.address_family = socket.AF_INET6 if not host or ":" in host else socket.AF_INET
        if not host and not socket.has_dualstack_ipv6():
            self.address_family, host = socket.AF_INET, "0.0.0.0"
        super().__init__((host or "::", port), _Handler)
        self.url = f"http://{_bracketed(host or socket.getfqdn())}:{self.server_address[1]}{PATH}"

    def server_bind(self) -> None:
        """Without the look-up of the own name that an HTTP server makes, which may take seconds."""
        if self.address_family == socket.AF_INET6 and self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread, if not too many are being served."""
        address = client_address[0]
        served = list(self._clients.values())
        if len(served) >= MOST_CLIENTS or served.count(address) >= MOST_OF_ADDRESS:
            _turn_away(request)
            self.shutdown_request(request)
            return
        self._clients[request] = address
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Give the place back, too: here each connection ends, however it went."""
        self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""
        log.debug("serving metrics to %s failed", client_address, exc_info=True)


class _Arriving(io.RawIOBase):
    """What a client sends until a moment: who sends a byte now and then has no more time than who sends nothing."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._until = until

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises TimeoutError."""
        _wait_until(self._connection, self._until)
        return self._connection.recv_into(buffer)


def _host_name(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "kbroker"
    sys_version = ""

    def setup(self) -> None:
        """Have the time to ask begin."""
        super().setup()
        self.rfile = io.BufferedReader(_Arriving(self.connection, monotonic() + ASK_S))

    def handle_one_request(self) -> None:
        """Read a request and answer it; who begins with what is no letter, as a Kafka client, is told at once."""
        arriving: Any = self.rfile  # a BufferedReader, which its type does not say
        try:
            first = arriving.peek(1)[:1]
        except TimeoutError:
            first = b""
        if first.isalpha():
            super().handle_one_request()
            return
        self.close_connection = True
        if first:
            arriving.read1()  # else the answer would be lost with what was never read
            self.wfile.write(NO_HTTP)

    def do_GET(self) -> None:
        """Answer /metrics.

        On loopback to who names this machine: a web site may have its own name lead here (DNS rebinding).
        """
        if self.server.is_local and not is_loopback(_host_name(self.headers.get("Host") or self.server.server_name)):
            self._answer(421, "text/plain; charset=utf-8", [b"these metrics are for their own machine only\n"])
            return
        if self.path.partition("?")[0] not in (PATH, "/"):
            self._answer(404, "text/plain; charset=utf-8", [f"metrics are served at {PATH}\n".encode()])
            return
        try:
            pieces = self.server.page.pieces()
        except Exception:
            log.exception("the metrics could not be gathered")
            self._answer(
                500, "text/plain; charset=utf-8", [b"the metrics could not be gathered: see the broker's log\n"]
            )
            return
        self._answer(200, CONTENT_TYPE, pieces)

    def _answer(self, status: int, content_type: str, pieces: list[bytes]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            pieces = [gzip.compress(piece, compresslevel=1) for piece in pieces]  # members of one stream
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(sum(map(len, pieces))))
        until = monotonic() + ANSWER_S
        _wait_until(self.connection, until)
        self.end_headers()
        for piece in pieces:
            _wait_until(self.connection, until)
            self.wfile.write(piece)

    def log_message(self, format: str, *args: Any) -> None:
        """Not a line for each scrape."""


def _wait_until(connection: socket.socket, moment: float) -> None:
    """Have the next call on a connection wait no longer."""
    connection.settimeout(max(moment - monotonic(), 0.001))


def _turn_away(connection: socket.socket) -> None:
    """Say why, without waiting: in the thread that accepts."""
    connection.setblocking(False)
    try:
        connection.send(NO_PLACE % (MOST_CLIENTS, MOST_OF_ADDRESS))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1 << 16)  # what was not read would have the answer thrown away
    except OSError:
        log.debug("who is turned away has gone", exc_info=True)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
