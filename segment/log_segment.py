"""One .log file with its indexes.

    00000000000000368769.log         batch | batch | batch ...
    00000000000000368769.index       sparse: offset -> position      (offset_index.py)
    00000000000000368769.timeindex   sparse: timestamp -> offset     (time_index.py)
    00000000000000368769.txnindex    aborted transactions            (transaction_index.py)

Flipped bits. Readers get their bytes by sendfile, which checks nothing, so each byte range is checked once before it is
served for the first time: batches that this process appended or recovery scanned are known, the rest (what a clean
restart found) is checked with CRC-32C when first read. `trusted_from` is the position from which on everything is known
to be good; below it `_trusted` lists the ranges read so far. A file that somebody else changed loses all trust.

Who is not patient (the event loop) gets NotInMemory where a look-up, that check or sending would wait for the disk.
"""

from __future__ import annotations

import logging
import os
import struct
import time
from collections.abc import Iterator, Sequence

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import HEADER_SIZE, BatchHeader
from kbroker.protocol.records.message_set import SMALLEST_MESSAGE, has_header, read_any_header
from kbroker.segment.batch_checks import check_batches
from kbroker.segment.file_records import FileRecords
from kbroker.segment.files import Buffer, FilePool, Folder, NotInMemory, PooledFile
from kbroker.segment.log_config import MAX_LONG, LogConfig
from kbroker.segment.names import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, file_name
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from kbroker.segment.search import BEYOND_INDEX, find_batch
from kbroker.segment.time_index import TimeIndex
from kbroker.segment.time_lookup import find_largest, read_largest
from kbroker.segment.transaction_index import AbortedTransaction, TransactionIndex

log = logging.getLogger(__name__)

_SCAN_BYTES = 4096 + HEADER_SIZE
_VERIFY_BYTES = 4 << 20
"""At most this much is checked for one read, so that a cold reader does not hold up the others."""
_READ_BYTES, _CHECKED_AT_ONCE_BYTES = 1 << 16, 256 << 10
_BEING_WRITTEN = 1 << 63  # later than any time: a disk may make who writes wait, and the file has changed by then
_FRESH_BYTES, _FRESH_NS = 1 << 20, 20_000_000_000
"""What was written lately cannot have left the page cache: it was not even on disk for most of that time."""
_RECENT = 16
_time_ns = time.time_ns

_PLACE = struct.Struct(">qi")
"""base offset, batch length"""


class LogSegment:
    """The batches from base_offset up to the next segment's."""

    __slots__ = (
        "_bytes_since_entry",
        "_distrusts",
        "_file_time",
        "_first_timestamp",
        "_index",
        "_interval",
        "_lacks_indexes",
        "_max_index_bytes",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_recent",
        "_time_index",
        "_transaction_index",
        "_trusted",
        "base_offset",
        "created_ms",
        "file",
        "folder",
        "pool",
        "size",
        "trusted_from",
    )

    def __init__(
        self, pool: FilePool, folder: Folder, base_offset: int, config: LogConfig, created_ms: int, size: int = 0
    ) -> None:
        """`size` bytes lie on disk already, and none of them is trusted."""
        self.pool = pool
        self.folder = folder
        self.base_offset = base_offset
        self.file = PooledFile(pool, folder, file_name(base_offset, LOG))
        self.size = size
        """Bytes of whole batches; what a failed write may have left behind lies beyond."""
        self.created_ms = created_ms
        self.trusted_from = size
        """Everything from this position on is known to be good."""
        self._trusted: list[tuple[int, int]] | None = None
        self._file_time, self._first_timestamp, self._distrusts = 0, -1, 0
        self._max_timestamp: int | None = -1 if size == 0 else None
        """None: not read from the time index yet."""
        self._offset_of_max_timestamp = base_offset
        self._bytes_since_entry = 0
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        self._lacks_indexes = False
        """Whether the first batch came lately: making two files takes longer than appending, and may wait a second."""
        self._recent: dict[int, int] | None = None
        """Base offset -> position of the last few appends: readers at the end need no look-up."""
        self.apply_config(config)

    def apply_config(self, config: LogConfig) -> None:
        """Use new topic settings from now on."""
        self._interval = config.index_interval_bytes
        self._max_index_bytes = config.segment_index_bytes
        if self._index is not None and self._time_index is not None:
            self._index.max_count = config.segment_index_bytes // 8
            self._time_index.max_count = config.segment_index_bytes // 12

    @property
    def place(self) -> str:
        """`orders-3/00000000000000000042.log`, for messages."""
        return f"{os.path.basename(self.folder.path)}/{self.file.name}"

    @property
    def index(self) -> OffsetIndex:
        """The offset index, opened on first use."""
        if self._index is None:
            found = OffsetIndex(self.pool, self.folder, self.base_offset, self._max_index_bytes)
            with self.pool.lock:  # two objects for one file would not know of each other's entries
                self._index = self._index or found
        return self._index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, opened on first use."""
        if self._time_index is None:
            found = TimeIndex(self.pool, self.folder, self.base_offset, self._max_index_bytes)
            with self.pool.lock:
                self._time_index = self._time_index or found
        return self._time_index

    def transaction_index(self, create: bool = False) -> TransactionIndex | None:
        """The transaction index; None when the segment has no aborted transaction."""
        while self._transaction_index is None:
            folder = self.folder.path
            if create or os.path.exists(f"{folder}/{file_name(self.base_offset, TRANSACTION_INDEX)}"):
                found = TransactionIndex(self.pool, self.folder, self.base_offset)
                with self.pool.lock:
                    if self.folder.path == folder:
                        self._transaction_index = self._transaction_index or found
            elif not self.folder.was_moved(folder):
                return None
        return self._transaction_index

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker lies here."""
        index = self.transaction_index(create=True)
        assert index is not None
        index.append(transaction)

    # ------------------------------------------------------------------ appending

    def create(self) -> None:
        """Make the empty .log file (the indexes follow with the first batch)."""
        self.file.create = True
        self.pool.pin(self.file)
        self.pool.unpin(self.file)
        self.file.create = False

    def append(self, data: Buffer, base_offset: int, last_offset: int, max_timestamp: int, max_at: int) -> None:
        """Append one chunk of whole batches. `max_at`: last offset of the batch that holds max_timestamp."""
        position, size = self.size, len(data)
        self._file_time = _BEING_WRITTEN
        self.file.write(data, position)
        self._file_time = _time_ns()
        self.size = position + size
        if not position:
            self._first_timestamp = max_timestamp
            self._lacks_indexes = True
        known = self._max_timestamp
        if max_timestamp > (self.max_timestamp if known is None else known):
            self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, max_at
        if self._bytes_since_entry > self._interval:
            self.index.append(last_offset, position)
            self.time_index.maybe_append(self._max_timestamp or 0, self._offset_of_max_timestamp)
            self._bytes_since_entry = size
        else:
            self._bytes_since_entry += size
        self._remember(base_offset, position)

    def _remember(self, base_offset: int, position: int) -> None:
        recent = self._recent
        if recent is None or len(recent) >= _RECENT:
            recent = self._recent = {}
        recent[base_offset] = position

    def append_many(self, data: Buffer, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        """Append batches that follow one another in `data`, each with its position there.

        What a follower fetches may be long: the index gets entries within it, so that readers need not search it.
        """
        position = self.size
        self._file_time = _BEING_WRITTEN
        self.file.write(data, position)
        self._file_time = _time_ns()
        self.size = position + len(data)
        begin, first = batches[0]
        if not position:
            self._first_timestamp = first.max_timestamp
            self._lacks_indexes = True
        highest, waiting = self.max_timestamp, self._bytes_since_entry
        for place, header in batches:
            if header.max_timestamp > highest:
                self._max_timestamp = highest = header.max_timestamp
                self._offset_of_max_timestamp = header.last_offset
            if waiting > self._interval:
                self.index.append(header.last_offset, position + place - begin)
                self.time_index.maybe_append(highest, self._offset_of_max_timestamp)
                waiting = 0
            waiting += header.size
        self._bytes_since_entry = waiting
        self._remember(first.base_offset, position)

    def should_roll(
        self, config: LogConfig, size: int, max_timestamp: int, last_offset: int, now_ms: int, jitter_ms: int
    ) -> bool:
        """Whether a chunk that comes now belongs into a new segment (Kafka's `LogSegment.shouldRoll`)."""
        own_size = self.size
        if own_size and own_size > config.segment_bytes - size:
            return True
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if own_size:
            first = self._first_timestamp
            waited = max_timestamp - first if first >= 0 else self._time_waited(max_timestamp, now_ms)
            if waited > config.max_segment_ms - jitter_ms:
                return True
        index = self._index
        return index is not None and (index.count >= index.max_count or self.time_index.is_full)

    def _time_waited(self, max_timestamp: int, now_ms: int) -> int:
        first = self.first_timestamp
        return max_timestamp - first if first >= 0 else now_ms - self.created_ms

    @property
    def first_timestamp(self) -> int:
        """Largest timestamp of the first batch, -1 when there is none."""
        if self._first_timestamp < 0 and self.size >= SMALLEST_MESSAGE:
            self._first_timestamp = self.header_at(0).max_timestamp
        return self._first_timestamp

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of a record here, -1 when there is none."""
        if self._max_timestamp is None:
            timestamp, offset = find_largest(self)
            with self.pool.lock:  # whoever appends asks this before it notes a later one
                if self._max_timestamp is None:
                    self._offset_of_max_timestamp, self._max_timestamp = offset, timestamp
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the batch that holds max_timestamp."""
        return self._offset_of_max_timestamp if self.max_timestamp >= 0 else self.base_offset

    @property
    def retention_timestamp(self) -> int:
        """Largest timestamp; where there is none, when the file was last changed."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.file.modified_ms()

    def forget_timestamps(self) -> None:
        """What the file holds was written by an earlier life: ask the time index and the batches when needed."""
        self._max_timestamp = None if self.size else -1

    def finish(self) -> None:
        """No more appends (roll, close): the time index gets the largest timestamp, both indexes reach their files."""
        if self.size:
            if self.max_timestamp >= 0:
                self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            self.index.write_out()
            self.time_index.write_out()
            self._lacks_indexes = False
        self._recent = None

    def write_out(self) -> None:
        """Let the index entries that wait in memory reach their files."""
        if self._lacks_indexes or self._index is not None or self._time_index is not None:
            self._lacks_indexes = False
            self.index.write_out()
            self.time_index.write_out()

    def sync(self, with_indexes: bool) -> None:
        """fsync what was written. Callable from any thread, without the log's lock.

        The active segment's indexes are not worth it: after a crash they are rebuilt.
        """
        self.file.sync()
        for file in (self._index, self._time_index, self._transaction_index):
            if file is not None and (with_indexes or file is self._transaction_index):
                file.sync()

    # ------------------------------------------------------------------ reading

    def header_at(self, position: int, patient: bool = True) -> BatchHeader:
        """The batch header at a position. Raises KafkaError CORRUPT_MESSAGE naming the place."""
        read = self.file.read if patient else self.file.read_at_once
        try:
            return read_any_header(read(HEADER_SIZE, position))
        except KafkaError as error:
            raise self.corrupt(position, error.message) from None

    def corrupt(self, position: int, why: str) -> KafkaError:
        """The error for damage at a position."""
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.place}, position {position}: {why}")

    def find(self, offset: int, patient: bool = True) -> int:
        """Position of the first batch whose last offset is >= offset; the segment's size when there is none."""
        return self._locate(offset, patient)[0]

    def _locate(self, offset: int, patient: bool) -> tuple[int, int]:
        """The position that `find` returns, and the size of the batch there; 0 when it was not looked at."""
        if self._recent is not None:
            position = self._recent.get(offset)
            if position is not None:
                return position, 0
        elif not patient and (self.file.descriptor < 0 or self._index is None or not self._index.is_at_hand):
            raise NotInMemory
        indexed, position = self.index.lookup(offset, self.size)
        if position:
            try:
                return self._scan(position, offset, indexed, patient)
            except KafkaError as error:
                log.warning(
                    "%s: offset index does not fit its log, searching without it (%s)", self.place, error.message
                )
        return self._scan(0, offset, -1, patient)

    def _scan(self, position: int, offset: int, indexed: int, patient: bool) -> tuple[int, int]:
        end = self.size
        read = self.file.read if patient else self.file.read_at_once
        floor = self.base_offset
        while position + SMALLEST_MESSAGE <= end:
            chunk = read(min(_SCAN_BYTES, end - position), position)
            last = len(chunk) - HEADER_SIZE
            if position + len(chunk) == end:  # a message of old may be shorter than what is looked at
                last = len(chunk) - SMALLEST_MESSAGE
                chunk += bytes(1)
            if last < 0:
                raise self.corrupt(position, f"the file ends where a batch should begin (size {end})")
            here, size, floor = find_batch(memoryview(chunk), last, end - position, offset, floor, indexed)
            if size > 0:
                return position + here, size
            if size:
                base_offset, length = _PLACE.unpack_from(chunk, here)
                why = f"no batch begins here (offset {base_offset}, length {length})"
                if size == BEYOND_INDEX:
                    why = f"offset {base_offset} lies beyond the index entry's {indexed}"
                raise self.corrupt(position + here, why)
            indexed = -1
            position += here
        return end, 0

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch from a position on. Raises KafkaError CORRUPT_MESSAGE."""
        chunk, start = b"", position
        while position + SMALLEST_MESSAGE <= self.size:
            if position + HEADER_SIZE > start + len(chunk):
                chunk, start = self.file.read(min(_READ_BYTES, self.size - position), position), position
                if not has_header(chunk, 0):
                    return
            try:
                header = read_any_header(chunk, position - start)
            except KafkaError as error:
                raise self.corrupt(position, error.message) from None
            yield position, header
            position += header.size

    def last_batch(self) -> tuple[int, BatchHeader] | None:
        """Position and header of the last batch: from the last index entry on. Raises KafkaError CORRUPT_MESSAGE."""
        position, found = 0, None
        if self.index.damage(self.size) is None:
            position = self.index.lookup(self.index.last_offset, self.size)[1]
        for each in self.headers(position):
            found = each
        return found

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """All bytes of a batch."""
        return self.file.read(header.size, position)

    def slice(
        self,
        offset: int,
        end: int,
        max_bytes: int,
        min_one_batch: bool,
        patient: bool = True,
        following: int = MAX_LONG,
    ) -> FileRecords | None:
        """From the batch that holds offset, up to the position `end`; None when all batches here end below offset.

        `following`: where the next segment begins, if there is one.
        """
        start, first = self._locate(offset, patient)
        size = end - start
        if start >= self.size:
            return None
        if size > max_bytes:
            first = first or self.header_at(start, patient).size
            size = max_bytes if first <= max_bytes else first if min_one_batch else 0
        if size > 0:
            size = self._verified(start, start + size, offset, following, patient) - start
            if size > 0 and not (patient or self._is_fresh(start)):
                self.file.require_in_memory(size, start)
        return FileRecords(self.file, start, max(size, 0), self.base_offset, offset)

    def _is_fresh(self, position: int) -> bool:
        is_active = self._recent is not None
        return is_active and self.size - position <= _FRESH_BYTES and _time_ns() - self._file_time < _FRESH_NS

    def _verified(self, start: int, end: int, offset: int, following: int, patient: bool) -> int:
        """Check what nobody checked yet in [start, end), which begins with the batch that holds offset.

        Returns where the part ends that may be served.
        """
        modified = self.file.change_time_ns()
        if modified > self._file_time:
            if self._file_time:  # 0: nobody of this process wrote to it yet
                log.info("%s: changed from outside; its batches are checked again", self.place)
            self.distrust()
            self._file_time = modified
        seen = self._distrusts  # before looking at what is trusted
        if start >= self.trusted_from:
            return end
        known = start
        for low, high in self._trusted or ():
            if low <= known < high:
                known = high
        if known >= end or known >= self.trusted_from:
            return end
        if not patient and end - known > _CHECKED_AT_ONCE_BYTES:
            raise NotInMemory
        return self._check(start, known, end, offset if known == start else -1, following, patient, seen)

    def _check(self, start: int, position: int, end: int, offset: int, following: int, patient: bool, seen: int) -> int:
        """Check the batches of [position, end) and trust them; [start, position) is known. Raises when start is bad."""
        read = self.file.read if patient else self.file.read_at_once
        limit = min(end, position + max(_VERIFY_BYTES, self.header_at(position, patient).size))
        # One header more: only what follows tells whether the offset of a batch behind a gap is right.
        data = read(min(limit + HEADER_SIZE, self.size) - position, position)
        good, why = check_batches(data, self.base_offset, offset, following, limit - position)
        if offset >= 0 and int.from_bytes(data[:8], "big") > offset:
            if not patient:
                raise NotInMemory
            self._confirm_gap(position, offset)
        if why and position + good < end:
            log.error("%s, position %d: %s", self.place, position + good, why)
            if position + good == start:
                raise self.corrupt(start, why)
        self._trust(start, position + good, seen)
        return min(position + good, end) if why or limit < end else end

    def _confirm_gap(self, position: int, offset: int) -> None:
        """Raise unless the batches before position ascend: nothing holds offset, so one of them may lie about its own.

        Looks as far back as the index entry before the last.
        """
        indexed, _ = self.index.lookup(offset, self.size)
        _, before = self.index.lookup(max(indexed - 1, self.base_offset), self.size)
        floor = self.base_offset
        for place, header in self.headers(before):
            if place >= position:
                return
            if header.base_offset < floor:
                why = f"offset {header.base_offset} follows {floor - 1}"
                log.error("%s, position %d: %s", self.place, place, why)
                raise self.corrupt(place, why)
            floor = header.next_offset

    def distrust(self) -> None:
        """Have all that is read from now on checked again."""
        with self.pool.lock:
            self._trusted, self.trusted_from, self._distrusts = None, self.size, self._distrusts + 1

    def _trust(self, start: int, end: int, seen: int) -> None:
        with self.pool.lock:
            if seen != self._distrusts:  # what was distrusted since then stays so
                return
            ranges = sorted([*(self._trusted or ()), (start, end)])
            merged = ranges[:1]
            for low, high in ranges[1:]:
                first, last = merged.pop() if low <= merged[-1][1] else (low, high)
                merged.append((first, max(high, last)))
            if merged[-1][1] >= self.trusted_from:
                self.trusted_from = merged.pop()[0]
            self._trusted = merged[-64:] or None

    def trust_all(self) -> None:
        """Recovery has just checked every batch."""
        self._trusted, self.trusted_from = None, 0
        self._file_time = time.time_ns()

    # ------------------------------------------------------------------ changing

    def reset_indexes(self) -> None:
        """Begin the offset and the time index anew, whatever is in them: recovery fills them again."""
        for index in (self.index, self.time_index):
            index.begin_anew()
        self._max_timestamp, self._offset_of_max_timestamp = -1, self.base_offset
        self._bytes_since_entry = 0

    def reset_transactions(self, has_some: bool = True) -> None:
        """Drop the transaction index, if there is one: recovery begins another when it meets an aborted transaction."""
        if self._transaction_index is not None:
            self._transaction_index.close()
            self._transaction_index, has_some = None, True
        if has_some:
            self.pool.files.unlink(f"{self.folder.path}/{file_name(self.base_offset, TRANSACTION_INDEX)}")

    def seal(self) -> None:
        """All that recovery has found is noted."""
        self.finish()
        for index in (self.index, self.time_index):
            index.end_rebuild()

    def note_batch(self, header: BatchHeader, position: int) -> None:
        """Recovery: index a batch that lies at position (one entry per batch when the interval has passed)."""
        if header.max_timestamp > self.max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = header.max_timestamp, header.last_offset
        if self._bytes_since_entry > self._interval:
            self.index.append(header.last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop the batch that holds offset and everything behind it; True when anything went."""
        self._recent = None
        position = self.find(offset)
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        transactions = self.transaction_index()
        if transactions is not None:
            transactions.truncate_to(offset)
        self._bytes_since_entry = 0
        cut = position < self.size
        if cut:
            self.cut(position)
        if not position:
            self.created_ms, self._first_timestamp = now_ms, -1
        self._max_timestamp, self._offset_of_max_timestamp = read_largest(self)
        return cut

    def cut(self, size: int) -> None:
        """Cut the .log file to size."""
        self.size = size
        self.file.truncate(size)
        if self._file_time:
            self._file_time = time.time_ns()
        self.trusted_from = min(self.trusted_from, size)
        self._trusted = [(low, min(high, size)) for low, high in self._trusted or () if low < size] or None
        self._recent = None

    def files(self) -> list[PooledFile]:
        """The files that exist, for renaming and removing."""
        names = (INDEX, TIME_INDEX, TRANSACTION_INDEX)
        known = (self._index, self._time_index, self._transaction_index)
        files: list[PooledFile] = [self.file]
        for suffix, known_file in zip(names, known, strict=True):
            name = file_name(self.base_offset, suffix)
            if os.path.exists(f"{self.folder.path}/{name}"):
                files.append(known_file or PooledFile(self.pool, self.folder, name))
        return files

    def leave(self) -> list[PooledFile]:
        """The files of a segment that leaves its log: who reads it still must find these, not a successor's."""
        _ = self.index, self.time_index
        return self.files()

    @property
    def has_pending(self) -> bool:
        """Whether index entries wait in memory, or the index files are still to be made."""
        indexes = filter(None, (self._index, self._time_index))
        return self._lacks_indexes or any(index.has_pending for index in indexes)

    def discard(self) -> None:
        """Close the files without writing what waits in memory."""
        for index in filter(None, (self._index, self._time_index)):
            index.forget_pending()
        self.close()

    def close(self) -> None:
        """Close the files."""
        for file in filter(None, (self.file, self._index, self._time_index, self._transaction_index)):
            file.close()
