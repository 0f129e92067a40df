"""The markers of transactions that end on partitions this broker leads itself: appended without a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.coordinator.marker_sender import Ending
from kbroker.coordinator.transaction import EPOCH_EACH
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.replica.appending import Outcome
from kbroker.replica.delayed import EachAnswer
from kbroker.segment.log import AppendOrigin
from kbroker.segment.producer_state import NOT_ASKED_FOR, OF_A_RAISED_EPOCH, Verification

if TYPE_CHECKING:
    from kbroker.replica.replica_manager import ReplicaManager

ALL_IN_SYNC = -1


class LocalMarkers:
    """Appends them."""

    def __init__(
        self, replicas: ReplicaManager, offsets_decided: Callable[[int, int, bool], None], timeout_ms: int
    ) -> None:
        """`offsets_decided(partition of __consumer_offsets, producer id, whether they count)` is told of those."""
        self._replicas = replicas
        self._offsets_decided = offsets_decided
        self._timeout_ms = timeout_ms
        self._last: _Markers | None = None

    def write_marker(self, ending: Ending, key: Key, done: Callable[[ErrorCode], None]) -> None:
        """Append a marker; `done` gets NONE when it is replicated: at once, or from the event loop."""
        replicas = self._replicas
        if replicas.is_leadership_unproven():
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        now_ms, markers = replicas.clock(), self._last
        if markers is None or not markers.are_of(ending, now_ms):
            markers = self._last = _Markers(replicas, ending, now_ms, self._offsets_decided, self._timeout_ms)
        markers.append(key, done)


class _Markers:
    """One transaction's of one moment: all have the same batch, and one answer is waited for."""

    def __init__(
        self,
        replicas: ReplicaManager,
        ending: Ending,
        now_ms: int,
        offsets_decided: Callable[[int, int, bool], None],
        timeout_ms: int,
    ) -> None:
        decision = ControlType.COMMIT if ending.is_commit else ControlType.ABORT
        producer = ending.producer_id, ending.producer_epoch
        self._batch = bytes(control_batch(decision, *producer, ending.coordinator_epoch, now_ms))
        self._brought = brought_by_marker(ending.transaction_version)
        self._append = replicas.append
        self._ending = ending
        self._now_ms = now_ms
        self._offsets_decided = offsets_decided
        self._answer = EachAnswer(timeout_ms, self._appended)
        self._waiting: dict[int, tuple[Key, Callable[[ErrorCode], None]]] = {}
        """By place in the answer."""

    def are_of(self, ending: Ending, now_ms: int) -> bool:
        """Whether another marker of that transaction may be one of these."""
        return ending is self._ending and now_ms == self._now_ms and not self._answer.is_over

    def append(self, key: Key, done: Callable[[ErrorCode], None]) -> None:
        """Append one more."""
        answer, place = self._answer, len(self._answer.results)
        self._waiting[place] = key, done
        batch = bytearray(self._batch)
        self._append(*key, batch, ALL_IN_SYNC, self._now_ms, answer, AppendOrigin.COORDINATOR, self._brought)
        answer.tell(place)

    def _appended(self, place: int, outcome: Outcome) -> None:
        (topic, partition), done = self._waiting.pop(place)
        error = outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE
        if error is ErrorCode.NONE and topic == OFFSETS_TOPIC:
            self._offsets_decided(partition, self._ending.producer_id, self._ending.is_commit)
        done(error)


def brought_by_marker(transaction_version: int) -> Verification:
    """What the append of a marker brings for the log to judge it by; `transaction_version` is that of its end."""
    return OF_A_RAISED_EPOCH if transaction_version >= EPOCH_EACH else NOT_ASKED_FOR
