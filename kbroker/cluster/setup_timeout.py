"""How long a connection to another broker may take to be set up: longer after each failure, as in Kafka.

socket.connection.setup.timeout.ms for the first try, twice as long after each that failed, at most
socket.connection.setup.timeout.max.ms.
"""

from __future__ import annotations

from typing import Any

from kbroker.client.connection import Connection


class SetupTimeout:
    """The time-out of one peer's connections."""

    __slots__ = ("_failures", "_first_s", "_longest_s")

    def __init__(self, first_ms: int = 10_000, longest_ms: int = 30_000) -> None:
        self._first_s = first_ms / 1000
        self._longest_s = max(longest_ms, first_ms) / 1000
        self._failures = 0

    @property
    def seconds(self) -> float:
        """For the next try."""
        return min(self._longest_s, self._first_s * 2.0 ** min(self._failures, 32))

    async def connect(self, address: tuple[str, int], **arguments: Any) -> Connection:
        """Open a connection; raises OSError, and gives the next one more time."""
        try:
            connection = await Connection.open(*address, timeout=self.seconds, **arguments)
        except OSError:
            self._failures += 1
            raise
        self._failures = 0
        return connection
