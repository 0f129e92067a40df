"""Leader epochs of batches as a recovery meets them: they never fall, and no checksum covers them.

Where one falls, either a truncation came to the disk in part (what lies behind the newer batches was cut off once, and
goes again), or the field of one batch is damaged. They can be told apart, as what was cut off

- is never of an older epoch than what the truncation has kept,
- never has newer batches behind it,
- lies behind batches of a leader who wrote there: several, or one of which the checkpoint of epochs knows.

So one batch alone that nobody knows of and that says more than both its neighbours is damaged, and so is one that says
less than both. It gets the epoch of its neighbours: all that it says else is under its checksum.
"""

from __future__ import annotations

import logging

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import BatchHeader
from kbroker.segment.leader_epochs import Entries, LeaderEpochs
from kbroker.segment.log_segment import LogSegment

log = logging.getLogger(__name__)

_EPOCH_AT = 12
"""Where a batch has its leader epoch."""


class EpochOrder:
    """What was met so far."""

    def __init__(self, epochs: LeaderEpochs, checkpoint: Entries) -> None:
        self.epochs = epochs
        self._known = {start: epoch for epoch, start in checkpoint}
        """First offset -> leader epoch, as the file has them."""
        self._lone: tuple[LogSegment, int, BatchHeader, Entries] | None = None
        """The one batch of the latest epoch, where it lies, and the epochs before it; None: more shows it."""

    def note(self, segment: LogSegment, position: int, header: BatchHeader) -> None:
        """A good batch lies there."""
        epoch, before = header.partition_leader_epoch, self.epochs.entries
        if epoch > self.epochs.latest_epoch:
            self.epochs.assign(epoch, header.base_offset)
            is_known = self._known.get(header.base_offset) == epoch
            self._lone = None if is_known else (segment, position, header, before)
        elif epoch == self.epochs.latest_epoch:
            self._lone = None

    def is_left_over(
        self, segment: LogSegment, position: int, header: BatchHeader, following: LogSegment | None
    ) -> bool:
        """Whether a good batch, and all behind it, was cut off once; where the epoch of one is wrong it is mended."""
        epoch, latest = header.partition_leader_epoch, self.epochs.latest_epoch
        if not 0 <= epoch < latest:
            return False
        entries = self.epochs.entries
        before = entries[-2][0] if len(entries) > 1 else -1
        behind = _epoch_at(segment, position + header.size)
        if behind < 0 and following is not None:
            behind = _epoch_at(following, 0)
        if behind >= latest or (behind < 0 and epoch < before):
            _mend(segment, position, header, latest)
            return False
        if self._lone is None or epoch < before:
            return True
        self._withdraw(epoch)
        return False

    def _withdraw(self, epoch: int) -> None:
        """The batch of the latest epoch is not of it: those around it are of lower ones."""
        assert self._lone is not None
        segment, position, header, before = self._lone
        lowest = before[-1][0] if before else epoch
        known = self._known.get(header.base_offset, lowest)
        _mend(segment, position, header, known if lowest <= known <= epoch else lowest)
        self.epochs.restore(before)
        self._lone = None
        self.note(segment, position, segment.header_at(position))


def _epoch_at(segment: LogSegment, position: int) -> int:
    """Leader epoch of the batch at a position, -1 when there is none, or none that can be read."""
    try:
        return segment.header_at(position).partition_leader_epoch if position < segment.size else -1
    except KafkaError:
        return -1


def _mend(segment: LogSegment, position: int, header: BatchHeader, epoch: int) -> None:
    log.warning(
        "%s: the batch at offset %d said leader epoch %d, which does not fit those around it: it is of %d",
        segment.place,
        header.base_offset,
        header.partition_leader_epoch,
        epoch,
    )
    segment.file.write(epoch.to_bytes(4), position + _EPOCH_AT)
