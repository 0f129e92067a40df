"""Open a log after a stop or a crash, or make a new one.

After a clean stop files are believed (and their batches checked when first read, see log_segment.py). After any other
stop every segment from the one that holds the recovery point on is scanned: sizes, checksums, ascending offsets. Its
indexes, transactions, producer state and leader epochs are rebuilt from what is there, and the log ends before the
first bad byte. Each damage is told in one line.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.segment import checkpoints, names
from kbroker.segment.behind_damage import Gaps, end_in_later, is_left_over
from kbroker.segment.files import FilePool, Folder, PooledFile
from kbroker.segment.kept_damage import find_aborted_around, has_impossible_transactions, index_around, must_keep
from kbroker.segment.leader_epochs import LeaderEpochs
from kbroker.segment.log import Log
from kbroker.segment.log_config import MAX_LONG, LogConfig
from kbroker.segment.log_disk import LogDisk
from kbroker.segment.log_health import LogOwner
from kbroker.segment.log_producers import EXPIRATION_MS
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.names import CLEANED, LOG, SNAPSHOT
from kbroker.segment.producer_snapshots import ProducerSnapshots
from kbroker.segment.producer_state import ProducerState
from kbroker.segment.segment_recovery import first_offset_at, recover_segment
from kbroker.segment.swaps import FolderListing
from kbroker.segment.trash import Trash

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LogSetup:
    """What all logs of a directory share when they are opened."""

    pool: FilePool
    trash: Trash
    now_ms: int = 0
    producer_expiration_ms: int = EXPIRATION_MS
    owner: LogOwner | None = None


@dataclass(frozen=True, slots=True)
class KnownOffsets:
    """What the log directory's checkpoints say of a log."""

    clean: bool = False
    """The directory was left by an orderly stop."""
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int | None = None
    first_dirty_offset: int | None = None
    has_lost_power: bool = False
    """What was not synced is gone, in whatever order the kernel had written it."""

    @property
    def had_up_to(self) -> int:
        """Exclusive; the log had records up to there."""
        return max(self.high_watermark or 0, self.recovery_point)


def create_log(setup: LogSetup, folder: str, topic: str, partition: int, config: LogConfig, topic_id: bytes) -> Log:
    """Make the folder of a new log and its first, empty segment: few calls, nothing synced before there is data."""
    setup.pool.files.make_folder(folder)
    place = Folder(folder)
    segment = LogSegment(setup.pool, place, 0, config, setup.now_ms)
    segment.create()
    disk = LogDisk(setup.pool, place, (segment,), setup.trash)
    created = Log(disk, topic, partition, config, setup.owner)
    created.producers.expiration_ms = setup.producer_expiration_ms
    created.set_topic_id(topic_id)
    return created


def open_log(
    setup: LogSetup, folder: str, topic: str, partition: int, config: LogConfig, known: KnownOffsets | None = None
) -> Log:
    """Open a log that is on disk, recovering what a crash left. Raises OSError when the disk fails."""
    known = known or KnownOffsets()
    opening = _Opening(setup, folder, config, known)
    opening.listing.finish_swaps()
    opening.find_segments()
    opening.read_epochs()
    opening.recover()
    segments = opening.segments
    disk = LogDisk(setup.pool, opening.folder, segments, setup.trash)
    opened = Log(disk, topic, partition, config, setup.owner)
    end = opening.end
    start = min(max(opening.start, segments[0].base_offset), end)
    opened.log_start_offset, opened.log_end_offset = start, end
    disk.recovery_point = disk.flushed_to = end if known.clean else min(max(known.recovery_point, start), end)
    opened.high_watermark = min(max(known.high_watermark or 0, start), end)
    promised = max(known.had_up_to, opening.had_up_to)
    if end < promised:
        log.error("%s: ends at %d, but had records up to at least offset %d", folder, end, promised - 1)
        opened.promised_offset = promised
    opened.first_dirty_offset = known.first_dirty_offset
    if opened.first_dirty_offset is not None and end < opened.first_dirty_offset:  # as in a truncation
        opened.first_dirty_offset = segments[-1].base_offset
    opened.leader_epochs = opening.epochs
    opened.leader_epochs.truncate_from_end(max(end, start + 1))  # the epoch of what was removed tells of no log's end
    opened.leader_epochs.truncate_from_start(start)
    opened.producers.expiration_ms = setup.producer_expiration_ms
    opening.finish_producers(start)
    opened.producers.state = opening.state
    opened.producers.state.transactions.replicated(opened.high_watermark)
    disk.snapshots = opening.snapshots
    opened.topic_id = _read_topic_id(opening)
    return opened


def _read_topic_id(opening: _Opening) -> bytes:
    path = f"{opening.folder.path}/{names.PARTITION_METADATA}"
    try:
        return checkpoints.read_topic_id(opening.files, path)
    except checkpoints.MalformedCheckpoint as error:
        log.warning("%s; the controller will give the topic's id again", error)
        return ZERO_UUID


class _Opening:
    """A log that is being opened."""

    def __init__(self, setup: LogSetup, folder: str, config: LogConfig, known: KnownOffsets) -> None:
        self.setup = setup
        self.files = setup.pool.files
        self.folder = Folder(folder)
        self.config = config
        self.known = known
        self.listing = FolderListing(setup.pool, self.folder, config)
        self.segments: list[LogSegment] = []
        self.state = ProducerState()
        self.epochs = LeaderEpochs()
        self.snapshots = ProducerSnapshots(self.files, self.folder)
        self.start = max(known.log_start_offset, 0)
        """Where the log begins, if its first segment does not begin later."""
        self.end = 0
        self._sure_up_to = MAX_LONG if known.clean else known.recovery_point
        """Below it all is on disk as it was written: no truncation is half done."""
        self._without_index: set[int] = set()
        self._without_transactions: set[int] = set()
        """Base offsets of the segments that lack an index, and of those whose transaction index cannot be right."""
        self._transactional: set[int] = set()
        """Base offsets of the segments that have a transaction index."""
        self._has_recovered = self._recovered_to_end = False
        self.had_up_to = 0
        """Exclusive; what lay behind damage, 0 if nothing did."""

    # ------------------------------------------------------------------ files

    def find_segments(self) -> None:
        """Make the list of segments; the last of them decides where the log ends."""
        parsed = self.listing.parsed()
        bases = sorted(name.offset for _, name in parsed if name.suffix == LOG)
        known = set(bases)
        for name, file in parsed:
            if file.offset not in known and file.suffix not in (LOG, SNAPSHOT):
                self.listing.remove(name, "it belongs to no log file")
        indexed, timed = (
            {file.offset for _, file in parsed if file.suffix == suffix} for suffix in (names.INDEX, names.TIME_INDEX)
        )
        self._transactional = {file.offset for _, file in parsed if file.suffix == names.TRANSACTION_INDEX}
        for base in bases:
            segment = LogSegment(self.setup.pool, self.folder, base, self.config, self.setup.now_ms)
            segment.size = segment.trusted_from = segment.file.file_size()
            segment.forget_timestamps()
            self.segments.append(segment)
            if base in self._transactional and has_impossible_transactions(segment):
                self._without_transactions.add(base)
            if segment.size and base not in indexed & timed:
                self._without_index.add(base)
        self._keep_snapshots(bases, sorted(file.offset for _, file in parsed if file.suffix == SNAPSHOT))
        if self.segments:
            self._check_start()
        else:
            self._add_empty(self.start)

    def _check_start(self) -> None:
        """No checksum covers the log's start: beyond all that the log ever had it is damaged, and the log keeps all.

        The high watermark is on disk before it (offset_checkpoints.py).
        """
        last = self.segments[-1]
        if self.start <= max(self.known.had_up_to, last.base_offset) or self.start <= _end_by_headers(last):
            return
        text = "%s: %s says that the log begins at %d, beyond all that it ever had: all that is there is kept"
        log.error(text, self.folder.path, checkpoints.LOG_START_OFFSETS, self.start)
        self.start = 0

    def _keep_snapshots(self, bases: Sequence[int], offsets: Sequence[int]) -> None:
        """Snapshots that match no segment go, but for the newest when it is beyond the last base."""
        self.snapshots.offsets = list(offsets)
        known = set(bases)
        for offset in offsets:
            newest = offset == offsets[-1] and (not bases or offset > bases[-1])
            if offset not in known and not newest:
                self.snapshots.remove(offset)

    def _add_empty(self, base_offset: int) -> None:
        segment = LogSegment(self.setup.pool, self.folder, base_offset, self.config, self.setup.now_ms)
        segment.create()
        self.segments.append(segment)

    # ------------------------------------------------------------------ contents

    def read_epochs(self) -> None:
        """Read the leader epochs; a file that is missing or damaged is made again from the batches.

        No checksum covers a batch's epoch: a file that can be right is believed, whatever a batch says.
        """
        path = f"{self.folder.path}/{names.LEADER_EPOCHS}"
        try:
            self.epochs = LeaderEpochs(tuple(checkpoints.read_leader_epochs(self.files, path)))
        except checkpoints.MalformedCheckpoint as error:
            log.warning("%s; rebuilding it from the batches", error)
        if self.epochs.entries or not any(segment.size for segment in self.segments):
            return
        for segment in self.segments:
            try:
                for _, header in segment.headers():
                    self.epochs.find(header.partition_leader_epoch, header.base_offset, header.next_offset)
            except KafkaError:
                return  # the segment's recovery comes next and says what is wrong

    def recover(self) -> None:
        """Recover the segments that may be damaged and find the log's end (steps 3 and 4)."""
        first = len(self.segments)
        if not self.known.clean:
            first = max(sum(segment.base_offset <= self.known.recovery_point for segment in self.segments) - 1, 0)
        suspects = [
            number
            for number, segment in enumerate(self.segments)
            if number >= first or segment.base_offset in self._without_index | self._without_transactions
        ]
        is_one_empty = not self.segments[-1].size and suspects == [len(self.segments) - 1]
        if suspects and not is_one_empty:
            if not self.known.clean:  # the file may show epochs that were cut since: the batches tell
                self.epochs.doubt_from(self.segments[first].base_offset)
            self._recover_segments(suspects)
        if not self._recovered_to_end:
            self.end = self._end_of(self.segments[-1])
        if self.end < self.start:
            self._restart(self.start)

    def _recover_segments(self, suspects: list[int]) -> None:
        segments, self._has_recovered = self.segments, True
        start = max(self.start, segments[0].base_offset)
        pending = deque(segments[number] for number in suspects)
        compacted_up_to = self.known.first_dirty_offset
        if compacted_up_to is None and self.config.is_compacted:
            compacted_up_to = 0
        gaps = Gaps.of(start, self._sure_up_to, compacted_up_to, self.known.has_lost_power)
        before: LogSegment | None = None
        """The segment that the producers' state reaches to the end of."""
        while pending:
            segment = pending.popleft()
            number = segments.index(segment)
            if before is None or number == 0 or segments[number - 1] is not before:
                self._rebuild_producers(start, segment.base_offset)
            following = segments[number + 1] if number + 1 < len(segments) else None
            was_whole = (following.base_offset if following else MAX_LONG) <= self._sure_up_to
            if was_whole and must_keep(segment, following):
                if segment.base_offset in self._without_index:
                    index_around(segment, following)
                if segment.base_offset in self._without_transactions:
                    find_aborted_around(segment, following, self.state)
                before = None
                continue
            segment.reset_indexes()
            segment.reset_transactions(segment.base_offset in self._transactional)
            size, sure_up_to = segment.size, self._sure_up_to
            recovered = recover_segment(segment, self.epochs, self.state, following, sure_up_to, self.known.had_up_to)
            if recovered.overflow is not None:
                rest = self._split(number, recovered.overflow)
                if rest not in pending:
                    pending.appendleft(rest)
            before = segment
            self.end, self.had_up_to = recovered.end, max(self.had_up_to, recovered.had_up_to)
            is_hole = size == segment.size and gaps.is_loss(segments, number, self.end)
            newest = self.epochs.latest_epoch
            if following and (recovered.cut_bytes or is_hole or is_left_over(following, sure_up_to, newest)):
                behind = max(segments[-1].base_offset if is_hole else 0, end_in_later(segments[number + 1 :], newest))
                self.had_up_to = max(self.had_up_to, behind)
                self._drop_behind(number)
                break
        self._recovered_to_end = before is segments[-1]

    def _drop_behind(self, number: int) -> None:
        """The log ends with the segment of that number."""
        segments = self.segments
        log.warning("%s: %d later segment(s) dropped", segments[number].place, len(segments) - number - 1)
        for later in segments[number + 1 :]:
            self.setup.trash.bury(later.files(), self.config.file_delete_delay_ms)
            self.snapshots.remove(later.base_offset)
        del segments[number + 1 :]

    def _split(self, number: int, position: int) -> LogSegment:
        """Move what lies from a position on into a segment of its own, whose indexes can hold its offsets.

        The copy is on disk before the first segment is cut: a crash in between leaves both, and this is done again.
        """
        segment = self.segments[number]
        base_offset = first_offset_at(segment, position)
        log.warning("%s: split at position %d, offset %d is too far behind", segment.place, position, base_offset)
        name = names.file_name(base_offset, LOG)
        known = [each for each in self.segments if each.base_offset == base_offset]
        if not known:
            copy = PooledFile(self.setup.pool, self.folder, name + CLEANED, create=True)
            for at in range(position, segment.size, _READ_BYTES):
                copy.write(segment.file.read(min(_READ_BYTES, segment.size - at), at), at - position)
            copy.sync()
            self.setup.pool.rename(copy, name)
            copy.close()
            self.files.sync_folder(self.folder.path)
            rest = LogSegment(self.setup.pool, self.folder, base_offset, self.config, self.setup.now_ms)
            rest.size = rest.trusted_from = segment.size - position
            rest.forget_timestamps()
            self.segments.insert(number + 1, rest)
            known = [rest]
        segment.cut(position)
        segment.seal()
        segment.trust_all()
        return known[0]

    def _rebuild_producers(self, start: int, end: int) -> None:
        self.snapshots.remove_above(max(end, self._sure_up_to))  # later ones may tell of what is cut now
        setup = self.setup
        self.snapshots.rebuild(self.state, self.segments, start, end, setup.now_ms, setup.producer_expiration_ms)

    def _end_of(self, segment: LogSegment) -> int:
        """The offset behind the last batch of the last segment."""
        if not segment.size:
            return segment.base_offset
        try:
            return self._last_next_offset(segment)
        except KafkaError as error:
            log.warning("%s; the segment is recovered", error.message)
            number = len(self.segments) - 1
            self._recover_segments([number])
            return self._last_next_offset(self.segments[-1]) if segment.size else segment.base_offset

    def _last_next_offset(self, segment: LogSegment) -> int:
        position, last = segment.last_batch() or (0, None)
        reached = 0 if last is None else position + last.size
        if last is None or reached != segment.size:
            raise segment.corrupt(reached, f"a batch is cut short at the end of the file ({segment.size} bytes)")
        return last.next_offset

    def _restart(self, offset: int) -> None:
        log.warning(
            "%s: it ends at %d, below its log start offset %d: starting anew", self.folder.path, self.end, offset
        )
        for segment in self.segments:
            self.setup.trash.discard(segment.files())
        self.segments.clear()
        self.snapshots.remove_all()
        self.state.clear()
        self.epochs.clear()
        self._add_empty(offset)
        self.end = offset

    def finish_producers(self, start: int) -> None:
        """Bring the producer state up to the end."""
        self.snapshots.remove_above(self.end)
        if self._recovered_to_end:
            self.state.last_snapshot_offset = self.snapshots.offsets[-1] if self.snapshots.offsets else -1
            return
        if self.known.clean and not self.snapshots.offsets and not self._has_recovered:
            return  # written before there were idempotent producers: nothing to find by reading it all
        self._rebuild_producers(start, self.end)


def _end_by_headers(segment: LogSegment) -> int:
    """The offset behind the last batch that headers lead to."""
    end = segment.base_offset
    with suppress(KafkaError):
        for _, header in segment.headers():
            end = header.next_offset
    return end
