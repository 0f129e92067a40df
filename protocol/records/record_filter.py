# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Writes what compaction keeps of a log: records as they are, batches as Kafka has them (byte for byte, uncompressed).

A record stays if its key's latest offset is not above its own; one without a key goes; a tombstone goes once the delete
horizon of its batch has passed (KIP-534). A batch that loses nothing is copied as it is. One that loses records keeps
its base offset, last offset delta, producer and leader epoch; its base timestamp becomes that of the first record left.
When a batch first comes to hold a tombstone that stays, or is the marker of a transaction without data, its delete
horizon is set: attribute bit 6, base timestamp := now + delete.retention.ms, the records' deltas computed anew.

Compiled, the records are judged and copied without Python's lock.
"""

from struct import Struct

from kbroker.protocol import memory
from kbroker.protocol.records import raw
from kbroker.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
)
from kbroker.protocol.records.batch_chunk import BatchChunk
from kbroker.protocol.records.checksum import crc32c
from kbroker.protocol.records.compression import compress
from kbroker.protocol.records.offset_map import OffsetMap
from kbroker.protocol.records.raw import Readable, Writable
from kbroker.protocol.records.scanner import RecordScanner

_DISCARD = 1
_KEEP_EMPTY = 2
_ENDS_EMPTY_TRANSACTION = 4
_SMALLEST_RECORD = 7
_GROWTH = 11
"""Bytes that a record may become longer by: nine of a timestamp delta, and its length's."""

_HEADER = HEADER_SIZE
# The bits of attributes again, as plain C numbers.
_COMPRESSION = COMPRESSION_MASK
_LOG_APPEND_TIME = LOG_APPEND_TIME_BIT
_TRANSACTIONAL_CONTROL = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
_CONTROL = CONTROL_BIT
_DELETE_HORIZON = DELETE_HORIZON_BIT
_MARK = Struct("=4q")
_MARK_NUMBERS = 4


class RecordFilter:
    """Filters chunk after chunk of a log; `begin` starts a new segment, of which it says what to index.

    After each `filter`: `output` holds the batches that stay, `marks` where the segment's indexes get entries.
    """

    __slots__ = (
        "delete_horizon_ms",
        "first_timestamp",
        "has_tombstone",
        "index_interval",
        "keep_flags",
        "kept",
        "largest_kept",
        "last_offsets",
        "last_offsets_count",
        "last_offsets_view",
        "map",
        "mark_bytes",
        "mark_count",
        "mark_numbers",
        "max_timestamp",
        "max_timestamp_offset",
        "now_ms",
        "null_keys",
        "output",
        "output_data",
        "position",
        "records_kept",
        "records_read",
        "scanner",
        "since_entry",
        "size",
    )

    def __init__(self, offset_map: OffsetMap, now_ms: int, delete_retention_ms: int, index_interval: int) -> None:
        self.map = offset_map
        self.now_ms = now_ms
        self.delete_horizon_ms = now_ms + delete_retention_ms
        self.index_interval = index_interval
        self.scanner = RecordScanner()
        self.records_read = 0
        self.records_kept = 0
        self.null_keys = 0
        """Records without a key, which no compacted log should hold."""
        self.output = bytearray()
        self.keep_flags = bytearray()
        self.mark_bytes = memoryview(bytearray())
        self.mark_count = 0
        self.size = 0
        self.begin(b"")

    def begin(self, last_offsets: bytes) -> None:
        """Start a segment.

        `last_offsets`: for each active producer the last offset of its newest data batch, ascending int64 in the
        machine's order; the headers of these batches stay.
        """
        self.last_offsets_view = memoryview(bytearray(last_offsets))
        self.last_offsets = raw.int64_address(self.last_offsets_view)
        self.last_offsets_count = len(last_offsets) // 8
        self.position = 0
        self.since_entry = 0
        self.max_timestamp = self.max_timestamp_offset = -1
        """The largest of the segment so far, and the last offset of the batch that holds it."""
        self.mark_count = 0

    @property
    def marks(self) -> list[tuple[int, ...]]:
        """One whenever the index interval has passed: last offset and position of a batch of the output, the largest
        timestamp of the segment up to there, and the last offset of the batch that holds that.
        """
        return list(_MARK.iter_unpack(self.mark_bytes[: self.mark_count * _MARK.size]))

    def filter(self, chunk: BatchChunk) -> memoryview:
        """What stays of the chunk's batches: a view to be released before the next call.

        Raises CorruptBatch and InvalidRecord.
        """
        self._make_room(chunk)
        self.size = 0
        self.mark_count = 0
        number = 0
        while number < chunk.count:
            flags = raw.bytearray_address(self.keep_flags)
            state = raw.release_gil()
            number = self._filter_plain(chunk, number, flags)
            raw.take_gil(state)
            if number < 0:
                raise chunk.bad_records(-1 - number)
            if number < chunk.count:
                self._filter_compressed(chunk, number)
                number += 1
        self._note_batches()
        return memoryview(self.output)[: self.size]

    def _make_room(self, chunk: BatchChunk) -> None:
        """Have buffers for all that uncompressed batches can become."""
        self._reserve(chunk.end + _GROWTH * (chunk.end // _SMALLEST_RECORD) + _HEADER)
        if len(self.keep_flags) < chunk.end // _SMALLEST_RECORD + 1:
            self.keep_flags = bytearray(chunk.end // _SMALLEST_RECORD + 1)

    def _reserve(self, size: int) -> None:
        if len(self.output) < size:
            raw.resize(self.output, size)
        self.output_data = raw.bytearray_address(self.output)

    # ------------------------------------------------------------------ batches

    def _filter_plain(self, chunk: BatchChunk, number: int, flags: Writable) -> int:
        """Filter batches from `number` on up to one that is compressed; its number, or -1 - that of a damaged one."""
        data = chunk.data
        while number < chunk.count:
            position = chunk.positions[number]
            verdict = chunk.verdicts[number]
            attributes = memory.load_int16(data, position + 21)
            size = memory.load_int32(data, position + 8) + 12
            kept = 0
            if not verdict & _DISCARD:
                if attributes & _COMPRESSION:
                    return number
                if not self._judge(data, position, data, position + _HEADER, position + size, flags):
                    return -1 - number
                kept = self.kept
                horizon = self._new_horizon(attributes, verdict)
                if kept and kept == memory.load_int32(data, position + 57) and not horizon:
                    raw.copy(self.output_data, self.size, data, position, size)
                    self.size += size
                elif kept:
                    self._rewrite(data, position, data, position + _HEADER, position + size, flags, horizon)
            if not kept and (verdict & _KEEP_EMPTY or self._is_last_of_producer(data, position)):
                self._put_header(data, position, _HEADER, 0, attributes & _TRANSACTIONAL_CONTROL, -1, -1)
            number += 1
        return number

    def _filter_compressed(self, chunk: BatchChunk, number: int) -> None:
        """The same for one compressed batch that is not discarded."""
        with chunk.open_payload(number) as payload:
            self._filter_payload(chunk, number, payload)

    def _filter_payload(self, chunk: BatchChunk, number: int, payload: memoryview) -> None:
        length = len(payload)
        records = raw.address(payload)
        data = chunk.data
        position = chunk.positions[number]
        attributes = memory.load_int16(data, position + 21)
        size = memory.load_int32(data, position + 8) + 12
        if len(self.keep_flags) < length // _SMALLEST_RECORD + 1:
            self.keep_flags = bytearray(length // _SMALLEST_RECORD + 1)
        flags = raw.bytearray_address(self.keep_flags)
        state = raw.release_gil()
        good = self._judge(data, position, records, 0, length, flags)
        raw.take_gil(state)
        if not good:
            raise chunk.bad_records(number)
        horizon = self._new_horizon(attributes, chunk.verdicts[number])
        if self.kept and self.kept == memory.load_int32(data, position + 57) and not horizon:
            raw.copy(self.output_data, self.size, data, position, size)
            self.size += size
        elif self.kept:
            self._recompress(chunk, position, records, length, flags, horizon)
        elif chunk.verdicts[number] & _KEEP_EMPTY or self._is_last_of_producer(data, position):
            self._put_header(data, position, _HEADER, 0, attributes & _TRANSACTIONAL_CONTROL, -1, -1)

    def _recompress(
        self, chunk: BatchChunk, position: int, records: Readable, length: int, flags: Readable, horizon: bool
    ) -> None:
        """Write the kept records behind the output, then what they compress to in their place."""
        data = chunk.data
        start = self.size
        rest = chunk.end + _GROWTH * (chunk.end // _SMALLEST_RECORD) + _HEADER
        self._reserve(start + _HEADER + length + _GROWTH * self.kept + rest)
        state = raw.release_gil()
        self._rewrite(data, position, records, 0, length, flags, horizon)
        raw.take_gil(state)
        compression = memory.load_int16(data, position + 21) & _COMPRESSION
        with memoryview(self.output) as output, output[start + _HEADER : self.size] as kept:
            compressed = memoryview(compress(compression, kept))
        size = len(compressed)
        self._reserve(start + _HEADER + size + rest)
        raw.copy(self.output_data, start + _HEADER, raw.address(compressed), 0, size)
        self.size = start + _HEADER + size
        memory.store_int32(self.output_data, start + 8, self.size - start - 12)
        memory.store_int16(self.output_data, start + 21, memory.load_int16(self.output_data, start + 21) | compression)

    def _new_horizon(self, attributes: int, verdict: int) -> bool:
        """Whether the batch just judged gets its delete horizon now."""
        if attributes & _DELETE_HORIZON:
            return False
        return self.has_tombstone or (verdict & _ENDS_EMPTY_TRANSACTION) != 0

    def _is_last_of_producer(self, data: Readable, position: int) -> bool:
        """Whether the batch is the newest of an active producer."""
        if memory.load_int64(data, position + 43) < 0:
            return False
        offset = memory.load_int64(data, position) + memory.load_int32(data, position + 23)
        low = 0
        high = self.last_offsets_count
        while low < high:
            middle = (low + high) // 2
            if self.last_offsets[middle] < offset:
                low = middle + 1
            else:
                high = middle
        return low < self.last_offsets_count and self.last_offsets[low] == offset

    # ------------------------------------------------------------------ records

    def _judge(self, data: Readable, header: int, records: Readable, position: int, end: int, flags: Writable) -> bool:
        """Decide about each record of a batch: flags, `kept`, first and largest timestamp; False when damaged."""
        base = memory.load_int64(data, header)
        attributes = memory.load_int16(data, header + 21)
        last_delta = memory.load_int32(data, header + 23)
        base_timestamp = memory.load_int64(data, header + 27)
        append_time = memory.load_int64(data, header + 35)
        count = memory.load_int32(data, header + 57)
        tombstones_stay = not attributes & _DELETE_HORIZON or self.now_ms < base_timestamp
        self.kept = 0
        self.has_tombstone = False
        self.largest_kept = -1
        if count > (end - position) // _SMALLEST_RECORD:
            return False
        for index in range(count):
            if not self.scanner.read(records, position, end) or self.scanner.offset_delta > last_delta:
                return False
            position = self.scanner.end
            self.records_read += 1
            stays = True
            if not attributes & _CONTROL and base + self.scanner.offset_delta <= self.map.latest_offset:
                stays = self._stays(records, base + self.scanner.offset_delta, tombstones_stay)
            flags[index] = stays
            if stays:
                timestamp = base_timestamp + self.scanner.timestamp_delta
                if attributes & _LOG_APPEND_TIME:
                    timestamp = append_time
                if self.kept == 0:
                    self.first_timestamp = timestamp
                if timestamp > self.largest_kept:
                    self.largest_kept = timestamp
                if self.scanner.value_length < 0:
                    self.has_tombstone = True
                self.kept += 1
        self.records_kept += self.kept
        return position == end

    def _stays(self, records: Readable, offset: int, tombstones_stay: bool) -> bool:
        """Whether the record that the scanner stands at, whose offset the map covers, is the latest of its key."""
        if self.scanner.key_length < 0:
            self.null_keys += 1
            return False
        if self.scanner.value_length < 0 and not tombstones_stay:
            return False
        return offset >= self.map.find(records, self.scanner.key_start, self.scanner.key_length)

    def _rewrite(
        self, data: Readable, header: int, records: Readable, position: int, end: int, flags: Readable, horizon: bool
    ) -> None:
        """Write a batch of the kept records (uncompressed) behind the output."""
        attributes = memory.load_int16(data, header + 21)
        base_timestamp = memory.load_int64(data, header + 27)
        max_timestamp = self.largest_kept
        new_base = self.first_timestamp
        kept_attributes = attributes & (_TRANSACTIONAL_CONTROL | _DELETE_HORIZON)
        if horizon:
            new_base = self.delete_horizon_ms
            kept_attributes |= _DELETE_HORIZON
        elif attributes & _DELETE_HORIZON:
            new_base = base_timestamp
        target = self.output_data
        at = self.size + _HEADER
        count = memory.load_int32(data, header + 57)
        for index in range(count):
            start = position
            self.scanner.read(records, position, end)
            position = self.scanner.end
            if not flags[index]:
                continue
            delta = base_timestamp + self.scanner.timestamp_delta - new_base
            if attributes & _LOG_APPEND_TIME:
                delta = max_timestamp - new_base
            if delta == self.scanner.timestamp_delta:
                raw.copy(target, at, records, start, position - start)
                at += position - start
                continue
            body = position - self.scanner.body_start
            at = raw.put_varint(target, at, 1 + raw.varint_size(delta) + body)
            target[at] = 0
            at = raw.put_varint(target, at + 1, delta)
            raw.copy(target, at, records, self.scanner.body_start, body)
            at += body
        self._put_header(data, header, at - self.size, self.kept, kept_attributes, new_base, max_timestamp)

    def _put_header(
        self,
        data: Readable,
        header: int,
        size: int,
        count: int,
        attributes: int,
        base_timestamp: int,
        max_timestamp: int,
    ) -> None:
        """Write the head of a batch of `size` bytes at the output's end, taking over what stays of the old one's.

        The CRC is left 0: _note_batches sees to it. An empty batch keeps its max timestamp.
        """
        target = self.output_data
        at = self.size
        raw.copy(target, at, data, header, _HEADER)
        memory.store_int32(target, at + 8, size - 12)
        memory.store_int32(target, at + 17, 0)
        memory.store_int16(target, at + 21, attributes)
        memory.store_int64(target, at + 27, base_timestamp)
        if count:
            memory.store_int64(target, at + 35, max_timestamp)
        memory.store_int32(target, at + 57, count)
        self.size = at + size

    # ------------------------------------------------------------------ the segment

    def _note_batches(self) -> None:
        """Give new batches their CRC; make a mark whenever the interval has passed."""
        batches = self.size // _HEADER
        if len(self.mark_bytes) < _MARK.size * batches:
            self.mark_bytes = memoryview(bytearray(_MARK.size * batches))
            self.mark_numbers = raw.int64_address(self.mark_bytes)
        output = self.output_data
        at = 0
        while at < self.size:
            size = memory.load_int32(output, at + 8) + 12
            if memory.load_int32(output, at + 17) == 0:
                crc = raw.short_crc(output, at + 21, at + size)
                if crc < 0:
                    with memoryview(self.output) as whole, whole[at + 21 : at + size] as covered:
                        crc = crc32c(covered)
                memory.store_int32(output, at + 17, crc if crc < 0x80000000 else crc - 0x100000000)
            timestamp = memory.load_int64(output, at + 35)
            last = memory.load_int64(output, at) + memory.load_int32(output, at + 23)
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
                self.max_timestamp_offset = last
            if self.since_entry > self.index_interval:
                self._mark(last)
            self.since_entry += size
            self.position += size
            at += size

    def _mark(self, last_offset: int) -> None:
        at = self.mark_count * _MARK_NUMBERS
        self.mark_numbers[at] = last_offset
        self.mark_numbers[at + 1] = self.position
        self.mark_numbers[at + 2] = self.max_timestamp
        self.mark_numbers[at + 3] = self.max_timestamp_offset
        self.mark_count += 1
        self.since_entry = 0
