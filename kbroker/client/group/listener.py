"""What an application hears of rebalances."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from kbroker.client.types import TopicPartition

_telling: ContextVar[tuple[object, ...]] = ContextVar("kbroker_telling", default=())
"""Which words to listeners this task or thread, or whoever began it, is part of."""


class RebalanceListener:
    """Override what you need; with asyncio the methods may be coroutines. All are called inside poll (or close).

    Partitions are sorted. What a method raises is raised by poll once the rebalance step is complete.

    A method may call its consumer, but not for records: poll, iterators and batches raise IllegalState. What subscribe,
    unsubscribe and close change they change, in this order of calls, when the method has returned and before the call
    that it is told in goes on: they do not wait, and what they raise is raised by that call. After close that ends, a
    poll with ClientClosed.
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


class Audience:
    """A consumer's listener, and who calls from within it: what waits for its end would wait for ever there."""

    def __init__(self) -> None:
        self.listener: Any = None
        self._words: set[object] = set()

    async def tell(self, method: str, partitions: Sequence[TopicPartition]) -> Exception | None:
        """Call the listener's method; returns what it raised."""
        word = object()
        self._words.add(word)
        before = _telling.set((*_telling.get(), word))
        try:
            return await tell(self.listener, method, partitions)
        finally:
            _telling.reset(before)
            self._words.discard(word)

    @property
    def speaks(self) -> bool:
        """Whether it is the listener that calls, in this task or thread or one that it has begun."""
        return not self._words.isdisjoint(_telling.get())


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
            await run(_spoken(function), partitions)

    return Elsewhere()


def _spoken(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a listener's method one that is known as such in another thread."""
    words = _telling.get()

    @functools.wraps(function)
    def spoken(partitions: Sequence[TopicPartition]) -> Any:
        before = _telling.set((*_telling.get(), *words))
        try:
            return function(partitions)
        finally:
            _telling.reset(before)

    return spoken
