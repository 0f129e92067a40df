"""What may go wrong, and how often: a weighted table. Each fault says what it did and undoes it after a while."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation import administration
from tests.simulation.zookeeper import ODDITIES

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


def stand_still(world: World) -> tuple[str, Undo]:
    """A machine stands still, as with SIGSTOP: mostly a broker, seldom ZooKeeper."""
    hosts = [*(each.host for each in world.brokers.values()), "zookeeper"]
    host = world.rng.choice(hosts)
    seconds = world.rng.choice((0.2, 1.0, 2.5, 4.0))
    for machine in world.simulation.machines:
        if machine.host == host:
            machine.stands_still_until = world.simulation.now + seconds
    return f"{host} stands still for {seconds:g} s", lambda: None


def cut(world: World) -> tuple[str, Undo]:
    """Nothing goes from one host to another, in one direction or in both."""
    hosts = [*(each.host for each in world.brokers.values()), "zookeeper"]
    one, other = world.rng.sample(hosts, 2)
    world.network.cut(one, other)
    is_both = world.rng.random() < 0.5
    if is_both:
        world.network.cut(other, one)
    return f"cut {one} {'<->' if is_both else '->'} {other}", world.network.mend


def isolate(world: World) -> tuple[str, Undo]:
    """A broker is cut off from everybody, clients included, in one direction or in both."""
    broker = world.brokers[world.rng.choice(sorted(world.brokers))]
    hears, is_heard = world.rng.choice(((False, False), (True, False), (False, True)))
    for host in sorted({machine.host for machine in world.simulation.machines} - {broker.host}):
        if not is_heard:
            world.network.cut(broker.host, host)
        if not hears:
            world.network.cut(host, broker.host)
    ways = "neither hears nor is heard" if not (hears or is_heard) else "hears nothing" if is_heard else "is not heard"
    return f"{broker.host} {ways}", world.network.mend


def reset(world: World) -> tuple[str, Undo]:
    """Some connections are reset: what is on its way is lost, answers too."""
    wires = list(world.network.connections.values())
    some = world.rng.sample(wires, min(len(wires), world.rng.randint(1, 6)))
    for wire in some:
        wire.reset()
    return f"reset {len(some)} of {len(wires)} connections", lambda: None


def expire(world: World) -> tuple[str, Undo]:
    """ZooKeeper ends a broker's session out of the blue."""
    host = world.rng.choice(sorted(world.brokers))
    world.zookeeper.expire(host)
    return f"session of broker {host} expires", lambda: None


def lose_power(world: World) -> tuple[str, Undo]:
    """Brokers lose what was not synced: any of them where that is promised, else one whose records others have."""
    chosen = [world.weak]
    if world.flushes:
        chosen = world.rng.sample(sorted(world.brokers), world.rng.choice((1, 1, 2, 3)))
    elif not (world.is_calm and others_have(world, world.weak)):
        return kill(world)
    lost = [world.brokers[each].lose_power(world.rng) for each in chosen]

    def start_again() -> None:
        for each in chosen:
            world.start(each)

    return f"brokers {chosen} lose their power, and {lost} changes", start_again


def lose_power_and_be_alone(world: World) -> tuple[str, Undo]:
    """A broker is back after a loss of power before anybody saw it go, and all that know more than it are killed."""
    if world.flushes or not (world.is_calm and others_have(world, world.weak)):
        return lose_power(world)
    lost = world.brokers[world.weak].lose_power(world.rng)
    world.start(world.weak)
    others = [each for each in sorted(world.brokers) if each != world.weak]
    text = f"broker {world.weak} loses its power, and {lost} changes, and is back; the others are killed"
    return text, kill_each(world, others)


def others_have(world: World, broker_id: int) -> bool:
    """Whether others that are in sync have what a broker has, and serve: who is away is left out once it is missed."""
    topics = [(TOPIC, number) for number in range(PARTITIONS)] + [("__transaction_state", 0), ("__consumer_offsets", 0)]
    serving = {each for each, broker in world.brokers.items() if broker.is_serving and each != broker_id}
    isrs = (set(world.zookeeper.isr(*each)) for each in topics)
    return all(broker_id not in isr or isr & serving for isr in isrs)


def fail_disk(world: World) -> tuple[str, Undo]:
    """A disk answers errors only, until it is replaced and its broker started anew."""
    broker = world.brokers[world.weak]
    disk, code = world.rng.choice(broker.disks), world.rng.choice((errno.EIO, errno.ENOSPC))
    disk.fails = code

    def replace() -> None:
        disk.fails = 0
        world.kill(world.weak)
        world.start(world.weak)

    return f"{disk.folder.rpartition('/')[2]} fails with {errno.errorcode[code]}", replace


def flip(world: World) -> tuple[str, Undo]:
    """A bit of a closed segment of a broker flips, and flips back."""
    closed = [
        path
        for disk in world.brokers[world.weak].disks
        for folder in sorted(Path(disk.folder).glob(f"{TOPIC}-?"))
        for path in sorted(folder.glob("*.log"))[:-1]
    ]
    if not (closed and world.is_calm and others_have(world, world.weak)):
        return kill(world)
    path = world.rng.choice(closed)
    undo = world.brokers[world.weak].disks[0].flip(world.rng, path)
    return f"a bit of {path.parent.name}/{path.name} of broker {world.weak} flips", undo


def split_leader(world: World) -> tuple[str, Undo]:
    """A leader is cut off from its followers and from ZooKeeper, and clients know nothing of it."""
    leader = world.zookeeper.leader(TOPIC, world.rng.randrange(PARTITIONS))
    if leader < 0:
        return kill(world)
    host = world.brokers[leader].host
    for other in (*(each.host for each in world.brokers.values() if each.host != host), "zookeeper"):
        world.network.cut(host, other)
        world.network.cut(other, host)
    return f"leader {leader} is alone with its clients", world.network.mend


def hold_orders(world: World) -> tuple[str, Undo]:
    """What a controller says to a broker comes after the next controller's words: often there is one soon."""
    controller = world.controller_id()
    if controller is None:
        return kill(world)
    other = world.rng.choice([each for each in sorted(world.brokers) if each != controller])
    world.network.cut(world.brokers[controller].host, world.brokers[other].host)
    text = f"controller {controller} is not heard by broker {other}"
    undo = contextlib.ExitStack()
    undo.callback(world.network.mend)
    if world.rng.random() < 0.5:
        (third,) = (each for each in world.brokers if each not in (controller, other))
        world.zookeeper.expire(third)  # of whom it has to tell
        deposed_s = world.rng.random()
        undo.callback(asyncio.get_running_loop().call_later(deposed_s, world.zookeeper.expire, controller).cancel)
        text += (
            f", which has to tell it of broker {third}, and is deposed {deposed_s:.2f} s later, if this holds so long"
        )
    return text, undo.close


def kill_between_markers(world: World) -> tuple[str, Undo]:
    """Whoever coordinates a transaction is killed as soon as one is decided, and not carried out everywhere."""
    if world.workload != "txn":
        return kill(world)
    killed = []

    async def look() -> None:
        deciding = None
        while deciding is None:
            await asyncio.sleep(BETWEEN_LOOKS_S)
            deciding = next((each for each in world.brokers.values() if each.is_deciding()), None)
        world.tell(f"world: kill broker {deciding.broker_id}, which has decided a transaction")
        world.kill(deciding.broker_id)
        killed.append(deciding.broker_id)

    looking = asyncio.get_running_loop().create_task(look())

    def start_again() -> None:
        if looking.done():
            looking.result()
        looking.cancel()
        for each in killed:
            world.start(each)

    return "whoever decides a transaction is killed", start_again


def lose_answers(world: World) -> tuple[str, Undo]:
    """Answers of brokers are lost, with their connections: what was asked for was done."""
    some = world.rng.sample(sorted(world.brokers), world.rng.choice((1, 2, 3)))
    world.network.loses.update((world.brokers[each].host, None) for each in some)
    return f"answers of brokers {some} are lost now and then", world.network.loses.clear


def odd_zookeeper(world: World) -> tuple[str, Undo]:
    """ZooKeeper does what was asked for and does not say so, or does nothing, or ends sessions, now and then."""
    world.zookeeper.oddity = kind = world.rng.choice(sorted(ODDITIES))

    def stop() -> None:
        world.zookeeper.oddity = ""

    return f"ZooKeeper is odd: {kind}", stop


def administer(world: World) -> tuple[str, Undo]:
    """Somebody changes topics, from a machine that is gone when all is healed."""
    change = administration.draw(world.rng, TOPIC, PARTITIONS, sorted(world.brokers))
    machine = world.simulation.machine(f"admin-{world.events}")
    machine.create_task(administration.carry_out(world.bootstrap, change), name="administration")

    return change[0], lambda: world.leave(machine)


EVENTS: dict[Callable[[World], tuple[str, Undo]], float] = {
    kill: 3,
    kill_controller: 2,
    leave_one: 1,
    stop: 1,
    stand_still: 2,
    cut: 2,
    isolate: 2,
    reset: 3,
    expire: 1,
    administer: 3,
    lose_power: 3,
    lose_power_and_be_alone: 2,
    fail_disk: 1,
    flip: 3,
    split_leader: 3,
    hold_orders: 2,
    kill_between_markers: 5,
    lose_answers: 3,
    odd_zookeeper: 2,
}
