# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""A piece of a log as compaction sees it: whole batches, what is decided about each, their keys.

`read` takes a piece and checks it; whoever compacts decides about the batches in `special` (markers and data of
transactions: what is to become of them depends on other batches); then `add_keys_to` fills a map, or a RecordFilter
writes what is kept. Compiled, the records are walked without Python's lock.
"""

from kbroker.protocol import memory
from kbroker.protocol.records import raw
from kbroker.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    verify_crc,
)
from kbroker.protocol.records.compression import MAX_PAYLOAD_SIZE, decompress
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from kbroker.protocol.records.offset_map import OffsetMap
from kbroker.protocol.records.scanner import RecordScanner

_DISCARD = 1
_KEEP_EMPTY = 2
_ENDS_EMPTY_TRANSACTION = 4
_SMALLEST_RECORD = 7
_RECORDS_START = HEADER_SIZE  # these three again, as plain C numbers
_BEFORE_LENGTH = LOG_OVERHEAD
_COMPRESSED = COMPRESSION_MASK


class BatchChunk:
    """The batches at the front of a piece of a log; used again for the next piece."""

    __slots__ = (
        "count",
        "data",
        "end",
        "full",
        "next_offset",
        "places",
        "positions",
        "record_count",
        "scanner",
        "scratch",
        "special",
        "verdict_bytes",
        "verdicts",
        "view",
    )

    def __init__(self) -> None:
        self.scanner = RecordScanner()
        self.scratch = bytearray()
        self.special: list[int] = []
        """Numbers of the batches that somebody has to decide about, ascending."""
        self.count = 0
        """Batches."""
        self.record_count = 0
        """Records that the batches say they hold."""
        self.end = 0
        """Bytes of the whole batches."""
        self.next_offset = 0
        """Behind the last of them."""
        self.full = False
        self._make_room(64)

    def _make_room(self, batches: int) -> None:
        self.places = memoryview(bytearray(8 * batches))
        self.positions = raw.int64_address(self.places)
        self.verdict_bytes = bytearray(batches)
        self.verdicts = raw.bytearray_address(self.verdict_bytes)

    def read(self, data: bytes, floor: int = 0) -> int:
        """Take the whole batches at the front of data, whose offsets begin at `floor` or later; their bytes.

        0 when not even the first is whole. Raises CorruptBatch (a checksum, a length, offsets that do not ascend) and
        InvalidRecord (an old magic).
        """
        length = len(data)
        if length // HEADER_SIZE >= len(self.verdict_bytes):
            self._make_room(length // HEADER_SIZE + 1)
        self.view = memoryview(data)
        self.data = raw.address(self.view)
        self.special = []
        self.record_count = 0
        number = 0
        position = 0
        while length - position >= HEADER_SIZE:
            header = read_header(data, position)
            size = header.batch_length + LOG_OVERHEAD
            if size > length - position:
                break
            if not verify_crc(data, position, size):
                raise CorruptBatch(f"the batch at offset {header.base_offset} does not match its checksum")
            if header.base_offset < floor or header.last_offset_delta < 0:
                raise CorruptBatch(f"a batch of offsets {header.base_offset}..{header.last_offset} follows {floor - 1}")
            if header.count < 0:
                raise InvalidRecord(f"the batch at offset {header.base_offset} says it has {header.count} records")
            floor = header.base_offset + header.last_offset_delta + 1
            self.positions[number] = position
            self.verdicts[number] = 0
            if header.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
                self.special.append(number)
            self.record_count += header.count
            number += 1
            position += size
        self.count = number
        self.next_offset = floor
        self.end = position
        return position

    def position(self, number: int) -> int:
        """Where a batch begins."""
        self._check(number)
        return self.positions[number]

    def header(self, number: int) -> BatchHeader:
        """A batch's header."""
        return read_header(self.view, self.position(number))

    def batch(self, number: int) -> memoryview:
        """A batch's bytes."""
        position = self.position(number)
        return self.view[position : position + self.header(number).size]

    def decide(
        self, number: int, discard: bool, keep_empty: bool = False, ends_empty_transaction: bool = False
    ) -> None:
        """Say what becomes of a batch: its records go; its header stays in any case; it is a marker without data."""
        self._check(number)
        verdict = _DISCARD if discard else 0
        if keep_empty:
            verdict |= _KEEP_EMPTY
        if ends_empty_transaction:
            verdict |= _ENDS_EMPTY_TRANSACTION
        self.verdicts[number] = verdict

    def _check(self, number: int) -> None:
        if number < 0 or number >= self.count:
            raise IndexError(f"batch {number} of {self.count}")

    def open_payload(self, number: int) -> memoryview:
        """The uncompressed records of a compressed batch: a view to be released before the next call."""
        header = self.header(number)
        position = self.position(number)
        compressed = self.view[position + HEADER_SIZE : position + header.size]
        return memoryview(decompress(header.compression, compressed, MAX_PAYLOAD_SIZE, self.scratch))

    # ------------------------------------------------------------------ keys

    def add_keys_to(self, offset_map: OffsetMap, from_offset: int) -> bool:
        """Map the keys of the records from an offset on, but for discarded batches; False when the map is full.

        The map's latest_offset follows. Raises CorruptBatch and InvalidRecord.
        """
        self.full = False
        number = 0
        while number < self.count and not self.full:
            state = raw.release_gil()
            number = self._map_plain(offset_map, from_offset, number)
            raw.take_gil(state)
            if number < 0:
                raise self.bad_records(-1 - number)
            if number < self.count and not self.full:
                with self.open_payload(number) as payload:
                    good = self._map_records(offset_map, from_offset, number, raw.address(payload), 0, len(payload))
                if not good:
                    raise self.bad_records(number)
                number += 1
        return not self.full

    def bad_records(self, number: int) -> InvalidRecord:
        """The error for a batch whose records are not what its header says."""
        return InvalidRecord(f"{self.header(number)!r} holds records that do not fit it")

    def _map_plain(self, offset_map: OffsetMap, from_offset: int, number: int) -> int:
        """Map batches from `number` on up to one that is compressed; its number, or -1 - that of a damaged one."""
        data = self.data
        while number < self.count and not self.full:
            position = self.positions[number]
            if self.verdicts[number] & _DISCARD:
                last = memory.load_int64(data, position) + memory.load_int32(data, position + 23)
                if last >= from_offset:
                    offset_map.latest_offset = last
            elif memory.load_int16(data, position + 21) & _COMPRESSED:
                return number
            else:
                end = position + _BEFORE_LENGTH + memory.load_int32(data, position + 8)
                if not self._map_records(offset_map, from_offset, number, data, position + _RECORDS_START, end):
                    return -1 - number
            number += 1
        return number

    def _map_records(
        self, offset_map: OffsetMap, from_offset: int, number: int, records: raw.Readable, position: int, end: int
    ) -> bool:
        """Map the records of one batch; False when they are damaged. Ends early when the map is full."""
        header = self.positions[number]
        base = memory.load_int64(self.data, header)
        last_delta = memory.load_int32(self.data, header + 23)
        count = memory.load_int32(self.data, header + 57)
        if count > (end - position) // _SMALLEST_RECORD:
            return False
        for _ in range(count):
            if not self.scanner.read(records, position, end) or self.scanner.offset_delta > last_delta:
                return False
            offset = base + self.scanner.offset_delta
            if self.scanner.key_length >= 0 and offset >= from_offset:
                if offset_map.count >= offset_map.capacity:
                    self.full = True
                    return True
                offset_map.put(records, self.scanner.key_start, self.scanner.key_length, offset)
                offset_map.latest_offset = offset
            position = self.scanner.end
        if base + last_delta >= from_offset:
            offset_map.latest_offset = base + last_delta
        return position == end
