"""The leader epochs of a log that is opened: what `leader-epoch-checkpoint` says, if the batches bear it out.

No checksum covers that file, and a recovery cuts what is of an older epoch than what lies before it: an epoch that a
damaged file makes up would cost batches that are whole, and a leader of a lower one could not append. Every batch
carries its epoch, so the last one shows whether the file can be right.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import BatchHeader
from kbroker.segment import checkpoints
from kbroker.segment.files import Files
from kbroker.segment.leader_epochs import LeaderEpochs
from kbroker.segment.log_segment import LogSegment

log = logging.getLogger(__name__)


def read_epochs(files: Files, path: str) -> LeaderEpochs:
    """What the file says; nothing when it is missing or damaged."""
    try:
        entries = tuple(checkpoints.read_leader_epochs(files, path))
    except checkpoints.MalformedCheckpoint as error:
        log.warning("%s; rebuilding it from the batches", error)
        return LeaderEpochs()
    if any(later[0] <= former[0] or later[1] <= former[1] for former, later in pairwise(entries)):
        log.warning("%s: its entries do not ascend; rebuilding it from the batches", path)
        return LeaderEpochs()
    return LeaderEpochs(entries)


def believe_or_rebuild(epochs: LeaderEpochs, segments: Sequence[LogSegment], start: int, folder: str) -> None:
    """Make the epochs anew from the batches of all these segments, where the last batch says another one than they.

    They say nothing of what lies below the log's start: where that is all there is, its last batch tells enough.
    """
    try:
        last = next(filter(None, (last_batch(each) for each in reversed(segments) if each.size)), None)
        if last is None or last[1].magic < 2:
            return
        header = last[1]
        if header.next_offset <= start:
            epochs.clear()
            note_epoch(epochs, header)
            return
        known = epochs.epoch_for_offset(max(header.base_offset, start))
        if known == header.partition_leader_epoch:
            return
        if epochs.entries:
            epoch = header.partition_leader_epoch
            log.warning("%s: leader epoch of offset %d is %d, not %d", folder, header.base_offset, epoch, known)
        epochs.clear()
        for segment in segments:
            for _, each in segment.headers():
                note_epoch(epochs, each)
    except KafkaError:
        return  # the segment's recovery, or whoever reads it, says what is wrong


def note_epoch(epochs: LeaderEpochs, header: BatchHeader) -> None:
    """Note a batch that lies behind all that were noted."""
    if header.partition_leader_epoch > epochs.latest_epoch:
        epochs.assign(header.partition_leader_epoch, header.base_offset)


def last_batch(segment: LogSegment) -> tuple[int, BatchHeader] | None:
    """Position and header of the last batch: from the last index entry on. Raises KafkaError CORRUPT_MESSAGE."""
    index, position, found = segment.index, 0, None
    if index.damage(segment.size) is None:
        position = index.lookup(index.last_offset, segment.size)[1]
    for each in segment.headers(position):
        found = each
    return found
