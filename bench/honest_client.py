"""A client that asks ApiVersions all the time and notes how long it waits: python -m bench.honest_client PORT.

It runs as a process of its own, so that what the loads cost is not what it measures. A line on standard input ends a
span; the answer is one line of JSON: the longest wait and the median one in milliseconds. A wait that would have kept
others from being asked counts for them too: what is measured is how long somebody waits who comes at any moment.
"""

from __future__ import annotations

import json
import select
import socket
import statistics
import struct
import subprocess
import sys
import time

PERIOD_S = 0.002
LIMIT_S = 60.0
FRAME = struct.pack(">ihhih", 10, 18, 0, 7, -1)
"""ApiVersions v0 without a client id."""


def ask(connection: socket.socket) -> float:
    """Return the seconds until ApiVersions was answered; LIMIT_S when it was not."""
    began = time.monotonic()
    try:
        connection.sendall(FRAME)
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        answer = connection.recv(size, socket.MSG_WAITALL)
    except TimeoutError:
        return LIMIT_S
    assert answer[:4] == FRAME[8:12], "another request's answer"
    return time.monotonic() - began


def spread(waits: list[float]) -> list[float]:
    """Add the waits of those who would have come while one waited."""
    everybody = []
    for wait in waits:
        while wait > 0:
            everybody.append(wait)
            wait -= PERIOD_S * 2
    return everybody


def main() -> None:
    """Ask until standard input ends."""
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=LIMIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ask(connection)
    print("{}", flush=True)
    waits: list[float] = []
    while True:
        waits.append(ask(connection))
        if select.select([sys.stdin], [], [], PERIOD_S)[0]:
            if not sys.stdin.readline():
                return
            print(
                json.dumps({"longest": max(waits) * 1e3, "median": statistics.median(spread(waits)) * 1e3}), flush=True
            )
            waits = []


class HonestClient:
    """The process, as a context manager."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "bench.honest_client", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> HonestClient:
        """Wait for its first answer."""
        self._line()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def span(self) -> dict[str, float]:
        """Return the waits since the last call, in milliseconds."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> dict[str, float]:
        assert self._process.stdout is not None
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return found


if __name__ == "__main__":
    main()
