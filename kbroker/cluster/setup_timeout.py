"""How connections to other brokers are set up: what is spoken, and how long it may take, longer after each failure.

socket.connection.setup.timeout.ms for the first try, twice as long after each that failed, at most
socket.connection.setup.timeout.max.ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbroker.client.connection import Connection
from kbroker.client.security import PLAINTEXT, Security


class SetupTimeout:
    """The time-out of one peer's connections."""

    __slots__ = ("_failures", "_first_s", "_longest_s", "_security")

    def __init__(self, first_ms: int = 10_000, longest_ms: int = 30_000, security: Security = PLAINTEXT) -> None:
        self._security = security
        self._first_s = first_ms / 1000
        self._longest_s = max(longest_ms, first_ms) / 1000
        self._failures = 0

    @property
    def seconds(self) -> float:
        """For the next try."""
        return min(self._longest_s, self._first_s * 2.0 ** min(self._failures, 32))

    async def connect(self, address: tuple[str, int], **arguments: Any) -> Connection:
        """Open a connection; raises OSError, and gives the next one more time. Raises LoginFailed, too."""
        try:
            connection = await Connection.open(*address, timeout=self.seconds, security=self._security, **arguments)
        except OSError:
            self._failures += 1
            raise
        self._failures = 0
        return connection


@dataclass(frozen=True, slots=True)
class ConnectionSetup:
    """What holds for the connections to all peers through one listener."""

    first_ms: int = 10_000
    longest_ms: int = 30_000
    security: Security = PLAINTEXT

    def of_peer(self) -> SetupTimeout:
        """Return what one peer's connections are opened with."""
        return SetupTimeout(self.first_ms, self.longest_ms, self.security)


DEFAULT_SETUP = ConnectionSetup()
