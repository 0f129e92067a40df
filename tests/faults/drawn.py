"""Faults to draw at random: each breaks something for a while and says in words what it broke.

All of them leave what is acknowledged with acks=all and min.insync.replicas=2 in place, also when they overlap:
processes die and disks stay. The one that takes a disk away waits until every record is on three.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kazoo.exceptions import NoNodeError

from kbroker import Admin
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from kbroker.protocol.errors import KafkaError
from tests.faults.cluster import BROKERS, FaultCluster
from tests.faults.links import CLIENTS, ZOOKEEPER
from tests.faults.wrong_clock import WrongClock


@dataclass(frozen=True, slots=True)
class Arena:
    """What a fault may break."""

    cluster: FaultCluster
    zookeeper: EmbeddedZooKeeper
    clocks: Mapping[int, WrongClock]
    topic: str
    rng: random.Random

    def someone(self) -> int:
        """A broker."""
        return self.rng.choice(BROKERS)

    def kill(self, broker_id: int) -> None:
        """End a broker that runs, paused or not."""
        self.cluster.paused.discard(broker_id)
        self.cluster.brokers[broker_id].kill()

    def until_all_is_whole(self) -> None:
        """Wait until all replicas are in sync, of each topic that has several."""
        for topic in self.cluster.kazoo.get_children("/brokers/topics"):
            with contextlib.suppress(NoNodeError):  # deleted meanwhile
                if len(self.cluster.replicas(topic)) > 1:
                    self.cluster.until_whole(topic)

    def mend(self) -> None:
        """Everything runs and reaches everything."""
        if not self.zookeeper.is_running:
            self.zookeeper.start()
        self.cluster.mend()


def kill_one(arena: Arena) -> str:
    broker = arena.someone()
    arena.kill(broker)
    return f"kill -9 of {broker}"


def kill_leader(arena: Arena) -> str:
    broker = arena.cluster.state(arena.topic).leader
    if broker in BROKERS:
        arena.kill(broker)
    return f"kill -9 of the leader {broker}"


def kill_controller(arena: Arena) -> str:
    broker = arena.cluster.controller()
    if broker in BROKERS:
        arena.kill(broker)
    return f"kill -9 of the controller {broker}"


def kill_between_markers(arena: Arena) -> str:
    """A coordinator of transactions dies when some of its markers are written, and those for one broker are not."""
    topic = "__transaction_state"
    try:
        coordinator = arena.cluster.state(topic, arena.rng.choice(arena.cluster.partitions(topic))).leader
    except NoNodeError:  # nobody has used transactions yet
        return kill_one(arena)
    if coordinator not in BROKERS:
        return kill_one(arena)
    other = arena.rng.choice([broker for broker in BROKERS if broker != coordinator])
    arena.cluster.links.cut(coordinator, other)
    time.sleep(arena.rng.uniform(0.05, 1.0))
    arena.kill(coordinator)
    return f"kill -9 of the coordinator {coordinator}, of whose markers none got to {other}"


def kill_several(arena: Arena) -> str:
    brokers = arena.rng.sample(BROKERS, arena.rng.choice((2, 3)))
    for broker in brokers:
        arena.kill(broker)
    return f"kill -9 of {brokers} at once"


def kill_and_start_at_once(arena: Arena) -> str:
    broker = arena.someone()
    arena.kill(broker)
    arena.cluster.brokers[broker].start()
    return f"kill -9 of {broker}, started at once"


def stop(arena: Arena) -> str:
    broker = arena.someone()
    arena.cluster.paused.discard(broker)
    arena.cluster.brokers[broker].stop()
    return f"SIGTERM to {broker}"


def pause(arena: Arena) -> str:
    broker = arena.someone()
    if not arena.cluster.brokers[broker].is_running:
        return f"SIGSTOP to {broker}, which is dead"
    arena.cluster.pause(broker)
    return f"SIGSTOP to {broker}"


def blink(arena: Arena) -> str:
    broker, seconds = arena.someone(), arena.rng.uniform(0.1, 1.0)
    if arena.cluster.brokers[broker].is_running:
        arena.cluster.pause(broker)
        time.sleep(seconds)
        arena.cluster.resume(broker)
    return f"SIGSTOP to {broker} for {seconds:.1f} s"


def cut_one_direction(arena: Arena) -> str:
    source, target = arena.rng.sample(BROKERS, 2)
    arena.cluster.links.cut(source, target)
    return f"nothing gets from {source} to {target}"


def cut_link(arena: Arena) -> str:
    one, other = arena.rng.sample(BROKERS, 2)
    arena.cluster.links.cut_both(one, other)
    return f"nothing gets through between {one} and {other}"


def refuse(arena: Arena) -> str:
    one, other = arena.rng.sample((ZOOKEEPER, *BROKERS), 2)
    arena.cluster.links.refuse(one, other)
    return f"connections between {one} and {other} are refused ({ZOOKEEPER} is ZooKeeper)"


def cut_clients(arena: Arena) -> str:
    broker, to_broker = arena.someone(), arena.rng.random() < 0.5
    arena.cluster.links.cut(*((CLIENTS, broker) if to_broker else (broker, CLIENTS)))
    return f"nothing gets from clients to {broker}" if to_broker else f"nothing gets from {broker} to clients"


def reset_clients(arena: Arena) -> str:
    broker = arena.someone()
    arena.cluster.links.reset(CLIENTS, broker)
    return f"clients' connections to {broker} are reset"


def isolate(arena: Arena) -> str:
    broker = arena.someone()
    arena.cluster.links.isolate(broker)
    return f"only clients reach {broker}"


def cut_zookeeper(arena: Arena) -> str:
    broker = arena.someone()
    arena.cluster.links.cut_both(broker, ZOOKEEPER)
    return f"{broker} is cut off from ZooKeeper"


def kill_zookeeper(arena: Arena) -> str:
    arena.zookeeper.kill()
    time.sleep(arena.rng.uniform(0, 2))
    arena.zookeeper.start()
    return "ZooKeeper killed and started again"


def set_a_clock(arena: Arena) -> str:
    broker, hours = arena.someone(), arena.rng.choice((-100, -1, 0, 1, 100))
    arena.clocks[broker].set(hours * 3600)
    return f"the clock of {broker} is off by {hours} h"


def heal_links(arena: Arena) -> str:
    arena.cluster.links.heal()
    return "all links healed"


def mend(arena: Arena) -> str:
    arena.mend()
    return "all mended"


def elect_preferred(arena: Arena) -> str:
    _ask(arena, lambda admin: admin.elect_leaders(timeout_ms=3000))
    return "preferred leaders elected"


def reassign(arena: Arena) -> str:
    replicas = arena.rng.sample(BROKERS, 3)
    partition = arena.rng.choice(arena.cluster.partitions(arena.topic))
    _ask(arena, lambda admin: admin.alter_reassignments({(arena.topic, partition): replicas}, timeout_ms=3000))
    return f"partition {partition} reassigned to {replicas}"


def lose_a_disk(arena: Arena) -> str:
    arena.mend()
    arena.until_all_is_whole()
    broker = arena.someone()
    arena.kill(broker)
    shutil.rmtree(arena.cluster.brokers[broker].log_dir)
    arena.mend()
    arena.until_all_is_whole()
    return f"{broker} killed, its data directory deleted, and filled again"


def _ask(arena: Arena, action: Callable[[Admin], object]) -> None:
    with contextlib.suppress(KafkaError, OSError), Admin(arena.cluster.bootstrap, request_timeout_ms=3000) as admin:
        action(admin)


FAULTS: tuple[Callable[[Arena], str], ...] = (
    kill_one,
    kill_leader,
    kill_controller,
    kill_between_markers,
    kill_several,
    kill_and_start_at_once,
    stop,
    pause,
    blink,
    cut_one_direction,
    cut_link,
    refuse,
    cut_clients,
    reset_clients,
    isolate,
    cut_zookeeper,
    kill_zookeeper,
    set_a_clock,
    heal_links,
    mend,
    elect_preferred,
    reassign,
    lose_a_disk,
)
