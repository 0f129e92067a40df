# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Record batches to columns in Arrow's layout (buffers.py), without a Python object per record.

Bounds: `_open` makes room for all that a batch can add (a batch of n payload bytes adds at most n bytes of keys, values
or headers, and at most row_limit rows fit) before `_copy_rows` writes without checks. Offsets are int32, so the bytes
of a column stay below 2^31: byte_limit and the payload of one batch are at most 2^30 each.
"""

from typing import Any

from kbroker.protocol import memory
from kbroker.protocol.records import raw
from kbroker.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, read_header
from kbroker.protocol.records.buffers import BinaryColumn, BufferPool, Columns, HeadersColumn
from kbroker.protocol.records.control import AbortedTransactions
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from kbroker.protocol.records.raw import Readable
from kbroker.protocol.records.reader import BytesLike, RecordReader
from kbroker.protocol.records.record import open_batch

MAX_BYTES = 1 << 30
_FIXED = ((0, 8), (8, 16), (16, 20), (20, 24), (24, 28))
"""Where offsets, timestamps, timestamp types, partitions, places of headers begin and end, in bytes per row."""
_INT64_MAX = 9223372036854775807
_MAX_MILLISECONDS = 9223372036854775


class BinaryBuffers:
    """One growing column of binaries."""

    __slots__ = (
        "data",
        "data_buffer",
        "null_count",
        "offsets",
        "offsets_buffer",
        "pool",
        "rows",
        "validity",
        "validity_buffer",
    )

    def __init__(self, pool: BufferPool) -> None:
        self.pool = pool
        self.rows = 0
        self.null_count = 0
        self._borrow_offsets(64)
        self._borrow_data(64)
        self._borrow_validity(64)

    def _borrow_offsets(self, rows: int) -> None:
        """Take a buffer for so many rows; a view is taken at once, which keeps the pool from lending it."""
        self.offsets_buffer = memoryview(self.pool.borrow(4 * rows + 4))
        self.offsets = raw.int32_address(self.offsets_buffer)
        self.offsets[0] = 0

    def _borrow_data(self, data_bytes: int) -> None:
        self.data_buffer = memoryview(self.pool.borrow(data_bytes))
        self.data = raw.writable_address(self.data_buffer)

    def _borrow_validity(self, size: int) -> None:
        self.validity_buffer = memoryview(self.pool.borrow(size))
        self.validity = raw.writable_address(self.validity_buffer)

    def reserve(self, rows: int, data_bytes: int) -> None:
        """Make room for so many rows and bytes more; what is there stays."""
        used = self.offsets[self.rows]
        if 4 * (self.rows + rows + 1) > len(self.offsets_buffer) // 4 * 4 or (self.rows + rows + 7) // 8 > len(
            self.validity_buffer
        ):
            wanted = max(self.rows + rows, 2 * self.rows)
            larger = memoryview(self.pool.borrow(4 * wanted + 4))
            larger[: 4 * self.rows + 4] = self.offsets_buffer[: 4 * self.rows + 4]
            self.offsets_buffer = larger
            self.offsets = raw.int32_address(larger)
            larger = memoryview(self.pool.borrow(wanted // 8 + 1))
            used_bits = (self.rows + 7) // 8
            if self.null_count:
                larger[:used_bits] = self.validity_buffer[:used_bits]
            self.validity_buffer = larger
            self.validity = raw.writable_address(larger)
            if self.null_count:
                self._fill_validity(used_bits)
        if used + data_bytes > len(self.data_buffer):
            larger = memoryview(self.pool.borrow(max(used + data_bytes, min(2 * used, MAX_BYTES))))
            larger[:used] = self.data_buffer[:used]
            self.data_buffer = larger
            self.data = raw.writable_address(larger)

    def set_null(self, row: int) -> None:
        """Mark a row as null; the first one sets all other bits."""
        if self.null_count == 0:
            self._fill_validity(0)
        self.null_count += 1
        self.validity[row >> 3] = self.validity[row >> 3] & (255 ^ (1 << (row & 7)))

    def _fill_validity(self, first_byte: int) -> None:
        count = len(self.validity_buffer) - first_byte
        self.validity_buffer[first_byte:] = b"\xff" * count

    def append(self, source: Readable, start: int, length: int) -> None:
        """Add source[start : start + length], or null when the length is -1; room was reserved."""
        at = self.offsets[self.rows]
        if length < 0:
            self.set_null(self.rows)
        elif length > 0:
            raw.copy(self.data, at, source, start, length)
            at += length
        self.rows += 1
        self.offsets[self.rows] = at

    def cut_to(self, rows: int) -> None:
        """Take back the rows from `rows` on."""
        for row in range(rows, self.rows if self.null_count else 0):
            if not self.validity[row >> 3] & (1 << (row & 7)):
                self.validity[row >> 3] = self.validity[row >> 3] | (1 << (row & 7))
                self.null_count -= 1
        self.rows = rows

    def finish(self) -> BinaryColumn:
        """The column as it is now; start anew, in other buffers of the same capacity where these are handed out."""
        used = self.offsets[self.rows]
        column = BinaryColumn(
            self.offsets_buffer[: 4 * self.rows + 4],
            self.data_buffer[:used] if used else b"",
            self.validity_buffer[: (self.rows + 7) // 8] if self.null_count else None,
            self.null_count,
        )
        self._borrow_offsets(len(self.offsets_buffer) // 4 - 1)
        if used:
            self._borrow_data(len(self.data_buffer))
        if self.null_count:
            self._borrow_validity(len(self.validity_buffer))
        self.rows = 0
        self.null_count = 0
        return column


class ColumnDecoder:
    """Decodes batches until `row_limit` rows or about `byte_limit` bytes are together; `finish` hands them over.

    A batch is never split for the byte limit; for the row limit it is, and goes on in the next call.
    """

    def __init__(
        self,
        row_limit: int = 100_000,
        byte_limit: int = 64 << 20,
        with_headers: bool = False,
        pool: BufferPool | None = None,
        max_payload_size: int = 256 << 20,
    ) -> None:
        if row_limit < 1 or row_limit > 1 << 28:
            raise ValueError(f"row_limit must lie in 1..{1 << 28}, not {row_limit}")
        self.row_limit = row_limit
        self.byte_limit = min(byte_limit, MAX_BYTES)
        self.with_headers = with_headers
        self.max_payload_size = min(max_payload_size, MAX_BYTES)
        self.pool = BufferPool() if pool is None else pool
        self.next_offset = 0
        """Offset to go on from after the last `append`."""
        self.full = False
        """A limit ended the last `append`: call `finish`, then append the rest."""
        self.rows = 0
        self.scratch = bytearray()
        self.records: BytesLike | None = None
        self.header: Any = None
        self.record_position = -1
        self.scanned = 0
        self.reader: Any = None
        self.is_waiting = False
        """The open batch has no room in these columns: it is the first of the next ones, and is not opened again."""
        self.keys = BinaryBuffers(self.pool)
        self.values = BinaryBuffers(self.pool)
        self.header_keys = BinaryBuffers(self.pool)
        self.header_values = BinaryBuffers(self.pool)
        self._borrow()

    def _borrow(self) -> None:
        """Room for row_limit rows of fixed width, and the end of the headers: one buffer, in parts of 64 bytes."""
        rows = (self.row_limit + 16) & ~15
        block = memoryview(self.pool.borrow(28 * rows))
        self.fixed = [block[start * rows : end * rows] for start, end in _FIXED]
        self.offset_column = raw.int64_address(self.fixed[0])
        self.timestamp_column = raw.int64_address(self.fixed[1])
        self.timestamp_type_column = raw.int32_address(self.fixed[2])
        self.partition_column = raw.int32_address(self.fixed[3])
        self.header_offsets = raw.int32_address(self.fixed[4])
        self.header_offsets[0] = 0

    def append(
        self,
        records: BytesLike,
        partition: int,
        from_offset: int = 0,
        to_offset: int | None = None,
        position: int = 0,
        aborted: AbortedTransactions | None = None,
        check_crc: bool = True,
    ) -> int:
        """Decode the batches in records[position:], offsets in [from_offset, to_offset) only.

        Returns where it stopped: the end; a last batch that is cut off; the batch at which a limit was met (`full`);
        or the first one at or beyond `to_offset`. Markers are left out, and what `aborted` hides. Raises
        CorruptBatch or InvalidRecord at a bad batch: the rows before it stay, next_offset is its first offset.
        """
        last = _INT64_MAX if to_offset is None else to_offset
        self.full = False
        length = len(records)
        if self.records is not records or self.record_position != position or self.next_offset != from_offset:
            self.is_waiting = False
            self.reader = None  # otherwise: go on in the middle of the batch where the row limit was met
        self.next_offset = from_offset
        while self.next_offset < last and length - position >= HEADER_SIZE:
            if self.reader is None:
                header = read_header(records, position)
                if header.size > length - position:
                    break
                if header.base_offset >= last:
                    self.next_offset = last
                    break
                hidden = header.is_control if aborted is None else aborted.hides(header, records, position)
                if hidden or header.next_offset <= from_offset or header.count == 0:
                    self.next_offset = max(header.next_offset, from_offset)
                    position += header.size
                    continue
                if not self._open(records, position, check_crc):
                    break
            elif self.is_waiting or self.rows >= self.row_limit:
                self.full = True
                break
            if not self._take_rows(partition, from_offset, last):
                self.full = True
                break
            position += self._close_batch()
        return position

    def _open(self, records: BytesLike, position: int, check_crc: bool) -> bool:
        """Start on the batch at `position`; False when there is no room for it in these columns."""
        if self.rows >= self.row_limit:
            self.full = True
            return False
        self.reader = None
        header, payload = open_batch(records, position, -1, check_crc, self.max_payload_size, self.scratch)
        compressed = header.compression != 0
        start = 0 if compressed else position + HEADER_SIZE
        end = len(payload) if compressed else position + header.size
        if end - start > self.max_payload_size:
            raise CorruptBatch(f"a batch of {end - start} bytes of records, {self.max_payload_size} are allowed")
        used = self.keys.offsets[self.rows] + self.values.offsets[self.rows]
        if self.with_headers:
            used += (
                self.header_keys.offsets[self.header_keys.rows] + self.header_values.offsets[self.header_values.rows]
            )
        view = memoryview(payload)
        reader = RecordReader.__new__(RecordReader)
        reader.open(view, start, end, header.count, header.base_timestamp, header.last_offset_delta)
        self.reader = reader
        self.header = header
        self.records = records
        self.record_position = position
        if self.rows and used + (end - start) > self.byte_limit:
            self.full = self.is_waiting = True
            return False
        self._reserve(header.count, end - start)
        return True

    def _take_rows(self, partition: int, from_offset: int, to_offset: int) -> bool:
        """Copy the rows of the open batch; True when it is done with. A bad record takes all its rows back."""
        first_row = self.rows
        header_rows = self.header_keys.rows
        try:
            return self._copy_rows(partition, from_offset, to_offset)
        except InvalidRecord:
            self.next_offset = max(self.header.base_offset, from_offset)
            self.keys.rows = self.values.rows = self.scanned + 1
            self.keys.cut_to(first_row)
            self.values.cut_to(first_row)
            self.header_keys.cut_to(header_rows)
            self.header_values.cut_to(header_rows)
            self.rows = first_row
            self.reader = None
            raise

    def _copy_rows(self, partition: int, from_offset: int, to_offset: int) -> bool:
        """The inner loop: everything it reads was checked by the reader, everything it writes reserved by _open."""
        reader = self.reader
        data = reader.data
        header = self.header
        base_offset = header.base_offset
        timestamp_type = header.timestamp_type
        keys = self.keys
        values = self.values
        key_data = keys.data
        key_offsets = keys.offsets
        value_data = values.data
        value_offsets = values.offsets
        offsets = self.offset_column
        timestamps = self.timestamp_column
        timestamp_types = self.timestamp_type_column
        partitions = self.partition_column
        row = self.rows
        key_at = key_offsets[row]
        value_at = value_offsets[row]
        done = False
        while row < self.row_limit:
            self.scanned = row
            if not reader.next_record():
                self.next_offset = base_offset + header.last_offset_delta + 1
                done = True
                break
            offset = base_offset + reader.offset_delta
            if offset < from_offset:
                continue
            if offset >= to_offset:
                self.next_offset = to_offset
                done = True
                break
            length = reader.key_length
            if length > 0:
                raw.copy(key_data, key_at, data, reader.key_start, length)
                key_at += length
            elif length < 0:
                keys.set_null(row)
            length = reader.value_length
            if length > 0:
                raw.copy(value_data, value_at, data, reader.value_start, length)
                value_at += length
            elif length < 0:
                values.set_null(row)
            offsets[row] = offset
            timestamps[row] = _microseconds(header.max_timestamp if timestamp_type else reader.timestamp)
            timestamp_types[row] = timestamp_type
            partitions[row] = partition
            if self.with_headers:
                self._copy_headers(row)
            self.next_offset = offset + 1
            row += 1
            key_offsets[row] = key_at
            value_offsets[row] = value_at
        self.rows = row
        keys.rows = row
        values.rows = row
        return done

    def _copy_headers(self, row: int) -> None:
        reader = self.reader
        if reader.header_count:
            data = reader.data
            room = reader.limit - reader.headers_start
            self.header_keys.reserve(reader.header_count, room)
            self.header_values.reserve(reader.header_count, room)
            reader.start_headers()
            for _ in range(reader.header_count):
                reader.next_header()
                if raw.is_text(data, reader.key_start, reader.key_length):
                    self.header_keys.append(data, reader.key_start, reader.key_length)
                else:
                    self._append_repaired()
                self.header_values.append(data, reader.value_start, reader.value_length)
        self.header_offsets[row + 1] = self.header_keys.rows

    def _append_repaired(self) -> None:
        """Add a header's key that is no UTF-8 with U+FFFD in place of what is wrong: three bytes for one at most."""
        reader = self.reader
        keys = self.header_keys
        if keys.offsets[keys.rows] + 3 * (reader.end - reader.headers_start) > 2 * MAX_BYTES - 1:
            raise InvalidRecord(f"record {reader.index - 1}: a header key that is not UTF-8")
        keys.reserve(reader.header_count, 3 * (reader.limit - reader.headers_start))
        start = reader.key_start
        text = memory.load_bytes(reader.data, start, start + reader.key_length).decode("utf-8", "replace").encode()
        keys.append(raw.address(memoryview(text)), 0, len(text))

    def _close_batch(self) -> int:
        """Let go of the open batch; returns its size."""
        self.reader = None
        return self.header.batch_length + LOG_OVERHEAD  # type: ignore[no-any-return]

    def finish(self) -> Columns:
        """The rows so far; the decoder goes on with none, in other buffers."""
        rows = self.rows
        headers = None
        if self.with_headers:
            count = self.header_keys.rows
            headers = HeadersColumn(
                self.fixed[4][: 4 * rows + 4], self.header_keys.finish(), self.header_values.finish(), count
            )
        columns = Columns(
            rows,
            self.keys.finish(),
            self.values.finish(),
            self.fixed[0][: 8 * rows],
            self.fixed[1][: 8 * rows],
            self.fixed[2][: 4 * rows],
            self.fixed[3][: 4 * rows],
            headers,
        )
        self.rows = 0
        self.full = False
        self._borrow()
        if self.reader is not None:
            self._reserve(self.header.count, self.reader.end - self.reader.limit)
            self.is_waiting = False
        return columns

    def _reserve(self, records: int, payload_bytes: int) -> None:
        """Room for a batch's rows (and the one that may be found bad behind them) and bytes."""
        rows = min(records, self.row_limit - self.rows) + 1
        self.keys.reserve(rows, payload_bytes)
        self.values.reserve(rows, payload_bytes)


def _microseconds(milliseconds: int) -> int:
    """Timestamps beyond the range of 64 bits become its ends."""
    if milliseconds > _MAX_MILLISECONDS:
        return _INT64_MAX
    if milliseconds < -_MAX_MILLISECONDS:
        return -_INT64_MAX
    return milliseconds * 1000
