"""Makes a damaged segment anew: what is good of it, then what another replica has of its offsets, swapped in whole.

Nothing is cut from the log: its end and its other segments stay as they are, and until the new segment takes the
place of the old one, readers have the old one. The files are those of a compaction (cleaned_segment.py), so a crash in
the middle leaves either the old segment or the new one.

Compacted logs are not mended: what another replica has removed, or still has, would bring deleted keys back. What is
missing behind a segment comes into it, if it fits, and if no transaction touches it: their index is gone, too.
"""

from __future__ import annotations

import threading

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import BatchHeader
from kbroker.segment.cleaned_segment import CleanedSegment
from kbroker.segment.fetched import Lot, check_fetched
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET
from kbroker.segment.scrubber import BatchWalk, Damage

_CHUNK_BYTES = 1 << 20
_LARGEST_SEGMENT = (1 << 31) - 1
_ANEW = "stop this broker, remove the partition's folder, start it: then all of it is filled again"
_TOO_MUCH = f"what is missing is too much for one segment: {_ANEW}"


class NotMendable(KafkaError):
    """No replica can help."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, why)


class SegmentMending:
    """Begin, add what another replica answers until `is_whole`, then swap it in; or discard it. Blocks.

    Where it cannot be, NotMendable is raised, mostly at the beginning; all may raise OSError. `discard` may be called
    at any time.
    """

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        self.next_offset = damage.offset
        """The first one that is still missing."""
        self._log = damage.log
        if damage.log.config.is_compacted:
            raise NotMendable(f"{damage.log.name} is compacted: its segments are not mended")
        if damage.is_hole and damage.end_offset - 1 - damage.segment.base_offset > MAX_RELATIVE_OFFSET:
            raise NotMendable(_TOO_MUCH)
        self._turn = threading.Lock()
        self._is_over = False
        """Whether its files are somebody else's now, or gone."""
        self._max_timestamp, self._offset_of_max_timestamp = -1, -1
        self._since_entry = 0
        segment = damage.segment
        self._cleaned = CleanedSegment(
            segment.pool, segment.folder, segment.base_offset, damage.log.config.segment_index_bytes
        )
        try:
            self._copy_good_part()
        except BaseException:
            self.discard()
            raise

    @property
    def is_whole(self) -> bool:
        """Whether all up to the next segment is there."""
        return self.next_offset >= self.damage.end_offset

    def _copy_good_part(self) -> None:
        segment = self.damage.segment
        # A reader that still has the old segment must not open its successor's files.
        _ = segment.index, segment.time_index, segment.transaction_index()
        walk = BatchWalk(segment.base_offset)
        wanted = _CHUNK_BYTES
        while walk.position < self.damage.position:
            position, left = walk.position, self.damage.position - walk.position
            data = memoryview(segment.file.read(min(wanted, left), position))
            good, why = walk.take(data)
            if why or (not good and wanted >= left):
                raise segment.corrupt(position + good, why or "no whole batch before the damage")
            wanted = _CHUNK_BYTES
            if good:
                self._append(data[:good], check_fetched(data[:good], self._log.name))
            else:
                wanted = left

    def add(self, records: memoryview) -> bool:
        """Take batches that another replica has from `next_offset` on; whether there was news among them.

        Raises KafkaError where they are damaged, too, or do not fit: offsets without a gap up to the next segment.
        """
        news = False
        for position, header in check_fetched(records, self._log.name):
            if header.last_offset < self.next_offset:
                continue
            if self.is_whole:
                return True
            if header.base_offset != self.next_offset or header.last_offset >= self.damage.end_offset:
                why = f"{self._log.name}: the other replica's batch at offset {header.base_offset} does not fit"
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
            if self.damage.is_hole:
                self._check_fits(header)
            self._append(records[position : position + header.size], [(position, header)])
            self.next_offset = header.last_offset + 1
            news = True
        return news

    def _check_fits(self, header: BatchHeader) -> None:
        if self._cleaned.size + header.size > _LARGEST_SEGMENT:
            raise NotMendable(_TOO_MUCH)
        if header.is_transactional:
            raise NotMendable(f"what is missing belongs to transactions: {_ANEW}")

    def _append(self, data: memoryview, batches: Lot) -> None:
        """Append batches with index entries as an append to the log makes them."""
        begin = batches[0][0]
        marks = []
        for place, header in batches:
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._offset_of_max_timestamp = header.max_timestamp, header.last_offset
            if self._since_entry > self._log.config.index_interval_bytes:
                position = self._cleaned.size + place - begin
                marks.append((header.last_offset, position, self._max_timestamp, self._offset_of_max_timestamp))
                self._since_entry = 0
            self._since_entry += header.size
        self._cleaned.append(data, marks)

    def swap_in(self) -> bool:
        """Put it in the damaged segment's place; False when the log has gone its way meanwhile."""
        with self._turn:
            return not self._is_over and self._swap_in()

    def _swap_in(self) -> bool:
        segment = self.damage.segment
        transactions = segment.transaction_index()
        for transaction in transactions.entries if transactions is not None else ():
            self._cleaned.add_aborted(transaction)
        self._cleaned.finish(self._max_timestamp, self._offset_of_max_timestamp, segment.file.change_time_ns())
        with self._log.changing("swap a mended segment in"):
            self._is_over = True  # whatever comes of it: the files may have their final names from here on
            if not (self._is_still_as_it_was() and self._log.disk.replace((segment,), self._cleaned, self._log.config)):
                self._cleaned.discard()
                return False
        try:
            segment.pool.files.sync_folder(segment.folder.path)
        except OSError as error:
            self._log.fail(error, "swap a mended segment in")
        return True

    def _is_still_as_it_was(self) -> bool:
        """Whether the damaged segment is closed and has its place; truncated and filled again it may be another one."""
        log = self._log
        is_in_place = self.damage.segment in log.segments[:-1] and log.truncations == self.damage.truncations
        return is_in_place and not log.config.is_compacted

    def discard(self) -> None:
        """Remove what was made, unless it has been swapped in."""
        with self._turn:
            if not self._is_over:
                self._is_over = True
                self._cleaned.discard()
