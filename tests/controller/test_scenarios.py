"""The transcripts of tests/scenarios: `>` lines are played, what follows must be what the machine does then.

    KBROKER_WRITE_SCENARIOS=1 pytest tests/controller/test_scenarios.py      writes the transcripts anew: read the diff

Commands: brokers 1 2 3 · elect 1 · topic t 1,2 2,1 · partitions t 1,2 2,1 2,1 · delete t · config t k=v · kill 2 ·
crash 1 (the controller) · start 2 · bounce 2 · shutdown 2 · lose 2 t-0 (a log directory) · alter t-0 1,2 (the ISR) ·
reassign t-0 2,3 · cancel t-0 · prefer · answers (the brokers answer until all is said) · conflict t-0 (the next write
meets a newer state)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.controller import events
from kbroker.controller.znodes import ReplicaAssignment, TopicAssignment, TopicPartition
from kbroker.protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from kbroker.protocol.messages.replication import AlterPartitionRequest, ControlledShutdownRequest
from tests.controller.play import Play

SCENARIOS = sorted((Path(__file__).parent.parent / "scenarios").glob("*.txt"))


class Script:
    """Plays one scenario's commands."""

    def __init__(self) -> None:
        self.play = Play()

    def run(self, line: str) -> str:
        name, *words = line.split()
        command: Callable[..., None] = getattr(self, name)
        command(*words)
        return self.play.text()

    def brokers(self, *ids: str) -> None:
        self.play = Play(tuple(map(int, ids)))

    def elect(self, broker_id: str) -> None:
        self.play.elect(int(broker_id))

    def topic(self, name: str, *replicas: str) -> None:
        self.play.create_topic(name, *map(_ids, replicas))
        self.play.tell_topics()

    def partitions(self, name: str, *replicas: str) -> None:
        assignment = {number: ReplicaAssignment(_ids(each)) for number, each in enumerate(replicas)}
        known = self.play.topics[name]
        self.play.topics[name] = TopicAssignment(known.topic_id, assignment, known.version + 1)
        self.play.tell(events.TopicsModified({name: self.play.topics[name]}))

    def delete(self, name: str) -> None:
        self.play.marked.add(name)
        self.play.tell_deletions()

    def config(self, name: str, setting: str) -> None:
        key, _, value = setting.partition("=")
        self.play.configs[name] = {key: value}

    def kill(self, broker_id: str) -> None:
        del self.play.brokers[int(broker_id)]
        self.play.tell_brokers()

    def crash(self, broker_id: str) -> None:
        """As `kill`, with nobody there to hear of it: the controller's own broker."""
        del self.play.brokers[int(broker_id)]

    def start(self, broker_id: str) -> None:
        self.play.register(int(broker_id))
        self.play.tell_brokers()

    bounce = start

    def shutdown(self, broker_id: str) -> None:
        broker = self.play.brokers[int(broker_id)]
        request = ControlledShutdownRequest(broker_id=broker.broker_id, broker_epoch=broker.epoch)
        self.play.tell(events.ControlledShutdownCalled(1, request, 3))

    def lose(self, broker_id: str, *partitions: str) -> None:
        self.play.lost_log_dirs[int(broker_id)] = set(map(_partition, partitions))
        self.play.tell(events.LogDirsFailed(frozenset({int(broker_id)})))

    def alter(self, partition: str, isr: str) -> None:
        where = _partition(partition)
        known = self.play.states[where]
        request = AlterPartitionRequest
        asked = request(
            broker_id=known.leader,
            broker_epoch=self.play.brokers[known.leader].epoch,
            topics=[
                request.TopicData(
                    topic_id=self.play.topics[where.topic].topic_id or b"",
                    partitions=[
                        request.PartitionData(
                            partition_index=where.partition,
                            leader_epoch=known.leader_epoch,
                            new_isr_with_epochs=[request.BrokerState(broker_id=each) for each in _ids(isr)],
                            partition_epoch=known.partition_epoch,
                        )
                    ],
                )
            ],
        )
        self.play.tell(events.AlterPartitionCalled(1, asked, 3))

    def reassign(self, partition: str, replicas: str) -> None:
        self._reassign(partition, list(_ids(replicas)))

    def cancel(self, partition: str) -> None:
        self._reassign(partition, None)

    def _reassign(self, partition: str, replicas: list[int] | None) -> None:
        where = _partition(partition)
        request = AlterPartitionReassignmentsRequest
        moved = request.ReassignablePartition(partition_index=where.partition, replicas=replicas)
        asked = request(topics=[request.ReassignableTopic(name=where.topic, partitions=[moved])])
        self.play.tell(events.ReassignmentsCalled(1, asked))

    def prefer(self) -> None:
        self.play.tell(events.RebalanceDue())

    def answers(self) -> None:
        self.play.answer_all()

    def conflict(self, partition: str) -> None:
        self.play.conflicts.add(_partition(partition))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def play_through(text: str) -> str:
    """The scenario with what really happens."""
    script = Script()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(("#", ">")) or not line.strip():
            if line.startswith(">") and lines and lines[-1] and not lines[-1].startswith((">", "#")):
                lines.append("")
            if line.strip():
                lines.append(line)
            if line.startswith(">"):
                happened = script.run(line[1:])
                if happened:
                    lines.append(happened)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_machine_does_what_the_transcript_says(path: Path) -> None:
    text = path.read_text()
    played = play_through(text)
    if os.environ.get("KBROKER_WRITE_SCENARIOS"):
        path.write_text(played)
    assert played == path.read_text()


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 10
