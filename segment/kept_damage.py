"""New indexes for a segment that was whole on disk once and is damaged now: they lead around what is damaged.

What lies below the recovery point no crash has torn: what is damaged there has rotted. To cut it, as recovery does with
what was being written, would take all whole batches behind it, too. So it stays, is refused to readers, and mended from
another replica (replica/segment_mender.py). Kafka cuts the rest of that segment and goes on behind the gap.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import BatchHeader, verify_crc
from kbroker.segment.log_config import MAX_LONG
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET
from kbroker.segment.producer_snapshots import replay
from kbroker.segment.producer_state import ProducerState

log = logging.getLogger(__name__)


def has_impossible_transactions(segment: LogSegment) -> bool:
    """Whether its transaction index cannot be used as it is."""
    try:
        segment.transaction_index()
    except ValueError as error:
        log.warning("%s; the segment is recovered", error)
        return True
    return False


def must_keep(segment: LogSegment, following: LogSegment | None) -> bool:
    """Whether a segment that was whole on disk is damaged, and it is known where the log goes on.

    Not where it holds offsets that its indexes cannot: such a segment is split.
    """
    is_damaged, reached = False, 0
    with suppress(KafkaError):
        for position, header, is_good in batches(segment, _end(following)):
            if is_good and _last_offset(header) > segment.base_offset + MAX_RELATIVE_OFFSET:
                return False
            is_damaged |= not is_good
            reached = position + header.size
    if following is None:
        return is_damaged and reached == segment.size
    return is_damaged or reached != segment.size


def index_around(segment: LogSegment, following: LogSegment | None) -> None:
    """Fill the offset and the time index of such a segment from its good batches."""
    log.warning("%s: it is damaged and stays as it is; its indexes are made again", segment.place)
    segment.reset_indexes()
    with suppress(KafkaError):  # behind a header that cannot be read nothing is found until it is mended
        for position, header, is_good in batches(segment, _end(following)):
            if is_good:
                segment.note_batch(header, position)
    segment.seal()


def find_aborted_around(segment: LogSegment, following: LogSegment | None, state: ProducerState) -> None:
    """Make the transaction index of such a segment again. `state`: of the producers where it begins.

    A damaged data batch counts for the transaction that it says: rather too much of it is aborted.
    """
    log.warning("%s: it is damaged and stays as it is; its aborted transactions are looked up anew", segment.place)
    segment.reset_transactions()
    with suppress(KafkaError):
        for position, header, is_good in batches(segment, _end(following)):
            aborted = replay(state, header, segment, position) if is_good or not header.is_control else None
            if aborted is not None:
                segment.add_aborted(aborted)


def _end(following: LogSegment | None) -> int:
    return MAX_LONG if following is None else following.base_offset


def batches(segment: LogSegment, below: int) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Position, header and whether it is good, of each batch that headers lead to. Raises KafkaError CORRUPT_MESSAGE.

    No checksum covers base offsets: they ascend, and stay below where the next segment begins.
    """
    floor = segment.base_offset
    for position, header in segment.headers():
        if position + header.size > segment.size:
            return
        first = header.base_offset if header.magic == 2 else floor  # old messages tell their last offset alone
        last = _last_offset(header)
        is_good = floor <= first <= last < below and verify_crc(segment.read_batch(position, header), 0, header.size)
        if is_good:
            floor = last + 1
        yield position, header, is_good


def _last_offset(header: BatchHeader) -> int:
    return header.last_offset if header.magic == 2 else header.base_offset
