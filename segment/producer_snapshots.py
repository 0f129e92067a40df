"""The `.snapshot` files of one log, and the state that they and the batches behind them give after a restart."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import BatchHeader
from kbroker.segment.files import Files, Folder
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.names import SNAPSHOT, file_name
from kbroker.segment.producer_state import (
    CachedBatch,
    ProducerEntry,
    ProducerState,
    marker_of,
    read_snapshot,
    snapshot_bytes,
)
from kbroker.segment.transaction_index import AbortedTransaction

log = logging.getLogger(__name__)

RECALLED_OFFSETS = 20_000
"""How far below the last batch that a snapshot knows the producers' other batches are looked for."""

MOST_PRODUCERS_OFTEN = 1000
"""Of more producers one snapshot at most waits, and one is being written: the garbage collector looks at each entry."""


def replay(state: ProducerState, header: BatchHeader, segment: LogSegment, position: int) -> AbortedTransaction | None:
    """Note a batch that lies in the log already; the aborted transaction that it ends, if it does."""
    if header.producer_id < 0:
        return None
    marker = marker_of(header, segment.read_batch(position, header)) if header.is_control else None
    return state.append(header, header.base_offset, header.max_timestamp, marker)


def recall(state: ProducerState, segments: Sequence[LogSegment]) -> None:
    """Look up in the log the last batches of producers of whom a snapshot knew only the very last one.

    A producer has up to five batches on their way. After a restart it sends again those that were not acknowledged, the
    first of them first: who knows only the last one takes that for a gap.
    """
    wanted: dict[int, tuple[ProducerEntry, list[CachedBatch]]] = {}
    for producer_id in [each.producer_id for each in state.producers.values() if each.is_from_snapshot]:
        entry = state.changeable(producer_id)
        if entry.batches:
            entry.is_from_snapshot = False
            wanted[entry.producer_id] = (entry, [])
    end = max((entry.batches[0].first_offset for entry, _ in wanted.values()), default=0)
    start = end - RECALLED_OFFSETS
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if following <= start or segment.base_offset >= end:
            continue
        for _, header in segment.headers(segment.find(start) if start > segment.base_offset else 0):
            if header.base_offset >= end:
                break
            known = wanted.get(header.producer_id)
            if known is not None and _is_earlier(header, known[0]):
                delta = header.last_offset_delta
                known[1].append(CachedBatch(header.last_sequence, header.last_offset, delta, header.max_timestamp))
    for entry, earlier in wanted.values():
        entry.recall(earlier)


def _is_earlier(header: BatchHeader, entry: ProducerEntry) -> bool:
    """Whether this is a data batch of the producer's epoch, before those that are known."""
    return (
        not header.is_control
        and header.producer_epoch == entry.epoch
        and header.last_offset < entry.batches[0].first_offset
    )


class ProducerSnapshots:
    """The snapshot files in a log's folder, and those that wait to be written.

    With 100,000 producers a file takes a while: a roll only captures the state, a worker writes it.
    """

    __slots__ = ("_files", "_folder", "_in_hand", "_lock", "_waiting", "_writing", "offsets")

    def __init__(self, files: Files, folder: Folder, offsets: Sequence[int] = ()) -> None:
        self._files = files
        self._folder = folder
        self.offsets = sorted(offsets)
        """Offsets of the snapshots there are, written or not."""
        self._waiting: dict[int, list[ProducerEntry]] = {}
        """What is to be written, by offset."""
        self._in_hand = -1
        """The offset of what is being written, or was last."""
        self._lock = threading.Lock()
        """Guards both; never held while a snapshot is packed or written."""
        self._writing = threading.Lock()
        """Held by who writes."""

    def _path(self, offset: int) -> str:
        return f"{self._folder.path}/{file_name(offset, SNAPSHOT)}"

    def take(self, state: ProducerState, offset: int) -> None:
        """Capture the state as of offset, unless there is such a snapshot; write_waiting makes the file.

        Where rolls come faster than the snapshots of very many producers can be written, only the newest roll is sure
        to have one, so that retention never leaves a log without: what needs the state as of another starts from the
        one before, and has more batches to replay.
        """
        if offset <= state.last_snapshot_offset:
            return
        state.last_snapshot_offset = offset
        with self._lock:
            if len(state.producers) > MOST_PRODUCERS_OFTEN:
                for former in [each for each in self._waiting if each != self._in_hand]:
                    del self._waiting[former]
                    self.offsets.remove(former)
            self._waiting[offset] = state.capture()
            self.offsets.append(offset)

    @property
    def has_waiting(self) -> bool:
        """Whether write_waiting has something to do."""
        return bool(self._waiting)

    def write_waiting(self, sync: bool = True) -> list[str]:
        """Write what waits, without the log's lock; with sync=False somebody else has to sync the files named.

        Not what comes meanwhile: a log may roll as fast. Raises OSError.
        """
        written = []
        with self._writing:
            with self._lock:
                newest = max(self._waiting, default=-1)
            while True:
                with self._lock:
                    offset, entries = min(self._waiting.items(), default=(-1, []))
                    self._in_hand = offset if offset <= newest else -1
                    if self._in_hand < 0:
                        break
                if self._write(offset, entries, sync):
                    written.append(file_name(offset, SNAPSHOT))
            if written and sync:
                self._sync_folder()
        return written

    def write_last(self, state: ProducerState, offset: int) -> list[str]:
        """Write what waits, and the state as of offset; somebody else has to sync the files named. Raises OSError."""
        written = self.write_waiting(sync=False)
        self.take(state, offset)
        return written + self.write_waiting(sync=False)

    def _sync_folder(self) -> None:
        while True:
            folder = self._folder.path
            try:
                return self._files.sync_folder(folder)
            except FileNotFoundError:
                if not self._folder.was_moved(folder):
                    raise

    def _write(self, offset: int, entries: list[ProducerEntry], sync: bool) -> bool:
        """Write one snapshot; False when it was removed meanwhile, or its folder got another name."""
        data = snapshot_bytes(entries)
        folder = self._folder.path
        path = f"{folder}/{file_name(offset, SNAPSHOT)}"
        try:
            self._files.write_file(f"{path}.tmp", data, sync)
            with self._lock:
                if self._waiting.get(offset) is entries:
                    self._files.rename(f"{path}.tmp", path)
                    del self._waiting[offset]
                    return True
        except FileNotFoundError:
            if not self._folder.was_moved(folder):
                raise
        self._files.unlink(f"{self._path(offset)}.tmp")
        return False

    def remove(self, offset: int) -> None:
        """Remove one snapshot, if it is there."""
        with self._lock:
            if offset in self.offsets:
                self.offsets.remove(offset)
                if self._waiting.pop(offset, None) is None:
                    self._files.unlink(self._path(offset))

    def _read(self, offset: int) -> list[ProducerEntry]:
        with self._lock:
            waiting = self._waiting.get(offset)
        return waiting if waiting is not None else read_snapshot(self._files.read_file(self._path(offset)) or b"")

    def remove_above(self, offset: int) -> None:
        """Remove the snapshots that show more than what is below offset."""
        for later in [each for each in self.offsets if each > offset]:
            self.remove(later)

    def remove_all(self) -> None:
        """Remove every snapshot."""
        self.remove_above(-1)

    def load_newest(self, state: ProducerState, log_start: int, end: int, now_ms: int, expiration_ms: int) -> int:
        """Start from the newest readable snapshot in [log_start, end]; the offset from which on to replay.

        One at log_start tells, where retention took what they wrote, of producers that may try again (Kafka forgets).
        """
        for offset in [each for each in reversed(self.offsets) if log_start <= each <= end]:
            try:
                entries = self._read(offset)
            except ValueError as error:
                log.warning("%s: damaged, trying an older one (%s)", self._path(offset), error)
                self.remove(offset)
                continue
            state.load(entries, offset, now_ms, expiration_ms)
            return offset
        state.clear()
        state.last_snapshot_offset = max((each for each in self.offsets if each <= end), default=-1)
        return log_start

    def rebuild(
        self,
        state: ProducerState,
        segments: Sequence[LogSegment],
        log_start: int,
        end: int,
        now_ms: int,
        expiration_ms: int,
    ) -> None:
        """Bring the state to what it was when the log ended at `end`: newest snapshot, then the batches behind it."""
        start = self.load_newest(state, log_start, end, now_ms, expiration_ms)
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else end
            if following <= start or segment.base_offset >= end:
                continue
            try:
                position = segment.find(start) if start > segment.base_offset else 0
                for place, header in segment.headers(position):
                    if header.base_offset >= end:
                        break
                    replay(state, header, segment, place)
            except KafkaError as error:  # damage that stays until it is mended
                log.warning("%s; what lies behind it in its segment is not known of producers", error.message)
