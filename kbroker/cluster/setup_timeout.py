"""How connections to other brokers are set up: what is spoken, and how long it may take, longer after each failure.

socket.connection.setup.timeout.ms for the first try, twice as long after each that failed, at most
socket.connection.setup.timeout.max.ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbroker.client.connection import Connection
from kbroker.client.security import PLAINTEXT, Security


@dataclass(slots=True)
class ConnectionSetup:
    """What holds for the connections to all peers through one listener."""

    first_ms: int = 10_000
    longest_ms: int = 30_000
    security: Security = PLAINTEXT
    """Of the connections to come: another one takes its place when this broker's certificates are new."""
    listener: str = ""
    """Its name."""

    def of_peer(self) -> SetupTimeout:
        """Return what one peer's connections are opened with."""
        return SetupTimeout(self)


class SetupTimeout:
    """The time-out of one peer's connections."""

    __slots__ = ("_failures", "_setup")

    def __init__(self, setup: ConnectionSetup) -> None:
        self._setup = setup
        self._failures = 0

    @property
    def seconds(self) -> float:
        """For the next try."""
        longest_ms = max(self._setup.longest_ms, self._setup.first_ms)
        return min(longest_ms, self._setup.first_ms * 2.0 ** min(self._failures, 32)) / 1000

    async def connect(self, address: tuple[str, int], **arguments: Any) -> Connection:
        """Open a connection; raises OSError, and gives the next one more time. Raises LoginFailed, too."""
        security = self._setup.security
        try:
            connection = await Connection.open(*address, timeout=self.seconds, security=security, **arguments)
        except OSError:
            self._failures += 1
            raise
        self._failures = 0
        return connection
