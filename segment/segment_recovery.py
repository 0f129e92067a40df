"""What a crash has left of one segment: its batches are read from the first one on, up to the first that is not good.

What is good is noted in the indexes, the leader epochs and the producers' state; the rest is cut (but for what lies too
far behind the first offset to be indexed, recovery.py splits the segment there).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import HEADER_SIZE, BatchHeader, verify_crc
from kbroker.protocol.records.message_set import has_header, messages, read_any_header
from kbroker.segment.behind_damage import end_behind_damage, first_epoch
from kbroker.segment.leader_epochs import LeaderEpochs
from kbroker.segment.log_config import MAX_LONG
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET
from kbroker.segment.producer_snapshots import replay
from kbroker.segment.producer_state import ProducerState

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 20


class Recovered(NamedTuple):
    """What the recovery of a segment came to."""

    end: int
    """The offset behind its last batch."""
    cut_bytes: int = 0
    """Damaged ones."""
    overflow: int | None = None
    """Position of the first batch whose offset lies too far from the base offset to be indexed: nothing was cut yet."""
    had_up_to: int = 0
    """Exclusive; what lay behind the damage, 0 if nothing did."""


def recover_segment(
    segment: LogSegment,
    epochs: LeaderEpochs,
    state: ProducerState,
    following: LogSegment | None = None,
    sure_up_to: int = MAX_LONG,
    known_up_to: int = 0,
) -> Recovered:
    """Scan a segment whose indexes were begun anew from its first byte, fill them, cut what is damaged.

    `following`: the next segment, None for the last one. From offset `sure_up_to` on a truncation may be half done;
    up to `known_up_to` the log had records, by what checkpoints say.
    """
    limits = _Limits(sure_up_to=sure_up_to, known_up_to=known_up_to)
    if following is not None:
        limits = limits._replace(following=following.base_offset, following_epoch=first_epoch(following))
    position, end, why, overflows = _scan(segment, epochs, state, limits)
    if overflows:
        return Recovered(end, overflow=position)
    cut, had_up_to = segment.size - position, 0
    if cut:
        reason = why or f"the next segment begins at offset {limits.following}"
        log.warning("%s: cut %d bytes from position %d on: %s", segment.place, cut, position, reason)
        had_up_to = end_behind_damage(segment, position, end, epochs.latest_epoch)
        segment.cut(position)
    segment.seal()
    segment.trust_all()
    return Recovered(end, cut if why else 0, had_up_to=had_up_to)


class _Limits(NamedTuple):
    """What a segment's batches are held to."""

    following: int | None = None
    """Where the next segment begins."""
    following_epoch: int = -1
    """Leader epoch of its first batch, -1 when not known."""
    sure_up_to: int = MAX_LONG
    known_up_to: int = 0

    def belongs_behind(self, header: BatchHeader) -> bool:
        """Whether a batch is what a truncation has left, that did not reach the disk: the next segment is newer."""
        if self.following is None:
            return False
        last_offset = header.last_offset if header.magic == 2 else header.base_offset
        is_newer = 0 <= self.following_epoch < header.partition_leader_epoch and self.following >= self.sure_up_to
        return last_offset >= self.following and not is_newer

    def leaves_a_hole(self, header: BatchHeader, floor: int) -> bool:
        """Whether offsets would be missing between `floor` and the next segment: what a truncation left follows on.

        Messages of older formats are found by their last offset and tell nothing of it.
        """
        return header.magic == 2 and floor < header.base_offset and floor < (self.following or 0)

    def is_left_over(self, header: BatchHeader, latest_epoch: int) -> bool:
        """Whether it lies behind what was written over it: leader epochs never fall."""
        return header.base_offset >= self.sure_up_to and 0 <= header.partition_leader_epoch < latest_epoch


class _Scanned(NamedTuple):
    """How far the batches of a segment are good."""

    position: int
    """Of the first bad byte."""
    end: int
    """The offset behind the last good batch."""
    why: str
    """What is wrong there."""
    overflows: bool = False
    """Nothing but that it lies too far behind the first."""


def _scan(segment: LogSegment, epochs: LeaderEpochs, state: ProducerState, limits: _Limits) -> _Scanned:
    """Note every good batch.

    Checksums do not cover base offsets. Where a good batch's offset does not follow the one before, the wrong one is
    the one that left a gap before it, if any: so a batch behind a gap is noted when the next one has confirmed it. A
    gap too wide for the indexes is believed only if the next batch, the next segment, or a checkpoint confirms it.
    """
    position, end = 0, segment.base_offset
    floor = end
    """The least offset of what comes next; beyond `end` while a batch waits."""
    chunk, start = b"", 0
    waiting: tuple[BatchHeader, int] | None = None
    why = ""
    while position < segment.size:
        if position + HEADER_SIZE > start + len(chunk):
            chunk, start = segment.file.read(min(_READ_BYTES, segment.size - position), position), position
        header, why = _good_header(segment, chunk, position - start, position)
        if header is None:
            break
        if position + header.size > start + len(chunk):
            wanted = min(max(_READ_BYTES, header.size), segment.size - position)
            chunk, start = segment.file.read(wanted, position), position
        if not verify_crc(chunk, position - start, header.size):
            why = f"the batch at offset {header.base_offset} does not match its checksum"
            break
        if limits.belongs_behind(header):
            is_of_a_split = _is_too_far(segment, header) and header.base_offset == limits.following  # both are there
            if limits.leaves_a_hole(header, floor) and not is_of_a_split:
                why = f"offset {header.base_offset} follows {floor - 1}, the next segment begins at {limits.following}"
            break
        if limits.is_left_over(header, epochs.latest_epoch):
            why = (
                f"the batch at offset {header.base_offset} is of the older leader epoch {header.partition_leader_epoch}"
            )
            break
        if header.base_offset < floor or header.last_offset_delta < 0:
            why = f"offset {header.base_offset} follows {floor - 1}"
            if waiting is not None:
                return _Scanned(waiting[1], end, why)
            break
        if waiting is not None:
            if _is_too_far(segment, waiting[0]):
                return _Scanned(waiting[1], end, "", overflows=True)
            end = _note(segment, epochs, state, *waiting)
            waiting = None
        if header.base_offset > floor or _is_too_far(segment, header):
            waiting = header, position
        else:
            end = _note(segment, epochs, state, header, position)
        floor = header.next_offset
        position += header.size
    if waiting is not None:
        if _is_too_far(segment, waiting[0]):
            following = limits.following
            is_confirmed = waiting[0].last_offset < max(limits.known_up_to, following or 0) or (
                following is not None and first_offset_at(segment, waiting[1]) == following
            )  # the latter: a split that did not come to its end
            why = why or f"offset {waiting[0].base_offset} lies too far behind"
            return _Scanned(waiting[1], end, why, is_confirmed)
        end = _note(segment, epochs, state, *waiting)
    return _Scanned(position, end, why)


def _is_too_far(segment: LogSegment, header: BatchHeader) -> bool:
    return header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET


def first_offset_at(segment: LogSegment, position: int) -> int:
    """Offset of the first record of the batch, or message of old, at a position."""
    header = segment.header_at(position)
    if header.magic == 2:
        return header.base_offset
    return messages(segment.read_batch(position, header), 0, header.size)[0].offset


def _good_header(segment: LogSegment, chunk: bytes, place: int, position: int) -> tuple[BatchHeader | None, str]:
    """The header at a place of the chunk if its batch may lie whole in the segment, else None and the reason."""
    if not has_header(chunk, place):
        return None, "a batch header is cut short"
    try:
        header = read_any_header(chunk, place)
    except KafkaError as error:
        return None, error.message
    if position + header.size > segment.size:
        return None, f"the batch at offset {header.base_offset} is cut short"
    return header, ""


def _note(segment: LogSegment, epochs: LeaderEpochs, state: ProducerState, header: BatchHeader, position: int) -> int:
    """Note a good batch; the offset behind it."""
    segment.note_batch(header, position)
    epochs.find(header.partition_leader_epoch, header.base_offset, header.next_offset)
    if header.producer_id >= 0:
        aborted = replay(state, header, segment, position)
        if aborted is not None:
            segment.add_aborted(aborted)
    return header.next_offset
