from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kbroker.client.group.listener import RebalanceListener, tell, tell_in_thread
from kbroker.client.types import TopicPartition

SOME = (TopicPartition("a", 0),)


class Partial:
    """Has just one of the methods."""

    def __init__(self) -> None:
        self.heard: list[Sequence[TopicPartition]] = []

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append(partitions)


async def test_any_object_may_listen_and_lost_is_revoked_unless_told_apart() -> None:
    partial = Partial()
    for method in ("on_assigned", "on_revoked", "on_lost"):
        assert await tell(partial, method, SOME) is None
    assert partial.heard == [SOME, SOME]
    assert await tell(None, "on_assigned", SOME) is None
    assert await tell(RebalanceListener(), "on_lost", SOME) is None


async def test_what_it_raises_is_returned() -> None:
    class Broken(RebalanceListener):
        async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            raise ValueError("mine")

    assert isinstance(await tell(Broken(), "on_assigned", SOME), ValueError)


async def test_methods_can_be_called_elsewhere() -> None:
    partial = Partial()
    names = []

    async def run(function: Callable[..., Any], *arguments: Any) -> Awaitable[None] | None:
        names.append(function.__name__)
        return function(*arguments)  # type: ignore[no-any-return]

    listener = tell_in_thread(partial, run)
    for method in ("on_assigned", "on_revoked", "on_lost"):
        assert await tell(listener, method, SOME) is None
    assert (names, partial.heard) == (["on_revoked", "on_revoked"], [SOME, SOME])
