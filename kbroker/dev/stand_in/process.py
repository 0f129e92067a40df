"""The stand-in's process: `main` serves on a socket that it was given, until SIGTERM or SIGINT.

It loads the least it can, so that it is there at once and small: see `command` in kbroker/dev/stand_in_zookeeper.py.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from kbroker.dev.stand_in.journal import EPOCH_BITS, Journal, JournalError
from kbroker.dev.stand_in.server import Server, present
from kbroker.dev.stand_in.service import PASSWORD_BYTES, Limits, Service

READY = b"ready\n"
LOOPBACK = "127.0.0.1"


def main(arguments: list[str]) -> int:
    """Serve. The arguments: folder, listening socket, pipe to say READY in, "sync" or "no-sync", tick in ms."""
    directory, descriptor, ready, sync, tick_ms = arguments
    listener = socket.socket(fileno=int(descriptor))
    if (host := listener.getsockname()[0]) != LOOPBACK:
        _tell(f"it does not listen on {host}: it is for development and tests only, on {LOOPBACK}")
        return 1
    journal = Journal(directory, sync=sync == "sync")
    try:
        now = present()
        tree = journal.open(now.wall_ms)
        if journal.dropped_bytes:
            _tell(f"{journal.dropped_bytes} bytes of a write that a crash interrupted were cut off")
        limits = Limits(min_session_timeout_ms=2 * int(tick_ms))
        service = Service(tree, now, lambda: os.urandom(PASSWORD_BYTES), first_session_id(tree.zxid), limits)
        server = Server(service, journal, listener)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: server.stop())
        os.write(int(ready), READY)
        os.close(int(ready))
        server.run()
        journal.close()
    except JournalError as error:
        _tell(str(error))
        return 1
    except OSError as error:
        _tell(f"cannot write to {directory}: {error.strerror}")
        return 1
    return 0


def first_session_id(zxid: int) -> int:
    """Return an id that no start before had: each has an epoch of its own."""
    return (zxid >> EPOCH_BITS << EPOCH_BITS) + 1


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
