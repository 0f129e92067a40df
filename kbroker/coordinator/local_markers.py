"""The markers of transactions that end on partitions this broker leads itself: appended without a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.coordinator.marker_sender import Ending, Key
from kbroker.coordinator.transaction import EPOCH_EACH
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.log import AppendOrigin, AppendResult
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
        self._last: tuple[object, bytes] = None, b""
        """What the last marker said and when, and its batch: another partition's is the same."""

    def write_marker(self, ending: Ending, key: Key, done: Callable[[ErrorCode], None]) -> None:
        """Append a marker; `done` gets NONE when it is replicated: at once, or from the event loop."""
        replicas = self._replicas
        if replicas.is_leadership_unproven():
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        topic, partition = key
        batch = self._batch(ending)

        def appended(outcome: AppendResult | KafkaError) -> None:
            error = outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE
            if error is ErrorCode.NONE and topic == OFFSETS_TOPIC:
                self._offsets_decided(partition, ending.producer_id, ending.is_commit)
            done(error)

        brought = brought_by_marker(ending.transaction_version)
        replicas.append_then(
            topic, partition, batch, ALL_IN_SYNC, self._timeout_ms, AppendOrigin.COORDINATOR, appended, brought
        )

    def _batch(self, ending: Ending) -> bytearray:
        decision = ControlType.COMMIT if ending.is_commit else ControlType.ABORT
        said = decision, ending.producer_id, ending.producer_epoch, ending.coordinator_epoch, self._replicas.clock()
        if said != self._last[0]:
            self._last = said, bytes(control_batch(*said))
        return bytearray(self._last[1])


def brought_by_marker(transaction_version: int) -> Verification:
    """What the append of a marker brings for the log to judge it by; `transaction_version` is that of its end."""
    return OF_A_RAISED_EPOCH if transaction_version >= EPOCH_EACH else NOT_ASKED_FOR
