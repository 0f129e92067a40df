"""Aborted transactions that a segment's index (`.txnindex`) has lost: noticed by their markers, and entered again.

An index that is gone, emptied or shortened by whole entries looks like that of a segment where less was aborted, and no
checksum covers it. Believed, readers get aborted records as committed ones, and compaction removes committed ones in
their favour. So whoever reads batches anyway, compaction and the scrubber, holds the ABORT markers against it.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from kbroker.protocol.records.batch import BatchHeader
from kbroker.protocol.records.control import ControlType
from kbroker.protocol.records.errors import InvalidRecord
from kbroker.segment.files import Buffer
from kbroker.segment.log import Log
from kbroker.segment.log_producers import EXPIRATION_MS
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.producer_snapshots import replay
from kbroker.segment.producer_state import ProducerState, marker_of

log = logging.getLogger(__name__)


class AbortMarkers:
    """Those that end transactions with data, of batches given in the order of offsets. (Pure.)"""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self._with_data: set[int] = set()
        """Producers in a transaction."""

    def take(self, header: BatchHeader, buffer: Buffer, position: int) -> None:
        """Look at the batch that lies at a position of the buffer."""
        if not header.is_transactional:
            return
        if not header.is_control:
            self._with_data.add(header.producer_id)
            return
        marker = None
        with suppress(InvalidRecord):
            marker = marker_of(header, buffer, position)
        if marker is None or header.producer_id not in self._with_data:
            return
        self._with_data.remove(header.producer_id)
        if marker.control_type is ControlType.ABORT:
            self.offsets.append(header.last_offset)

    def are_all_in_index(self, segment: LogSegment) -> bool:
        """Whether the segment's index has them."""
        if not self.offsets:
            return True
        index = segment.transaction_index()
        return index is not None and {each.last_offset for each in index.entries}.issuperset(self.offsets)


def enter_lost_aborts(owner: Log, segment: LogSegment) -> int:
    """Look up what was aborted in a segment, and enter what its index lacks; how many. Blocks.

    Raises KafkaError where the log is damaged, and where its disk fails.
    """
    truncations, state = owner.truncations, ProducerState()
    segments = owner.segments
    first = segments[0].base_offset  # not where the log starts: compaction meets what lies before that, too
    owner.disk.snapshots.rebuild(state, segments, first, segment.base_offset, 0, EXPIRATION_MS)
    replayed = (replay(state, header, segment, position) for position, header in segment.headers())
    aborted = [each for each in replayed if each is not None]
    if not aborted:
        return 0
    with owner.changing("enter aborted transactions"):
        if owner.truncations != truncations or segment not in owner.segments:
            return 0
        index = segment.transaction_index(create=True)
        assert index is not None
        count = index.enter(aborted)
        segment.pool.files.sync_folder(segment.folder.path)
    if count:
        text = (
            "%s: its transaction index lacked %d aborted transaction(s), whose records read as committed: entered again"
        )
        log.error(text, segment.place, count)
    return count
