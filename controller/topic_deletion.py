"""Deleting topics, also when a broker is away (procedures, pure).

A topic is deleted once every replica has confirmed it: partitions leave the metadata, live replicas are stopped and
deleted, and only then do the znodes go. A dead broker's replica makes the topic ineligible until the broker is back;
so does a reassignment until it is over.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from kbroker.controller import znodes
from kbroker.controller.instructions import DeleteNodes, DeleteTopicNodes, ForgetTopics, Pause, Steps
from kbroker.controller.pacing import chosen
from kbroker.controller.state import PartitionStatus, Replica, ReplicaStatus
from kbroker.controller.transitions import Transitions
from kbroker.controller.wording import count, few
from kbroker.controller.znodes import TopicPartition
from kbroker.protocol.errors import ErrorCode

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TopicDeletion:
    """The topics to delete and how far each has got; all of it is in the state."""

    do: Transitions

    def ask(self, names: Iterable[str]) -> Steps[None]:
        """Topics were marked. Unknown ones, and all when deletion is turned off, lose the mark again."""
        state = self.do.state
        wanted = sorted(names)
        refused = [name for name in wanted if name not in state.assignments or not self.do.config.delete_topic_enable]
        if refused:
            yield DeleteNodes(tuple(znodes.delete_topic_path(name) for name in refused))
        accepted = [name for name in wanted if name not in refused and name not in state.topics_to_delete]
        if not accepted:
            return
        log.info("deleting %s: %s", count(len(accepted), "topic"), few(accepted))
        state.topics_to_delete.update(accepted)
        state.deletion_ineligible.update({each.topic for each in state.reassigning} & set(accepted))
        yield from self.resume(accepted)

    def resume_for(self, topics: Iterable[str]) -> Steps[None]:
        """What kept these topics from being deleted may be over; a reassignment that still runs is not."""
        moving = {each.topic for each in self.do.state.reassigning}
        waiting = set(topics) & self.do.state.topics_to_delete - moving
        if waiting:
            self.do.state.deletion_ineligible -= waiting
            yield from self.resume(waiting)

    def mark_ineligible(self, topics: Iterable[str]) -> None:
        """These topics' deletion has to wait."""
        self.do.state.deletion_ineligible.update(set(topics) & self.do.state.topics_to_delete)

    def fail_replicas(self, replicas: Iterable[Replica]) -> Steps[None]:
        """Replicas that could not be deleted, or whose broker died meanwhile."""
        state = self.do.state
        failed = [each for each in replicas if state.is_going(each[0].topic)]
        if not failed:
            return
        movable = [
            each
            for each in failed
            if state.replica_state(each) in (ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED)
        ]
        yield from self.do.move_replicas(movable, ReplicaStatus.DELETION_INELIGIBLE)
        self.mark_ineligible(each[0].topic for each in failed)
        yield from self.resume({each[0].topic for each in failed})

    def stop_replica_answered(self, broker_id: int, request: Any, response: Any) -> Steps[None]:
        """A broker's word on replicas it was to delete."""
        state = self.do.state
        asked = {
            TopicPartition(topic.topic_name, each.partition_index)
            for topic in request.topic_states
            for each in topic.partition_states
            if each.delete_partition
        }
        asked = {each for each in asked if state.replica_state((each, broker_id)) is ReplicaStatus.DELETION_STARTED}
        if not asked:
            return
        if response.error_code:
            failed = asked
        else:
            failed = {
                TopicPartition(each.topic_name, each.partition_index)
                for each in response.partition_errors
                if each.error_code != ErrorCode.NONE
            } & asked
        deleted = sorted(asked - failed)
        yield from self.fail_replicas((each, broker_id) for each in sorted(failed))
        yield from self.do.move_replicas([(each, broker_id) for each in deleted], ReplicaStatus.DELETION_SUCCESSFUL)
        yield from self.resume({each.topic for each in asked})

    def resume(self, topics: Collection[str]) -> Steps[None]:
        """Take each of the topics as far as it can go now."""
        state = self.do.state
        eligible = []
        for topic in sorted(state.topics_to_delete.intersection(topics)):
            yield Pause()
            states = {state.replica_state(each) for each in state.replicas_of(topic)}
            if states == {ReplicaStatus.DELETION_SUCCESSFUL}:
                yield from self._complete(topic)
                continue
            if ReplicaStatus.DELETION_STARTED in states or topic in state.deletion_ineligible:
                continue
            if ReplicaStatus.DELETION_INELIGIBLE in states:
                again = [
                    each
                    for each in state.replicas_of(topic)
                    if state.replica_state(each) is ReplicaStatus.DELETION_INELIGIBLE
                ]
                yield from self.do.move_replicas(again, ReplicaStatus.OFFLINE)
            eligible.append(topic)
        if eligible:
            yield from self._begin(eligible)

    def _begin(self, topics: list[str]) -> Steps[None]:
        """Take the topics out of everybody's metadata, then have their replicas deleted."""
        state = self.do.state
        unseen = [topic for topic in topics if topic not in state.deletion_started]
        for topic in unseen:
            partitions = state.partitions_of(topic)
            alive = [each for each in partitions if state.status(each) is not PartitionStatus.NON_EXISTENT]
            self.do.set_partition_status(alive, PartitionStatus.OFFLINE)
            self.do.set_partition_status(alive, PartitionStatus.NON_EXISTENT)
            yield Pause()
        state.deletion_started.update(unseen)
        yield from self.do.tell_metadata(each for topic in topics for each in state.partitions_of(topic))
        yield from self._delete_replicas(topics)

    def _delete_replicas(self, topics: list[str]) -> Steps[None]:
        state = self.do.state
        left: list[Replica] = []
        for topic in topics:
            replicas = state.replicas_of(topic)
            left += [each for each in replicas if state.replica_state(each) is not ReplicaStatus.DELETION_SUCCESSFUL]
            yield Pause()
        dead = yield from chosen(left, lambda each: not state.is_online(each[1], each[0]))
        live = yield from chosen(left, lambda each: state.is_online(each[1], each[0]))
        not_offline = yield from chosen(dead, lambda each: state.replica_state(each) is not ReplicaStatus.OFFLINE)
        yield from self.do.move_replicas(not_offline, ReplicaStatus.OFFLINE)
        yield from self.do.move_replicas(dead, ReplicaStatus.DELETION_INELIGIBLE)
        yield from self.do.move_replicas(live, ReplicaStatus.OFFLINE)
        yield from self.do.move_replicas(live, ReplicaStatus.DELETION_STARTED)
        if dead:
            topics_waiting = sorted({each[0].topic for each in dead})
            log.info("deletion waits for brokers that are away: %s", few(topics_waiting))
            self.mark_ineligible(topics_waiting)

    def _complete(self, topic: str) -> Steps[None]:
        yield ForgetTopics((topic,))
        yield DeleteTopicNodes(topic)
        self.do.state.remove_topic(topic)
        log.info("topic %s is deleted", topic)
