"""What must hold after each step, whatever breaks: looked at in the brokers themselves, not through clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.replica.partition import Role
from tests.simulation.clients import MIN_IN_SYNC
from tests.simulation.loop import Machine

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedBroker, World

LOOK_S = 0.05
"""How often it is compared what all brokers together hold."""


class PromiseBroken(AssertionError):
    """The text says which, where and when."""


class Promises:
    """Remembers what was seen, and compares."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        """(topic's id, partition, leader epoch) -> who led."""
        self._seen: dict[tuple[bytes, int, str], tuple[Machine, int, int]] = {}
        """(topic's id, partition, what) -> (leader's life, its epoch, the value it told others last)."""
        self.acknowledged: dict[tuple[str, int], int] = {}
        """(topic, partition) -> the highest offset of which a producer was told that it is safe."""
        self._ends: dict[tuple[str, int], dict[int, int]] = {}
        """(topic, partition) -> broker -> where its log ended when it was last seen alive."""
        self._next_look = 0.0
        self._too_few = ""
        """What was acknowledged too early."""

    def acknowledge(self, topic: str, partition: int, offset: int) -> None:
        """A producer was told that it is safe: then it is on as many disks as the topic asks for."""
        key = topic, partition
        self.acknowledged[key] = max(offset, self.acknowledged.get(key, -1))
        holders = [broker_id for broker_id, end in self._ends.get(key, {}).items() if end > offset]
        if len(holders) < MIN_IN_SYNC:
            self._too_few = f"{topic}-{partition}: offset {offset} is acknowledged, and only brokers {holders} have it"

    def after_turn(self, machine: Machine) -> None:
        """Look at the machine that has just run, and now and then at all."""
        if self._too_few:
            raise PromiseBroken(self._too_few)
        broker = self._world.on_machine(machine)
        if broker is not None:
            self._look_at(broker, machine)
        if self._world.simulation.now >= self._next_look:
            self._next_look = self._world.simulation.now + LOOK_S
            self._look_at_isrs()
            for each in self._world.brokers.values():
                each.check_controller()

    def _look_at(self, broker: SimulatedBroker, life: Machine) -> None:
        for hosted in broker.hosted():
            state = hosted.state
            state.check()
            self._ends.setdefault((hosted.topic, hosted.partition), {})[broker.broker_id] = hosted.log.log_end_offset
            if state.role is Role.LEADER:
                key, epoch = (hosted.topic_id, hosted.partition), state.leader_epoch
                before = self._leaders.setdefault((*key, epoch), broker.broker_id)
                if before != broker.broker_id:
                    raise PromiseBroken(f"{hosted!r}: {before} and {broker.broker_id} lead in epoch {epoch}")
                self._rises(hosted.topic, (*key, "high watermark"), life, epoch, state.high_watermark)
                self._rises(hosted.topic, (*key, "last stable offset"), life, epoch, hosted.log.last_stable_offset)

    def _rises(self, name: str, key: tuple[bytes, int, str], life: Machine, epoch: int, now: int) -> None:
        """What a leader told others never goes back while it leads; one that was started anew has to learn it again."""
        before = self._seen.get(key)
        if before is not None and before[:2] == (life, epoch) and now < before[2]:
            raise PromiseBroken(f"{name}-{key[1]}: the {key[2]} of {life.host} went from {before[2]} to {now}")
        self._seen[key] = (life, epoch, now)

    def _look_at_isrs(self) -> None:
        """Each member of an ISR that runs has all that was acknowledged."""
        for key, offset in self.acknowledged.items():
            for broker_id in self._world.zookeeper.isr(*key):
                broker = self._world.brokers.get(broker_id)
                found = None if broker is None else broker.log(*key)
                if found is not None and found.log_end_offset <= offset:
                    raise PromiseBroken(
                        f"{key}: offset {offset} is acknowledged, and broker {broker_id} of the ISR ends at "
                        f"{found.log_end_offset}"
                    )
