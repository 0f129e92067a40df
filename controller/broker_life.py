"""Brokers that come, go, come back, lose a disk or want to stop (procedures, pure)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from kbroker.controller.election import Strategy
from kbroker.controller.instructions import CloseChannel, OpenChannel, Pause, Steps
from kbroker.controller.pacing import PARTITIONS_PER_PAUSE, chosen, portions
from kbroker.controller.reassignment import Reassignment
from kbroker.controller.state import ControllerState, PartitionStatus, Replica, ReplicaStatus
from kbroker.controller.topic_deletion import TopicDeletion
from kbroker.controller.transitions import Transitions
from kbroker.controller.wording import count, few
from kbroker.controller.znodes import NO_LEADER, BrokerRegistration, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import ControlledShutdownRequest, ControlledShutdownResponse

log = logging.getLogger(__name__)

LEFT_AT_ONCE = 50
"""Partitions that a stopping broker leaves in one round (of few brokers): a write to them waits until it is done."""


@dataclass(slots=True)
class BrokerLife:
    """What becomes of partitions when brokers change."""

    do: Transitions
    deletion: TopicDeletion
    reassignment: Reassignment
    left_out: set[tuple[int, int]] = field(default_factory=set)
    """Id and epoch of brokers that nobody can reach: said once."""

    def reachable(self, registered: dict[int, BrokerRegistration]) -> dict[int, BrokerRegistration]:
        """Those with the listeners that we and the other brokers use; the rest could neither be told nor followed."""
        config = self.do.config
        needed = dict.fromkeys((config.listener_name, config.inter_broker_listener_name))
        brokers = {}
        for broker_id, broker in registered.items():
            missing = [name for name in needed if broker.endpoint(name) is None]
            if not missing:
                brokers[broker_id] = broker
            elif (broker_id, broker.epoch) not in self.left_out:
                self.left_out.add((broker_id, broker.epoch))
                text = "broker %d has no listener %s: it counts as away until it has one like the other brokers"
                log.error(text, broker_id, " and no ".join(missing))
        return brokers

    def listed(self, registered: dict[int, BrokerRegistration]) -> Steps[None]:
        """Compare with who was there: a known id with a new epoch has bounced, which is dying and starting."""
        brokers = self.reachable(registered)
        known = self.do.state.brokers
        bounced = {each for each in brokers if each in known and brokers[each].epoch > known[each].epoch}
        new = set(brokers) - set(known)
        dead = set(known) - set(brokers)
        changed = {
            each for each in set(brokers) & set(known) - bounced if _manners(brokers[each]) != _manners(known[each])
        }
        if new or dead or bounced:
            text = "brokers gone: %s; started: %s; back with a new session: %s"
            log.info(text, *(few(sorted(each)) or "-" for each in (dead, new, bounced)))
        if dead or bounced:
            yield from self._remove(dead | bounced)
        if new or bounced:
            yield from self._add({each: brokers[each] for each in sorted(new | bounced)})
        if changed:
            yield from self._modify({each: brokers[each] for each in sorted(changed)})

    # --- start ---

    def open_channel(self, broker: BrokerRegistration) -> Steps[None]:
        """Reach the broker on the controller's listener."""
        endpoint = broker.endpoint(self.do.config.listener_name)
        assert endpoint is not None, f"broker {broker.broker_id} cannot be reached"
        yield OpenChannel(broker.broker_id, endpoint.host, endpoint.port)

    def _add(self, started: dict[int, BrokerRegistration]) -> Steps[None]:
        state = self.do.state
        existing = set(state.brokers)
        for broker in started.values():
            state.brokers[broker.broker_id] = broker
            state.offline_partitions.pop(broker.broker_id, None)
            yield from self.open_channel(broker)
        if existing:
            yield from self.do.tell_metadata(broker_ids=existing)
        # Topics that are going too: a broker that runs on in a new session may still believe in them.
        yield from self.do.tell_metadata(state.partitions(), broker_ids=started)
        replicas = state.replicas_on(started)
        yield Pause()
        staying = yield from chosen(replicas, self._is_staying)
        yield from self.do.move_replicas(staying, ReplicaStatus.ONLINE)
        yield from self.do.elect_leaderless()
        moving = [
            each
            for each in sorted(state.reassigning)
            if (assignment := state.assignment(each)) is not None and set(assignment.target) & set(started)
        ]
        yield from self.reassignment.resume(moving)
        yield from self.deletion.resume_for({each[0].topic for each in replicas})

    def tell_anew(self, broker_id: int) -> Steps[None]:
        """Some of what a broker was to be told was dropped: everything it has to know."""
        state = self.do.state
        if broker_id not in state.brokers:
            return
        log.warning("broker %d has not heard us for long: it is told everything anew", broker_id)
        yield from self.do.tell_metadata(state.partitions(), broker_ids=(broker_id,))
        replicas = state.replicas_on((broker_id,))
        if state.is_live(broker_id):
            batch = self.do.batch()
            for replica in (yield from chosen(replicas, self._is_staying)):
                is_new = state.replica_state(replica) is ReplicaStatus.NEW
                batch.tell_leader_and_isr((broker_id,), replica[0], is_new=is_new)
            yield from batch.send()
        started = (ReplicaStatus.DELETION_STARTED,)
        deleting = yield from chosen(replicas, lambda each: state.replica_state(each) in started)
        yield from self.deletion.fail_replicas(deleting)
        yield from self.deletion.resume_for({each[0].topic for each in deleting})

    def _modify(self, changed: dict[int, BrokerRegistration]) -> Steps[None]:
        """Other listeners: the channel moves with them, everybody's metadata too."""
        for broker in changed.values():
            previous = self.do.state.brokers[broker.broker_id]
            self.do.state.brokers[broker.broker_id] = broker
            listener = self.do.config.listener_name
            if broker.endpoint(listener) != previous.endpoint(listener):
                yield from self.open_channel(broker)
        yield from self.do.tell_metadata()

    # --- failure ---

    def _remove(self, gone: set[int]) -> Steps[None]:
        state = self.do.state
        for broker_id in sorted(gone):
            state.brokers.pop(broker_id)
            state.shutting_down.discard(broker_id)
            state.offline_partitions.pop(broker_id, None)
            yield CloseChannel(broker_id)
        replicas = state.replicas_on(gone)
        yield Pause()
        yield from self.replicas_offline(replicas)

    def replicas_offline(self, replicas: Iterable[Replica]) -> Steps[None]:
        """New leaders for what these replicas led, smaller ISRs for the rest."""
        state = self.do.state
        offline = yield from chosen(replicas, lambda each: state.replica_state(each) is not ReplicaStatus.NON_EXISTENT)
        deleting = yield from chosen(offline, lambda each: state.is_going(each[0].topic))
        staying = yield from chosen(offline, self._is_staying)
        leaderless = yield from chosen(dict.fromkeys(each[0] for each in staying), self._has_lost_its_leader)
        for portion in portions(leaderless, PARTITIONS_PER_PAUSE):
            self.do.set_partition_status(portion, PartitionStatus.OFFLINE)
            yield Pause()
        yield from self.do.elect_leaderless()
        yield from self.do.move_replicas(staying, ReplicaStatus.OFFLINE)
        yield from self.deletion.fail_replicas(deleting)
        if not leaderless:
            yield from self.do.tell_metadata()

    def _is_staying(self, replica: Replica) -> bool:
        state = self.do.state
        exists = state.replica_state(replica) is not ReplicaStatus.NON_EXISTENT
        return exists and not state.is_going(replica[0].topic)

    def _has_lost_its_leader(self, partition: TopicPartition) -> bool:
        state = self.do.state
        known = state.leadership.get(partition)
        if known is None or known.leader == NO_LEADER or state.is_online(known.leader, partition):
            return False
        return state.status(partition) is not PartitionStatus.NON_EXISTENT

    # --- log directories ---

    def log_dirs_failed(self, broker_ids: Iterable[int]) -> Steps[None]:
        """Ask these brokers about all their replicas: LeaderAndIsr's answer says which are offline."""
        state = self.do.state
        replicas = state.replicas_on(each for each in broker_ids if each in state.brokers)
        askable = yield from chosen(replicas, lambda each: not state.is_going(each[0].topic))
        yield from self.do.move_replicas(askable, ReplicaStatus.ONLINE)

    def leader_and_isr_answered(self, broker_id: int, response: Any) -> Steps[None]:
        """Keep book of the partitions a broker can't serve from its disks; new ones go offline."""
        state = self.do.state
        if response.error_code != ErrorCode.NONE:
            log.warning("broker %d refused LeaderAndIsr: error %d", broker_id, response.error_code)
            return
        before = state.offline_partitions.get(broker_id, set())
        lost, well = _storage_of(state, response, before)
        now = (before - well) | {each for each in lost if state.assignment(each) is not None}
        if now:
            state.offline_partitions[broker_id] = now
        else:
            state.offline_partitions.pop(broker_id, None)
        newly_lost = sorted(now - before)
        if newly_lost:
            lost_text = count(len(newly_lost), "partition")
            log.warning("broker %d lost %s with a log directory: %s", broker_id, lost_text, few(newly_lost))
            yield from self.replicas_offline((each, broker_id) for each in newly_lost)

    # --- controlled shutdown ---

    def shut_down(self, request: ControlledShutdownRequest, version: int) -> Steps[ControlledShutdownResponse]:
        """Move leadership away from a broker that wants to stop, and take it out of the ISRs."""
        state = self.do.state
        broker = state.brokers.get(request.broker_id)
        has_epoch = version >= 2 and request.broker_epoch != -1
        if broker is None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR if has_epoch else ErrorCode.BROKER_NOT_AVAILABLE
            return ControlledShutdownResponse(error_code=code, remaining_partitions=[])
        if has_epoch and request.broker_epoch < broker.epoch:
            return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, remaining_partitions=[])
        log.info("broker %d is about to stop", request.broker_id)
        state.shutting_down.add(request.broker_id)
        concerned = yield from chosen(state.partitions_on(request.broker_id), self._can_move)
        led = yield from chosen(concerned, lambda each: state.leadership[each].leader == request.broker_id)
        followed = yield from chosen(concerned, lambda each: state.leadership[each].leader != request.broker_id)
        yield from self.do.bring_online(led, Strategy.CONTROLLED_SHUTDOWN, at_once=LEFT_AT_ONCE)
        # Stopped before the ISR shrinks, so that the follower isn't taken back in.
        following = [(each, request.broker_id) for each in followed]
        yield from self.do.move_replicas(following, ReplicaStatus.OFFLINE, at_once=LEFT_AT_ONCE, stop_first=True)
        remaining = [each for each in led if state.leadership[each].leader == request.broker_id]
        return ControlledShutdownResponse(
            error_code=ErrorCode.NONE,
            remaining_partitions=[
                ControlledShutdownResponse.RemainingPartition(topic_name=each.topic, partition_index=each.partition)
                for each in remaining
            ],
        )

    def _can_move(self, partition: TopicPartition) -> bool:
        state = self.do.state
        has_others = len(state.replicas(partition)) > 1
        return has_others and partition in state.leadership and state.is_elected(partition)


def _storage_of(
    state: ControllerState, response: Any, lost_before: Collection[TopicPartition]
) -> tuple[set[TopicPartition], set[TopicPartition]]:
    """Partitions that the broker cannot serve from its disks, and those that were lost and that it serves again."""
    lost: set[TopicPartition] = set()
    well: set[TopicPartition] = set()
    is_lost, is_well = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE
    for topic in response.topics:
        for each in topic.partition_errors:
            if each.error_code == is_lost or (lost_before and each.error_code == is_well):
                name = state.topic_name(bytes(topic.topic_id)) or ""
                (lost if each.error_code == is_lost else well).add(TopicPartition(name, each.partition_index))
    return lost, well


def _manners(broker: BrokerRegistration) -> tuple[object, ...]:
    return broker.endpoints, broker.rack
