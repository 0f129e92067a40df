"""Ports to listen on, for child processes that must be told a number.

A port is picked below the system's ephemeral range. Ports from inside that range (what `bind` to port 0 gives) can be
taken by any outgoing connection while the server is away, and a client that keeps trying a dead server's port on
loopback can even get connected to itself.

Between picking and using it another process may take a port: the caller tries again with a new one.
"""

import random
import socket
from pathlib import Path

LOWEST_PORT = 11_000
EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL_START = 32_768
ATTEMPTS = 200


def is_port_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return distinct free ports; OSError when there are not that many."""
    highest = max(_ephemeral_start(), LOWEST_PORT + 1_000)
    chosen: list[int] = []
    for _ in range(ATTEMPTS + count):
        if len(chosen) == count:
            break
        port = random.randrange(LOWEST_PORT, highest)
        if port not in chosen and is_port_free(port, host):
            chosen.append(port)
    if len(chosen) < count:
        raise OSError(f"found no {count} free ports between {LOWEST_PORT} and {highest} on {host}")
    return chosen


def _ephemeral_start() -> int:
    try:
        return int(EPHEMERAL_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return DEFAULT_EPHEMERAL_START
