"""The idempotent producers of one log: asked before an append, told after it, brought back after a restart.

ProducerState holds the rules, ProducerSnapshots the files. Whoever changes something holds the log's lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import BatchHeader
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.producer_snapshots import ProducerSnapshots, recall
from kbroker.segment.producer_state import NOT_ASKED_FOR, CachedBatch, Marker, ProducerState, Verification

EXPIRATION_MS = 86_400_000
ERRORS_OF_UNKNOWN_REPEATS = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_TXN_STATE)


class LogProducers:
    """What a log asks about, and tells of, the producers of its batches."""

    __slots__ = ("expiration_ms", "state")

    def __init__(self, state: ProducerState | None = None, expiration_ms: int = EXPIRATION_MS) -> None:
        self.state = state or ProducerState()
        self.expiration_ms = expiration_ms
        """After so long a silence a producer is forgotten."""

    def check(
        self,
        header: BatchHeader,
        marker: Marker | None,
        from_client: bool,
        segments: Sequence[LogSegment],
        verified: Verification | None = NOT_ASKED_FOR,
    ) -> CachedBatch | None:
        """Refuse a batch that breaks its producer's order, or return the batch that it repeats.

        Raises KafkaError as ProducerState does. A sequence that seems out of order, or to begin a transaction, may be
        one of the last batches but one before a restart, which only the log knows.
        """
        try:
            repeated = self.state.check(header, from_client, verified)
        except KafkaError as error:
            entry = self.state.producers.get(header.producer_id)
            if error.code not in ERRORS_OF_UNKNOWN_REPEATS or entry is None or not entry.is_from_snapshot:
                raise
            recall(self.state, segments)
            repeated = self.state.check(header, from_client, verified)
        if marker is not None:
            self.state.check_marker(header, marker.coordinator_epoch)
        return repeated

    def note(
        self, header: BatchHeader, base_offset: int, max_timestamp: int, marker: Marker | None, segment: LogSegment
    ) -> None:
        """Note a batch that was appended to the segment, in whose transaction index an abort leaves an entry."""
        aborted = self.state.append(header, base_offset, max_timestamp, marker)
        if aborted is not None:
            segment.add_aborted(aborted)

    def newest_batches(self) -> dict[int, tuple[int, int]]:
        """Producer id -> last offset of its newest data batch (-1: only a marker is known), and its epoch."""
        return {
            entry.producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for entry in self.state.producers.values()
        }

    def remove_expired(self, steady_ms: int) -> None:
        """Forget producers that were silent for too long, by a clock that nobody sets."""
        self.state.remove_expired(steady_ms, self.expiration_ms)

    def rebuild(
        self, snapshots: ProducerSnapshots, segments: Sequence[LogSegment], log_start: int, end: int, now_ms: int
    ) -> None:
        """Bring the state to what it was when the log ended at `end`, where it ends from now on."""
        snapshots.remove_above(end)
        snapshots.rebuild(self.state, segments, log_start, end, now_ms, self.expiration_ms)
