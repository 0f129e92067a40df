"""What the controller's runner asks of the outside: a channel to each broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class BrokerChannels(Protocol):
    """One ordered channel per broker, our own included.

    Each broker gets its requests one at a time in the order of `send`; a failed one is sent again every 100 ms until
    it is answered or the broker is removed. A broker that hangs delays only itself. What waits for one broker has a
    limit. No ApiVersions handshake.
    """

    def add_broker(self, broker_id: int, host: str, port: int, on_behind: Callable[[], None]) -> None:
        """Open a channel; the broker may not answer yet. One that is open moves to the address with all that waits:
        orders are given once, and who was made a leader by one that is lost would never hear of it.

        `on_behind` is called (on the loop) when too much waits: all of it is dropped then, but for what takes
        partitions out of the broker's metadata, since nobody tells of these again. It is called, too, some seconds
        after a request was left out because it cannot be encoded.
        """
        ...

    def remove_broker(self, broker_id: int) -> None:
        """Close the channel and drop what waits in it, without calling back. Unknown brokers are fine."""
        ...

    def send(self, broker_id: int, request: Any, version: int, on_response: Callable[[Any], None]) -> None:
        """Queue a request (a protocol message); the answer is handed over on the loop. No channel: dropped."""
        ...

    def waiting(self) -> dict[int, int]:
        """Broker id -> requests that wait to be sent; may be called by any thread."""
        ...
