"""A log's files in one directory, and how much of them has reached the disk for good.

    roll        the active segment is closed, the next one made; a producer snapshot waits to be written
    begin       of a flush: what waits in memory goes to the files; says what has to be synced
    sync        by a worker, without the log's lock: the bytes of the segments, then small files, then names
    end         what is on disk is more, and so is, as a rule, what a recovery need not look at

A move into another directory (log_move.py) exchanges this, and nothing else of a log.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kbroker.segment.checkpoints import leader_epochs_text
from kbroker.segment.cleaned_segment import CleanedSegment
from kbroker.segment.files import FilePool, Folder
from kbroker.segment.leader_epochs import LeaderEpochs
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.names import INDEX, LEADER_EPOCHS, SWAP, TIME_INDEX, file_name
from kbroker.segment.producer_snapshots import ProducerSnapshots
from kbroker.segment.producer_state import ProducerState
from kbroker.segment.trash import Trash


class Flush(NamedTuple):
    """A flush under way."""

    disk: LogDisk
    target: int
    segments: Sequence[LogSegment]
    active: LogSegment
    small_files: Mapping[int, str]
    names: Mapping[int, int]
    """Both as LogDisk has them, unsynced when it began."""
    truncations: int
    folder: str
    """Both of the log when it began."""


class LogDisk:
    """Whoever changes it holds the log's lock, but for `sync`."""

    __slots__ = (
        "_changes",
        "_unsynced",
        "_unsynced_names",
        "flushed_to",
        "folder",
        "jitter_ms",
        "pool",
        "recovery_point",
        "rolled_bytes",
        "segments",
        "snapshots",
        "trash",
    )

    def __init__(
        self, pool: FilePool, folder: Folder, segments: Sequence[LogSegment], trash: Trash | None = None
    ) -> None:
        self.pool = pool
        self.trash = trash if trash is not None else Trash(pool.files)
        self.folder = folder
        self.segments: tuple[LogSegment, ...] = tuple(segments)
        """Ascending, never empty; the last is the active one. Replaced, never changed: readers take no lock."""
        self.snapshots = ProducerSnapshots(pool.files, folder)
        self.rolled_bytes = 0
        """Sizes of the segments that were rolled, as they were then."""
        self.jitter_ms = 0
        """How much earlier the active segment rolls."""
        self.recovery_point = self.flushed_to = self.segments[0].base_offset
        """A recovery need not look at what lies below, nor at the indexes of segments that were closed there: a roll
        moves it back. `flushed_to`, never less: the records below are on disk, acknowledgements go by that."""
        self._changes = 0
        """Numbers what follows. Several flushes may be under way: each syncs all that none has synced to its end."""
        self._unsynced: dict[int, str] = {}
        """Small files to be synced."""
        self._unsynced_names: dict[int, int] = {}
        """Names to be synced: 1 those of the files in the folder, 2 the folder's own too."""
        self._note_names(2)

    @property
    def log_dir(self) -> str:
        """The log directory (an entry of log.dirs) the folder lies in."""
        return self.folder.path.rpartition("/")[0]

    @property
    def appended_bytes(self) -> int:
        """Grows by what is appended; only the difference of two means something, without a truncation in between."""
        return self.rolled_bytes + self.segments[-1].size

    @property
    def has_unsynced(self) -> bool:
        """Whether small files wait for the next flush."""
        return bool(self._unsynced)

    def apply_config(self, config: LogConfig) -> None:
        """Use new topic settings from now on."""
        self.jitter_ms = _roll_jitter_ms(config)
        for segment in self.segments:
            segment.apply_config(config)

    def roll(self, base_offset: int, config: LogConfig, state: ProducerState, now_ms: int) -> LogSegment:
        """Close the active segment and start the next one at base_offset."""
        closed = self.segments[-1]
        closed.finish()
        self.rolled_bytes += closed.size
        if closed.size:  # its indexes are as much a part of what a recovery does not look at: the next flush has them
            self.recovery_point = min(self.recovery_point, base_offset - 1)
        self.snapshots.take(state, base_offset)
        segment = self._new_segment(base_offset, config, now_ms)
        self.segments = (*self.segments, segment)
        self.jitter_ms = _roll_jitter_ms(config)
        return segment

    def restart(self, base_offset: int, config: LogConfig) -> None:
        """Begin anew with one empty segment; the files of the former ones are removed."""
        former = self.segments
        self.snapshots.remove_all()
        for segment in former:
            for file in segment.leave():
                file.remove()
        self.pool.files.sync_folder(self.folder.path)  # as in truncate
        self.segments = (self._new_segment(base_offset, config, former[-1].created_ms),)
        self.recovery_point = self.flushed_to = base_offset

    def _new_segment(self, base_offset: int, config: LogConfig, now_ms: int) -> LogSegment:
        segment = LogSegment(self.pool, self.folder, base_offset, config, now_ms)
        segment.create()
        self._note_names(1)
        return segment

    def finish(self, state: ProducerState, log_end_offset: int) -> None:
        """Write what a clean stop leaves: the last index entries, the producers' state."""
        active = self.segments[-1]
        active.finish()
        if active.size:  # a start after a clean stop believes its indexes, and flushes leave them out
            self._note_small_file(file_name(active.base_offset, INDEX))
            self._note_small_file(file_name(active.base_offset, TIME_INDEX))
        for name in self.snapshots.write_last(state, log_end_offset):
            self._note_small_file(name)

    def _note_names(self, level: int) -> None:
        self._changes += 1
        self._unsynced_names[self._changes] = level

    def _note_small_file(self, name: str) -> None:
        self._changes += 1
        self._unsynced[self._changes] = name

    # ------------------------------------------------------------------ segments that go

    def promise_no_more_than(self, offset: int) -> None:
        """Before the end moves back: what comes there is not on disk."""
        self.recovery_point = min(self.recovery_point, offset)
        self.flushed_to = min(self.flushed_to, offset)

    def truncate(self, offset: int, config: LogConfig, now_ms: int) -> None:
        """Drop what lies at and above an offset, the newest segments first: a crash in between leaves no gap.

        Names reach the disk at once: one that is back after a power loss would lie over what is written from now on.
        """
        segments = self.segments
        self.segments = tuple(segment for segment in segments if segment.base_offset <= offset)
        if len(self.segments) < len(segments):
            self.bury(segments[: len(self.segments) - 1 : -1], config)
            self.pool.files.sync_folder(self.folder.path)
        self.segments[-1].truncate_to(offset, now_ms)

    def bury(self, dropped: Iterable[LogSegment], config: LogConfig) -> None:
        """Remove segments that left the log, file.delete.delay.ms later: slices may still be on their way."""
        for segment in dropped:
            self.trash.bury(segment.leave(), config.file_delete_delay_ms)
            self.snapshots.remove(segment.base_offset)

    def replace(self, replaced: Sequence[LogSegment], cleaned: CleanedSegment, config: LogConfig) -> bool:
        """Put a compacted segment in the place of those it was made of; False when they are not the log's any more."""
        segments = self.segments
        first = segments.index(replaced[0]) if replaced[0] in segments else len(segments)
        behind = first + len(replaced)
        if segments[first:behind] != tuple(replaced):
            return False
        cleaned.rename(SWAP)
        for segment in replaced:
            self.trash.bury(segment.leave(), config.file_delete_delay_ms)
        cleaned.rename("")
        fresh = cleaned.to_segment(config, replaced[0].created_ms)
        self.segments = (*segments[:first], fresh, *segments[behind:])
        for segment in replaced[1:]:
            self.snapshots.remove(segment.base_offset)
        return True

    # ------------------------------------------------------------------ names

    def replace_file(self, name: str, data: bytes) -> None:
        """Write a small file whole or not at all; the next flush syncs it."""
        with self.pool.pace.timed():
            self.pool.files.replace_file(f"{self.folder.path}/{name}", data, sync=False)
        self._note_small_file(name)

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        """Write the leader epochs, unless the file shows them."""
        if epochs.dirty:
            epochs.dirty = False
            self.replace_file(LEADER_EPOCHS, leader_epochs_text(epochs.entries))

    def rename_folder(self, path: str, sync: bool = False) -> None:
        """Move the folder, with files that may be open; with `sync` its new name survives a power loss."""
        self.pool.move_folder(self.folder, path)
        if sync:
            self.pool.files.sync_folder(self.log_dir)

    # ------------------------------------------------------------------ flushing

    def begin_flush(self, target: int, truncations: int) -> Flush | None:
        """Write out what waits in memory and say what has to reach the disk; None when everything is there."""
        segments = self.segments
        if target <= self.recovery_point and not self._unsynced:
            return None
        first = max(bisect_right(segments, self.recovery_point, key=_base_offset) - 1, 0)
        dirty = [segment for segment in segments[first:] if segment.base_offset < target]
        for segment in dirty:
            if segment is not segments[-1]:
                segment.write_out()
        unsynced = self._unsynced.copy(), self._unsynced_names.copy()
        return Flush(self, target, dirty, segments[-1], *unsynced, truncations, self.folder.path)

    def sync(self, begun: Flush) -> None:
        """Let it reach the disk. Raises OSError; a FileNotFoundError may mean that files went meanwhile, by right."""
        files = self.pool.files
        for segment in begun.segments:
            with self.pool.flush_times.timed():
                segment.sync(with_indexes=segment is not begun.active)
        for name in set(begun.small_files.values()):
            files.sync_path(f"{self.folder.path}/{name}")
        if begun.names or begun.small_files:
            files.sync_folder(self.folder.path)
        if 2 in begun.names.values():
            files.sync_folder(self.log_dir)

    def end_flush(self, begun: Flush) -> None:
        """Everything below the flush's target is on disk now."""
        self.flushed_to = max(self.flushed_to, begun.target)
        reached, segments = begun.target, self.segments
        if (
            begun.active is not segments[-1] and begun.active in segments
        ):  # closed meanwhile: its indexes are for the next flush
            reached = min(reached, segments[segments.index(begun.active) + 1].base_offset - 1)
        self.recovery_point = max(self.recovery_point, reached)
        for number in begun.small_files:
            self._unsynced.pop(number, None)
        for number in begun.names:
            self._unsynced_names.pop(number, None)


def _roll_jitter_ms(config: LogConfig) -> int:
    """Spreads the rolls of many partitions over segment.jitter.ms."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return random.randrange(limit) if limit > 0 else 0


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset
