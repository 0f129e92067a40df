"""Orders that go out: what the machine wants done (pure).

Some have a result, which comes back as an event of events.py; the procedure that gave the order waits for it, and the
runner takes no other event meanwhile. The rest is done at once and never fails.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from kbroker.controller.events import Result
from kbroker.controller.znodes import PartitionState, TopicAssignment, TopicPartition


@dataclass(frozen=True, slots=True)
class CreatePartitionStates:
    """Make the state nodes of new partitions → PartitionStatesWritten."""

    states: dict[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class WritePartitionStates:
    """Replace state nodes that have the version in `partition_epoch` → PartitionStatesWritten."""

    states: dict[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class ReadPartitionStates:
    """Read state nodes → PartitionStatesRead."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReadTopics:
    """Read topics' nodes and watch them from now on → TopicsRead."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteTopics:
    """Replace topics' nodes that have the version in `version` → TopicsWritten."""

    topics: dict[str, TopicAssignment]


@dataclass(frozen=True, slots=True)
class ReadTopicConfigs:
    """Read topics' overrides → TopicConfigsRead."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopicNodes:
    """Remove everything of a topic, the mark for its deletion last; stop watching it → Done."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeleteNodes:
    """Remove nodes, whether or not they are there → Done."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetNode:
    """Replace a node's data, if it is there → Done."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Let the broker's other work run: a long procedure says so every few milliseconds → Done."""


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """Reach a broker at this address from now on."""

    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """A broker is gone: drop what waits for it."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Send:
    """Queue a request for a broker."""

    broker_id: int
    request: Any
    version: int


@dataclass(frozen=True, slots=True)
class ForgetTopics:
    """Stop watching topics that are gone."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a call."""

    call: int
    response: Any


WithResult = (
    CreatePartitionStates
    | WritePartitionStates
    | ReadPartitionStates
    | ReadTopics
    | WriteTopics
    | ReadTopicConfigs
    | DeleteTopicNodes
    | DeleteNodes
    | SetNode
    | Pause
)
Instruction = WithResult | OpenChannel | CloseChannel | Send | ForgetTopics | Answer

WITHOUT_RESULT = (OpenChannel, CloseChannel, Send, ForgetTopics, Answer)

T = TypeVar("T")
Steps = Generator[Instruction, Any, T]
"""A procedure: it yields instructions, is sent the results of those that have one, and returns a T."""

__all__ = ["Instruction", "Result", "Steps", "WithResult"]
