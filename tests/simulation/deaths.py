"""Brokers that are killed, or stopped in order, and started again when all is healed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World

TOPIC, PARTITIONS = "things", 2
"""What the clients work with."""
BETWEEN_LOOKS_S = 0.001
Undo = Callable[[], None]


def kill(world: World) -> tuple[str, Undo]:
    """A broker is killed, and started again later."""
    broker_id = world.rng.choice(sorted(world.brokers))
    world.kill(broker_id)
    return f"kill broker {broker_id}", lambda: world.start(broker_id)


def kill_each(world: World, broker_ids: list[int]) -> Undo:
    """Kill these brokers; returns what starts them again."""
    for each in broker_ids:
        world.kill(each)

    def start_again() -> None:
        for each in broker_ids:
            world.start(each)

    return start_again


def leave_one(world: World) -> tuple[str, Undo]:
    """All brokers but one are killed; it leads, alone, once their sessions are over."""
    left = world.zookeeper.leader(TOPIC, world.rng.randrange(PARTITIONS))
    killed = [each for each in sorted(world.brokers) if each != left]
    return f"kill all but broker {left}", kill_each(world, killed)


def kill_controller(world: World) -> tuple[str, Undo]:
    """The controller is killed."""
    broker_id = world.controller_id()
    if broker_id is None or world.brokers[broker_id].machine is None:
        return kill(world)
    world.kill(broker_id)
    return f"kill controller {broker_id}", lambda: world.start(broker_id)


def stop(world: World) -> tuple[str, Undo]:
    """A broker is stopped in order."""
    broker_id = world.rng.choice(sorted(world.brokers))
    world.stop(broker_id)
    return f"stop broker {broker_id}", lambda: world.start(broker_id)


def depose_between_markers(world: World) -> tuple[str, Undo]:
    """Whoever coordinates a transaction cannot say how one was decided, and another takes its place while it lives."""

    def depose(broker_id: int) -> None:
        for other in world.brokers.values():
            if other.broker_id != broker_id:
                world.network.cut(world.brokers[broker_id].host, other.host)
        world.zookeeper.expire(broker_id)

    if world.workload != "txn":
        return kill(world)
    looking = asyncio.get_running_loop().create_task(_once_decided(world, "is deposed", depose))

    def end() -> None:
        ended(looking)
        world.network.mend()

    return "whoever decides a transaction is deposed", end


def kill_between_markers(world: World) -> tuple[str, Undo]:
    """Whoever coordinates a transaction is killed as soon as one is decided, and not carried out everywhere."""
    if world.workload != "txn":
        return kill(world)
    killed: list[int] = []

    def kill_it(broker_id: int) -> None:
        world.kill(broker_id)
        killed.append(broker_id)

    looking = asyncio.get_running_loop().create_task(_once_decided(world, "is killed", kill_it))

    def start_again() -> None:
        ended(looking)
        for each in killed:
            world.start(each)

    return "whoever decides a transaction is killed", start_again


async def _once_decided(world: World, what: str, do: Callable[[int], None]) -> None:
    """Do it to whoever has decided a transaction, as soon as somebody has."""
    deciding = None
    while deciding is None:
        await asyncio.sleep(BETWEEN_LOOKS_S)
        deciding = next((each for each in world.brokers.values() if each.is_deciding()), None)
    world.tell(f"world: broker {deciding.broker_id}, which has decided a transaction, {what}")
    do(deciding.broker_id)


def ended(looking: asyncio.Task[None]) -> None:
    """Look no longer."""
    if looking.done():
        looking.result()
    looking.cancel()
