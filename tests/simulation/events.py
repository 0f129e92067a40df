"""What may go wrong, and how often: a weighted table. Each fault says what it did and undoes it after a while."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation import administration
from tests.simulation.deaths import (
    BETWEEN_LOOKS_S,
    PARTITIONS,
    TOPIC,
    Undo,
    depose_between_markers,
    ended,
    kill,
    kill_between_markers,
    kill_controller,
    leave_one,
    stop,
)
from tests.simulation.disk_faults import (
    fail_disk,
    fail_to_sync,
    flip,
    flip_and_kill,
    lose_power,
    lose_power_and_be_alone,
)
from tests.simulation.zookeeper import ODDITIES

if TYPE_CHECKING:
    from tests.simulation.world import World


BEGUN_S = 0.005
"""On the average, how long a change goes on until its controller ends."""


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
    machine.create_task(administration.carry_out(world.bootstrap, change, world.changes), name="administration")

    return change.text, lambda: world.leave(machine)


def move_from_busy_leader(world: World) -> tuple[str, Undo]:
    """A leader has much to do, and leads no more when it comes to what it was sent before."""
    number = world.rng.randrange(PARTITIONS)
    leader = world.zookeeper.leader(TOPIC, number)
    broker = world.brokers.get(leader)
    if broker is None or broker.machine is None or not broker.is_serving:
        return kill(world)
    others = world.rng.sample([each for each in sorted(world.brokers) if each != leader], 2)
    busy, admin = broker.machine, world.simulation.machine(f"admin-{world.events}")
    busy.jobs_wait_s = 0.1 + world.rng.random()
    world.inspect(lambda visitor: visitor.call_on(broker.host, f"{TOPIC}:{number}", visitor.send_compressed))
    change = administration.move_leader(TOPIC, number, [*others, leader])
    admin.create_task(administration.carry_out(world.bootstrap, change, world.changes), name="administration")
    undo = contextlib.ExitStack()
    undo.callback(world.leave, admin)
    undo.callback(setattr, busy, "jobs_wait_s", 0.0)
    return f"broker {leader} is busy: {change.text}", undo.close


def depose_in_a_change(world: World) -> tuple[str, Undo]:
    """A controller ends while it moves replicas or deletes a topic: what it has begun is the next one's."""
    change = administration.draw_long(world.rng, TOPIC, PARTITIONS, sorted(world.brokers))
    admin, later_s = world.simulation.machine(f"admin-{world.events}"), world.rng.expovariate(1 / BEGUN_S)
    admin.create_task(administration.carry_out(world.bootstrap, change, world.changes), name="administration")

    async def depose() -> None:
        while not world.zookeeper.under_way():  # noqa: ASYNC110
            await asyncio.sleep(BETWEEN_LOOKS_S)
        await asyncio.sleep(later_s)
        world.tell(f"world: controller {world.controller_id()} is deposed: {'; '.join(world.zookeeper.under_way())}")
        world.zookeeper.depose()

    deposing = asyncio.get_running_loop().create_task(depose())
    undo = contextlib.ExitStack()
    undo.callback(world.leave, admin)
    undo.callback(ended, deposing)
    return f"whoever is to carry it out is deposed: {change.text}", undo.close


EVENTS: dict[Callable[[World], tuple[str, Undo]], float] = {
    kill: 2,
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
    fail_to_sync: 2,
    flip: 6,
    flip_and_kill: 3,
    split_leader: 3,
    hold_orders: 2,
    move_from_busy_leader: 3,
    kill_between_markers: 5,
    depose_between_markers: 3,
    depose_in_a_change: 3,
    lose_answers: 3,
    odd_zookeeper: 2,
}
