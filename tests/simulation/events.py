"""What may go wrong, and how often: a weighted table. Each fault says what it did and undoes it after a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation import administration

if TYPE_CHECKING:
    from tests.simulation.world import World

TOPIC, PARTITIONS = "things", 2
"""What the clients work with."""
Undo = Callable[[], None]


def kill(world: World) -> tuple[str, Undo]:
    """A broker is killed, and started again later."""
    broker_id = world.rng.choice(sorted(world.brokers))
    world.kill(broker_id)
    return f"kill broker {broker_id}", lambda: world.start(broker_id)


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
    seconds = world.rng.choice((0.5, 2.0, 8.0, 15.0))
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


def administer(world: World) -> tuple[str, Undo]:
    """Somebody changes topics, from a machine that is gone when all is healed."""
    change = administration.draw(world.rng, TOPIC, PARTITIONS, sorted(world.brokers))
    machine = world.simulation.machine(f"admin-{world.events}")
    machine.create_task(administration.carry_out(world.bootstrap, change), name="administration")

    def leave() -> None:
        world.simulation.kill(machine)
        world.network.died(machine)

    return change[0], leave


EVENTS: dict[Callable[[World], tuple[str, Undo]], float] = {
    kill: 3,
    kill_controller: 2,
    stop: 1,
    stand_still: 2,
    cut: 2,
    isolate: 2,
    reset: 3,
    expire: 1,
    administer: 3,
}
