"""Open a log after a stop or a crash (storage.md 9), or make a new one.

After a clean stop files are believed (and their batches checked when first read, see log_segment.py). After any other
stop every segment from the one that holds the recovery point on is scanned: sizes, checksums, ascending offsets. Its
indexes, transactions, producer state and leader epochs are rebuilt from what is there, and the log ends before the
first bad byte. Each damage is told in one line.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.protocol.records.batch import HEADER_SIZE, BatchHeader, verify_crc
from kbroker.protocol.records.message_set import has_header, messages, read_any_header
from kbroker.segment import checkpoints, names
from kbroker.segment.behind_damage import end_behind_damage, end_in_later, first_epoch, is_left_over, lacks_offsets
from kbroker.segment.files import FilePool, Folder, PooledFile
from kbroker.segment.kept_damage import find_aborted_around, has_impossible_transactions, index_around, must_keep
from kbroker.segment.leader_epochs import LeaderEpochs
from kbroker.segment.log import Log
from kbroker.segment.log_config import MAX_LONG, LogConfig
from kbroker.segment.log_disk import LogDisk
from kbroker.segment.log_health import LogOwner
from kbroker.segment.log_producers import EXPIRATION_MS
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.names import CLEANED, DELETED, LOG, SNAPSHOT, SWAP, FileName, parse_file_name
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET
from kbroker.segment.producer_snapshots import ProducerSnapshots, replay
from kbroker.segment.producer_state import ProducerState
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
    opening.finish_swaps()
    opening.find_segments()
    opening.read_epochs()
    opening.recover()
    segments = opening.segments
    disk = LogDisk(setup.pool, opening.folder, segments, setup.trash)
    opened = Log(disk, topic, partition, config, setup.owner)
    end = opening.end
    start = min(max(known.log_start_offset, segments[0].base_offset), end)
    opened.log_start_offset, opened.log_end_offset = start, end
    disk.recovery_point = disk.flushed_to = end if known.clean else min(max(known.recovery_point, start), end)
    opened.high_watermark = min(max(known.high_watermark or 0, start), end)
    promised = max(known.high_watermark or 0, known.recovery_point, opening.had_up_to)
    if end < promised:
        log.error("%s: ends at %d, but had records up to at least offset %d", folder, end, promised - 1)
        opened.promised_offset = promised
    opened.first_dirty_offset = known.first_dirty_offset
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
        self.names = sorted(os.listdir(folder))
        self.segments: list[LogSegment] = []
        self.state = ProducerState()
        self.epochs = LeaderEpochs()
        self.snapshots = ProducerSnapshots(self.files, self.folder)
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

    def _parsed(self) -> list[tuple[str, FileName]]:
        pairs = [(name, parse_file_name(name)) for name in self.names]
        return [(name, parsed) for name, parsed in pairs if parsed is not None]

    def _remove(self, name: str, why: str) -> None:
        log.info("%s/%s: removed, %s", self.folder.path, name, why)
        self.files.unlink(f"{self.folder.path}/{name}")
        self.names.remove(name)

    def finish_swaps(self) -> None:
        """Undo or complete what a compaction or a deletion had begun (steps 1 and 2)."""
        if not any(name.endswith((".tmp", DELETED, CLEANED, SWAP)) for name in self.names):
            return
        for name in list(self.names):
            if name.endswith(".tmp"):
                self._remove(name, "an unfinished write")
            elif name.endswith(DELETED):
                self._remove(name, "left over")
        files = [(name, parsed) for name, parsed in self._parsed() if parsed.state]
        if not files:
            return
        cleaned = [parsed.offset for _, parsed in files if parsed.state == CLEANED]
        for name, parsed in files:
            if parsed.state == CLEANED:
                self._remove(name, "left over")
            elif cleaned and parsed.offset >= min(cleaned):
                self._remove(name, "its compaction was not finished")
        self._complete_swaps([(name, parsed) for name, parsed in self._parsed() if parsed.state == SWAP])

    def _complete_swaps(self, swaps: Sequence[tuple[str, FileName]]) -> None:
        ranges = [
            (parsed.offset, self._next_offset(name, parsed.offset)) for name, parsed in swaps if parsed.suffix == LOG
        ]
        if ranges:
            low, high = min(ranges)[0], max(end for _, end in ranges)
            for name, parsed in self._parsed():
                if not parsed.state and parsed.suffix != SNAPSHOT and low <= parsed.offset < high:
                    self._remove(name, "replaced by a compacted segment")
        for name, _ in swaps:
            plain = name.removesuffix(SWAP)
            self.files.rename(f"{self.folder.path}/{name}", f"{self.folder.path}/{plain}")
            self.names.remove(name)
            if plain not in self.names:  # one that an empty segment replaces is still there: its range holds no offset
                self.names.append(plain)

    def _next_offset(self, name: str, base_offset: int) -> int:
        segment = LogSegment(self.setup.pool, self.folder, base_offset, self.config, 0)
        segment.file.name = name
        segment.size = segment.file.file_size()
        end = base_offset
        for _, header in segment.headers():
            end = header.next_offset
        segment.close()
        return end

    def find_segments(self) -> None:
        """Make the list of segments; the last of them decides where the log ends."""
        parsed = self._parsed()
        bases = sorted(name.offset for _, name in parsed if name.suffix == LOG)
        known = set(bases)
        for name, file in parsed:
            if file.offset not in known and file.suffix not in (LOG, SNAPSHOT):
                self._remove(name, "it belongs to no log file")
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
        if not self.segments:
            self._add_empty(max(self.known.log_start_offset, 0))

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
        if suspects and any(segment.size for segment in self.segments[suspects[0] :]):
            if not self.known.clean:  # the file may show epochs that were cut since: the batches tell
                self.epochs.doubt_from(self.segments[first].base_offset)
            self._recover_segments(suspects)
        if not self._recovered_to_end:
            self.end = self._end_of(self.segments[-1])
        if self.end < self.known.log_start_offset:
            self._restart(self.known.log_start_offset)

    def _recover_segments(self, suspects: list[int]) -> None:
        segments, self._has_recovered = self.segments, True
        start = max(self.known.log_start_offset, segments[0].base_offset)
        pending = deque(segments[number] for number in suspects)
        was_compacted = self.config.is_compacted or self.known.first_dirty_offset is not None
        holes_from, lost_power = MAX_LONG if was_compacted else max(start, self._sure_up_to), self.known.has_lost_power
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
            recovered = recover_segment(segment, self.epochs, self.state, following, sure_up_to)
            if recovered.overflow is not None:
                rest = self._split(number, recovered.overflow)
                if rest not in pending:
                    pending.appendleft(rest)
            before = segment
            self.end, self.had_up_to = recovered.end, max(self.had_up_to, recovered.had_up_to)
            is_hole = size == segment.size and lacks_offsets(segments, number, self.end, holes_from, lost_power)
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
            self.setup.trash.bury(later.files(), self.setup.now_ms + self.config.file_delete_delay_ms)
            self.snapshots.remove(later.base_offset)
        del segments[number + 1 :]

    def _split(self, number: int, position: int) -> LogSegment:
        """Move what lies from a position on into a segment of its own, whose indexes can hold its offsets.

        The copy is on disk before the first segment is cut: a crash in between leaves both, and this is done again.
        """
        segment = self.segments[number]
        base_offset = _first_offset_at(segment, position)
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
        """Bring the producer state up to the end (step 6)."""
        self.snapshots.remove_above(self.end)
        if self._recovered_to_end:
            self.state.last_snapshot_offset = self.snapshots.offsets[-1] if self.snapshots.offsets else -1
            return
        if self.known.clean and not self.snapshots.offsets and not self._has_recovered:
            return  # written before there were idempotent producers: nothing to find by reading it all
        self._rebuild_producers(start, self.end)


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
) -> Recovered:
    """Scan a segment whose indexes were begun anew from its first byte, fill them, cut what is damaged.

    `following`: the next segment, None for the last one. From offset `sure_up_to` on a truncation may be half done.
    """
    limits = _Limits(sure_up_to=sure_up_to)
    if following is not None:
        limits = _Limits(following.base_offset, first_epoch(following), sure_up_to)
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
    gap too wide for the indexes is believed only if the next batch, or the next segment, confirms it.
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
            is_confirmed = following is not None and (
                waiting[0].last_offset < following or _first_offset_at(segment, waiting[1]) == following
            )  # the latter: a split that did not come to its end
            why = why or f"offset {waiting[0].base_offset} lies too far behind"
            return _Scanned(waiting[1], end, why, is_confirmed)
        end = _note(segment, epochs, state, *waiting)
    return _Scanned(position, end, why)


def _is_too_far(segment: LogSegment, header: BatchHeader) -> bool:
    return header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET


def _first_offset_at(segment: LogSegment, position: int) -> int:
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
