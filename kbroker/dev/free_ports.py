"""Ports to listen on, for child processes that must be told a number.

A port is picked below the system's ephemeral range. Ports from inside that range (what `bind` to port 0 gives) can be
taken by any outgoing connection while the server is away, and a client that keeps trying a dead server's port on
loopback can even get connected to itself.

Between picking and using it another process may take a port: the caller tries again with a new one.
"""

import os
import random
import socket
from collections import deque
from pathlib import Path

LOWEST_PORT = 11_000
EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL_START = 32_768
ATTEMPTS = 200
RANGE_VARIABLE = "KBROKER_PORT_RANGE"
"""Environment: "LOW-HIGH", both included, for those who share a machine and agree who takes what."""

_given: deque[int] = deque(maxlen=500)
"""Not given again soon: who asked for them may not listen yet."""


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
    lowest, highest = _port_range()
    chosen: list[int] = []
    for _ in range(ATTEMPTS + count):
        if len(chosen) == count:
            break
        port = random.randint(lowest, highest)
        if port not in chosen and port not in _given and is_port_free(port, host):
            chosen.append(port)
    if len(chosen) < count:
        raise OSError(f"found no {count} free ports between {lowest} and {highest} on {host}")
    _given.extend(chosen)
    return chosen


def highest_port() -> int:
    """Return the last port below the system's ephemeral range."""
    return max(_ephemeral_start(), LOWEST_PORT + 1_000) - 1


def _port_range() -> tuple[int, int]:
    chosen = os.environ.get(RANGE_VARIABLE)
    if chosen is None:
        return LOWEST_PORT, highest_port()
    lowest, separator, highest = chosen.partition("-")
    if not (separator and lowest.isdecimal() and highest.isdecimal() and 0 < int(lowest) <= int(highest) <= 65_535):
        raise OSError(f'{RANGE_VARIABLE}={chosen} is no range of ports; write it as in "11000-15000"')
    return int(lowest), int(highest)


def _ephemeral_start() -> int:
    try:
        return int(EPHEMERAL_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return DEFAULT_EPHEMERAL_START
