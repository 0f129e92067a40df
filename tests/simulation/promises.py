"""What must hold after each step, whatever breaks: looked at in the brokers themselves, not through clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.replica.partition import Role
from tests.simulation.clients import MIN_IN_SYNC
from tests.simulation.coordinators import Coordinators
from tests.simulation.loop import Machine

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedBroker, World

COMPARED = ("things", "__consumer_offsets", "__transaction_state")
LOOK_S = 0.05
"""How often it is compared what all brokers together hold."""


Life = Any
"""What there is once for each start of a broker."""


class PromiseBroken(AssertionError):
    """The text says which, where and when."""


class Promises:
    """Remembers what was seen, and compares."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        """(topic's id, partition, leader epoch) -> who led."""
        self._seen: dict[tuple[bytes, int, str], tuple[Life, int, int]] = {}
        """(topic's id, partition, what) -> (leader's life, its epoch, the value it told others last)."""
        self._shown: dict[tuple[bytes, int], tuple[tuple[Life, int, bool] | None, int, int]] = {}
        """(topic's id, partition) -> (leader's life, its epoch, whether enough were in sync), high watermark, end."""
        self._obeyed: dict[Life, int] = {}
        """Broker's life -> the latest controller's epoch that it has heard."""
        self._epochs: dict[tuple[int, bytes, int], tuple[Life, int]] = {}
        """(broker, topic's id, partition) -> its life, and the leader epoch it knows."""
        self._followed: dict[tuple[int, bytes, int], tuple[Life, int, int]] = {}
        """(broker, topic's id, partition) -> its life, the leader epoch in which it follows, and where its log ends."""
        self.acknowledged: dict[tuple[str, int], int] = {}
        """(topic, partition) -> the highest offset of which a producer was told that it is safe."""
        self._ends: dict[tuple[str, int], dict[int, int]] = {}
        """(topic, partition) -> broker -> where its log ended when it was last seen alive."""
        self._looked: dict[Any, tuple[Any, ...]] = {}
        """Replica -> all that the promises about it look at, as it was when they held."""
        self._broken = ""
        """What was found broken where nobody would hear of it."""
        self._coordinators = Coordinators(self.is_broken)

    def acknowledge(self, topic: str, partition: int, offset: int, copies: int = MIN_IN_SYNC) -> None:
        """A producer was told that it is safe: then it is on as many disks as were asked for.

        That of its leader alone promises less (`copies`: 1): another leader may never have heard of it.
        """
        key = topic, partition
        if copies >= MIN_IN_SYNC:
            self.acknowledged[key] = max(offset, self.acknowledged.get(key, -1))
        holders = [
            broker_id
            for broker_id, end in self._ends.get(key, {}).items()
            if end > offset and self._world.brokers[broker_id].keeps(topic, partition, offset)
        ]
        if len(holders) < copies:
            self.is_broken(f"{topic}-{partition}: offset {offset} is acknowledged, and only brokers {holders} have it")

    def is_broken(self, text: str) -> None:
        """After this turn the world ends."""
        self._world.simulation.next_look = 0.0
        self._broken = self._broken or text

    def compare_logs(self) -> None:
        """All replicas of a partition have the same bytes, as far as what was shown reaches, and whole indexes."""
        found: dict[tuple[str, int, int], tuple[int, bytes]] = {}
        for broker in self._world.brokers.values():
            for each in broker.all_logs():
                if each.topic not in COMPARED:
                    continue
                for segment in each.segments:
                    data = segment.file.read(segment.size, 0)
                    headers = list(segment.headers())
                    newest = max((header.max_timestamp for _, header in headers), default=-1)
                    if segment is not each.active_segment and segment.time_index.last_entry[0] != newest:
                        raise PromiseBroken(f"{broker.host}: {segment.place} is closed, its indexes end before it")
                    for position, header in headers:
                        key = each.topic, each.partition, header.base_offset
                        batch = data[position : position + header.size]
                        other, before = found.setdefault(key, (broker.broker_id, batch))
                        if batch != before and header.last_offset < each.high_watermark:
                            raise PromiseBroken(f"{key}: brokers {other} and {broker.broker_id} have different batches")

    def after_turn(self, machine: Machine) -> None:
        """Look at the machine that has just run, and now and then at all."""
        broker = self._world.machines.get(machine)
        if broker is not None and (replicas := broker.replicas) is not None:
            self._look_at(broker, replicas)
            self._coordinators.look_at(broker, replicas)
        if self._broken:
            raise PromiseBroken(self._broken)
        if self._world.simulation.now >= self._world.simulation.next_look:
            self._world.simulation.next_look = self._world.simulation.now + LOOK_S
            self._look_at_isrs()
            for each in self._world.brokers.values():
                each.check_controller()

    def _look_at(self, broker: SimulatedBroker, replicas: Any) -> None:
        """Its replicas are its life: one that could not be started is made anew in the same process."""
        life: Life = replicas
        self._obeys_no_older_controller(broker, life, replicas._leadership.controller_epoch)
        looked = self._looked
        for hosted in replicas.hosted.values():
            state = hosted.state
            now = (
                state.leader_epoch,
                state.role,
                state.isr,
                state.proposed_isr,
                state.min_insync_replicas,
                state.high_watermark,
                hosted.log.log_end_offset,
            )
            if looked.get(hosted) != now:
                looked[hosted] = now
                self._look_at_replica(broker, life, hosted)

    def _look_at_replica(self, broker: SimulatedBroker, life: Life, hosted: Any) -> None:
        """Look at what has changed."""
        state = hosted.state
        state.check()
        self._learns_no_older_epoch(broker, life, hosted)
        self._ends.setdefault((hosted.topic, hosted.partition), {})[broker.broker_id] = hosted.log.log_end_offset
        if state.role is Role.LEADER:
            key, epoch = (hosted.topic_id, hosted.partition), state.leader_epoch
            before = self._leaders.setdefault((*key, epoch), broker.broker_id)
            if before != broker.broker_id:
                raise PromiseBroken(f"{hosted!r}: {before} and {broker.broker_id} lead in epoch {epoch}")
            self._stands_still_with_too_few(hosted, life)
            self._rises(hosted.topic, (*key, "high watermark"), life, epoch, state.high_watermark)
            self._rises(hosted.topic, (*key, "last stable offset"), life, epoch, hosted.log.last_stable_offset)
        elif state.role is Role.FOLLOWER:
            self._writes_what_its_leader_has(broker, life, hosted)

    def _obeys_no_older_controller(self, broker: SimulatedBroker, life: Life, now: int) -> None:
        """What a broker has heard from a controller it takes from no earlier one."""
        before = self._obeyed.get(life, 0)
        if now < before:
            raise PromiseBroken(f"{broker.host} obeyed controller epoch {before}, then {now}")
        if now > before:
            self._obeyed[life] = now

    def _learns_no_older_epoch(self, broker: SimulatedBroker, life: Life, hosted: Any) -> None:
        """Whom a replica follows, or that it leads, is never what an earlier election said."""
        key, epoch = (broker.broker_id, hosted.topic_id, hosted.partition), hosted.state.leader_epoch
        before = self._epochs.get(key)
        if before is not None and before[0] is life and epoch < before[1]:
            raise PromiseBroken(f"{hosted!r}: {broker.host} went from leader epoch {before[1]} back to {epoch}")
        self._epochs[key] = life, epoch

    def _writes_what_its_leader_has(self, broker: SimulatedBroker, life: Life, hosted: Any) -> None:
        """Nobody but its leader adds to a follower's log."""
        key, end = (broker.broker_id, hosted.topic_id, hosted.partition), hosted.log.log_end_offset
        epoch = hosted.state.leader_epoch
        before = self._followed.get(key)
        if before is not None and before[:2] == (life, epoch) and end > before[2]:
            for other in self._world.brokers.values():
                for leading in other.hosted():
                    if (
                        leading.topic_id == hosted.topic_id
                        and leading.partition == hosted.partition
                        and leading.state.role is Role.LEADER
                        and leading.state.leader_epoch == epoch
                        and leading.log.log_end_offset < end
                    ):
                        raise PromiseBroken(f"{hosted!r}: a follower writes to {end}, and its leader ends before")
        self._followed[key] = life, epoch, end

    def _stands_still_with_too_few(self, hosted: Any, life: Life) -> None:
        """Nothing new is shown while fewer are in sync than the topic asks for."""
        state = hosted.state
        key, now = (hosted.topic_id, hosted.partition), (life, state.leader_epoch, state.has_enough_in_sync)
        before, watermark, end_before = self._shown.get(key, (None, 0, 0))
        end = hosted.log.log_end_offset
        if before == now and not state.has_enough_in_sync and hosted.topic in self._world.trial.topics:
            if state.high_watermark > watermark:
                raise PromiseBroken(f"{hosted!r}: the high watermark moves with {sorted(state.isr)} in sync")
            if end > end_before and not _was_sent_in_haste(hosted.log, end_before):
                raise PromiseBroken(f"{hosted!r}: appended to with {sorted(state.isr)} in sync")
        self._shown[key] = now, state.high_watermark, end

    def _rises(self, name: str, key: tuple[bytes, int, str], life: Life, epoch: int, now: int) -> None:
        """What a leader told others never goes back while it leads; one that was started anew has to learn it again."""
        before = self._seen.get(key)
        if before is not None and before[:2] == (life, epoch) and now < before[2]:
            raise PromiseBroken(f"{name}-{key[1]}: the {key[2]} of its leader went from {before[2]} to {now}")
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


def _was_sent_in_haste(log: Any, offset: int) -> bool:
    """Whether all from an offset on is of strangers who ask for their leader's word only: all others have an id."""
    found = (header for segment in log.segments for _, header in segment.headers(segment.find(offset)))
    return all(header.producer_id < 0 for header in found)
