import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kbroker.client.group.listener import Audience, RebalanceListener, tell, tell_in_thread
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


async def test_who_calls_from_a_listener_is_known_in_its_tasks_and_threads_until_it_returns() -> None:
    audience, other = Audience(), Audience()
    release = asyncio.Event()
    later: list[asyncio.Task[bool]] = []

    def speaks() -> tuple[bool, bool]:
        return audience.speaks, other.speaks

    async def speaks_later() -> bool:
        await release.wait()
        return audience.speaks

    class Here(RebalanceListener):
        async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            later.append(asyncio.create_task(speaks_later()))
            assert speaks() == (True, False)
            assert await asyncio.create_task(asyncio.to_thread(speaks)) == (True, False)

    class Elsewhere(RebalanceListener):
        def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            assert speaks() == (True, False)

    async def in_thread(function: Callable[..., Any], *arguments: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(None, function, *arguments)

    for listener in (Here(), tell_in_thread(Elsewhere(), in_thread)):
        audience.listener = listener
        assert await audience.tell("on_assigned", SOME) is None
        assert speaks() == (False, False)
    release.set()
    assert not await later[0]
