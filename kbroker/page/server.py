"""Serving the page until a signal ends it."""

from __future__ import annotations

import gc
import logging
import socket
import sys

import uvicorn

from kbroker.descriptors import raise_descriptor_limit
from kbroker.page.app import build_app
from kbroker.page.connections import Connection, Listener
from kbroker.page.options import PageOptions

log = logging.getLogger(__name__)

BACKLOG = 128
"""As many are accepted at a time, too: between them the loop serves others."""
SHUTDOWN_S = 2
"""How long answers that go on (a live tail) may take to end."""

SWITCH_S = 0.0005
"""How long views wait for the interpreter while the thread beside them reads what a large cluster answers."""
GC_THRESHOLDS = 5_000, 5, 1_000
"""To look through all that a large cluster has answered takes a tenth of a second, in which nobody is served."""


def listen(options: PageOptions) -> socket.socket:
    """Return the socket on which the page is served; OSError where that cannot be."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = Listener(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host.strip("[]"), options.port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def address_of(options: PageOptions, listener: socket.socket) -> str:
    """Return what to open in a browser."""
    scheme = "https" if options.certificate else "http"
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"


def server_of(options: PageOptions) -> uvicorn.Server:
    """Return what serves the page."""
    config = uvicorn.Config(
        build_app(options),
        http=Connection,
        ws="none",  # whatever else is installed: no view speaks it, and it is not told of who comes in
        loop="asyncio",  # another one would not accept by the listener
        backlog=BACKLOG,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        lifespan="on",
    )
    return uvicorn.Server(config)


def serve(options: PageOptions, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, in a process of its own."""
    server = server_of(options)
    raise_descriptor_limit()  # each reader of a topic has connections to all brokers
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    server.run(sockets=[listener])
