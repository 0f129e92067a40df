"""What an application hears of rebalances."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kbroker.client.types import TopicPartition


class RebalanceListener:
    """Override what you need; with asyncio the methods may be coroutines. All are called inside poll (or close).

    Partitions are sorted. What a method raises is raised by poll once the rebalance step is complete.
    """

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These were added, after each rebalance (perhaps none); seek here to begin elsewhere."""
        return None

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These are given up now: commit here what you have done with them."""
        return None

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These went to others already, too late to commit; unless overridden, told to on_revoked."""
        return self.on_revoked(partitions)


async def tell(listener: Any, method: str, partitions: Sequence[TopicPartition]) -> Exception | None:
    """Call a listener's method (any object may have just some of them); returns what it raised."""
    function = getattr(listener, method, None)
    if function is None and method == "on_lost":
        function = getattr(listener, "on_revoked", None)
    if function is None:
        return None
    try:
        waiting = function(partitions)
        if waiting is not None:
            await waiting
    except Exception as error:
        return error
    return None


def tell_in_thread(listener: Any, run: Callable[..., Awaitable[Any]]) -> RebalanceListener:
    """Return a listener whose methods have the given one's called by `run(method, partitions)`."""

    class Elsewhere(RebalanceListener):
        async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            await call("on_assigned", partitions)

        async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            await call("on_revoked", partitions)

        async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
            await call("on_lost" if hasattr(listener, "on_lost") else "on_revoked", partitions)

    async def call(method: str, partitions: Sequence[TopicPartition]) -> None:
        function = getattr(listener, method, None)
        if function is not None:
            await run(function, partitions)

    return Elsewhere()
