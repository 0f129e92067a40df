# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Columns in Arrow's layout (buffers.py) to record batches, partitioned as Java's producer would.

Rows keep their order within a partition. A row's partition: the one given, else by its key's hash, else (the key is
shorter than `shortest_key`; no key counts as one of -1 bytes) the partition of the batch that such rows are being
collected in, which changes whenever that batch is full.
"""

from dataclasses import dataclass

from kbroker.protocol.records import raw
from kbroker.protocol.records.batch import increment_sequence
from kbroker.protocol.records.buffers import BinaryColumn, Buffer, HeadersColumn
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.errors import InvalidRecord
from kbroker.protocol.records.partitioner import KeyPartitioner


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A finished batch and where its rows came from."""

    partition: int
    count: int
    batch: bytearray
    rows: list[int]
    """Index of the first and of the last row it holds, counted over all that was appended."""
    base_sequence: int


class BinaryView:
    """A BinaryColumn with its buffers opened and checked: no offset may point outside."""

    __slots__ = ("data", "data_view", "is_null", "offsets", "offsets_view", "rows", "validity", "validity_view")

    def __init__(self, column: BinaryColumn, rows: int) -> None:
        self.rows = rows
        self.offsets_view = _opened(column.offsets, rows + 1, 4)
        self.offsets = raw.int32_address(self.offsets_view)
        self.data_view = memoryview(column.data).cast("B") if len(column.data) else memoryview(b"")
        self.data = raw.address(self.data_view)
        self.is_null = column.validity is not None and column.null_count != 0
        self.validity_view = memoryview(b"")
        if self.is_null and column.validity is not None:
            self.validity_view = memoryview(column.validity).cast("B")
            if len(self.validity_view) < (rows + 7) // 8:
                raise ValueError(f"{len(self.validity_view)} bytes of validity are too few for {rows} rows")
        self.validity = raw.address(self.validity_view)
        self._check(rows)

    def _check(self, rows: int) -> None:
        offsets = self.offsets
        if offsets[0] < 0 or offsets[rows] > len(self.data_view):
            raise ValueError(f"offsets {offsets[0]}..{offsets[rows]} of a column of {len(self.data_view)} bytes")
        for row in range(rows):
            if offsets[row + 1] < offsets[row]:
                raise ValueError(f"offsets go back at row {row}")

    def length(self, row: int) -> int:
        """Bytes of the row's value, -1 for null."""
        if self.is_null and not self.validity[row >> 3] & (1 << (row & 7)):
            return -1
        return self.offsets[row + 1] - self.offsets[row]


class ColumnEncoder:
    """Collects rows into one open batch per partition; `take` gives what is full, `finish` the rest too.

    With a producer id the batches carry sequences, counted on from `sequences` (one per partition).
    """

    def __init__(
        self,
        partitions: int,
        batch_size: int = 1 << 20,
        compression: int = 0,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        sequences: list[int] | None = None,
        hashing: int = 0,
        shortest_key: int = 0,
        anywhere: list[int] | None = None,
        transactional: bool = False,
    ) -> None:
        self.partitions = partitions
        self.partitioner = KeyPartitioner(partitions, hashing)
        self.shortest_key = shortest_key
        self.batch_size = batch_size
        self.compression = compression
        self.level = level
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.transactional = transactional
        self.sequences = [0] * partitions if sequences is None else list(sequences)
        if len(self.sequences) != partitions:
            raise ValueError(f"{len(self.sequences)} sequences for {partitions} partitions")
        self.usual_size = 0
        """Bytes of the last batch: the room that the next one starts with."""
        self.anywhere = list(range(partitions)) if not anywhere else list(anywhere)
        """Partitions of the rows that no key sends anywhere, in turn."""
        self.turn = 0
        self.sticky = self.anywhere[0]
        self.rows_seen = 0
        self.builders: list[BatchBuilder | None] = [None] * partitions
        self.row_numbers = [memoryview(bytearray(8 * partitions)) for _ in range(2)]
        self.first_rows = raw.int64_address(self.row_numbers[0])
        self.last_rows = raw.int64_address(self.row_numbers[1])
        self.done: list[EncodedBatch] = []

    def append(
        self,
        rows: int,
        key: BinaryColumn | None,
        value: BinaryColumn | None,
        timestamps: Buffer | int = -1,
        headers: HeadersColumn | None = None,
        partition: Buffer | None = None,
    ) -> None:
        """Add rows. Timestamps in ms (int64), or one for all; `partition` (int32) wins over the key.

        Raises ValueError when a buffer is too short or a partition does not exist; rows before it are kept.
        """
        keys = BinaryView(_no_values(rows) if key is None else key, rows)
        values = BinaryView(_no_values(rows) if value is None else value, rows)
        constant = timestamps if isinstance(timestamps, int) else -1
        time_view = memoryview(b"") if isinstance(timestamps, int) else _opened(timestamps, rows, 8)
        times = raw.int64_address(time_view)
        has_times = not isinstance(timestamps, int)
        target_view = memoryview(b"") if partition is None else _opened(partition, rows, 4)
        targets = raw.int32_address(target_view)
        has_targets = partition is not None
        header_rows = _HeaderRows(headers, rows)
        for row in range(rows):
            key_length = keys.length(row)
            if has_targets:
                target = targets[row]
                if target < 0 or target >= self.partitions:
                    raise ValueError(f"row {row}: there is no partition {target} of {self.partitions}")
            elif key_length >= self.shortest_key:
                target = self.partitioner.of_range(keys.data, keys.offsets[row], max(key_length, 0))
            else:
                target = self.sticky
            self._add(row, target, times[row] if has_times else constant, keys, key_length, values, header_rows)
        self.rows_seen += rows

    def _add(
        self,
        row: int,
        target: int,
        timestamp: int,
        keys: BinaryView,
        key_length: int,
        values: BinaryView,
        headers: "_HeaderRows",
    ) -> None:
        """Put the row into its partition's batch, or into a new one when that is full."""
        headers_length = headers.encode(row)
        for _ in range(2):
            builder = self.builders[target]
            if builder is None:
                builder = BatchBuilder(self.batch_size, self.compression, self.level, self.usual_size)
                self.builders[target] = builder
            if builder.count == 0:
                self.first_rows[target] = self.rows_seen + row
            if builder.append_slices(
                timestamp,
                keys.data,
                keys.offsets[row],
                key_length,
                values.data,
                values.offsets[row],
                values.length(row),
                raw.bytearray_address(headers.encoded),
                headers_length,
            ):
                break
            self._close(target)
        self.last_rows[target] = self.rows_seen + row

    def _close(self, target: int) -> None:
        """Build the partition's open batch."""
        builder = self.builders[target]
        self.builders[target] = None
        if builder is None or builder.count == 0:
            return
        count = builder.count
        self.usual_size = builder.size
        sequence = self.sequences[target] if self.producer_id >= 0 else -1
        batch = builder.build(self.producer_id, self.producer_epoch, sequence, self.transactional)
        if self.producer_id >= 0:
            self.sequences[target] = increment_sequence(sequence, count)
        self.done.append(
            EncodedBatch(target, count, batch, [self.first_rows[target], self.last_rows[target]], sequence)
        )
        if target == self.sticky:
            self.turn = (self.turn + 1) % len(self.anywhere)
            self.sticky = self.anywhere[self.turn]

    def take(self) -> list[EncodedBatch]:
        """The batches that are full."""
        done = self.done
        self.done = []
        return done

    def finish(self) -> list[EncodedBatch]:
        """All batches not taken yet, the open ones included."""
        for target in range(self.partitions):
            self._close(target)
        return self.take()


class _HeaderRows:
    """The headers of a row, encoded as they stand in a record into a buffer that grows."""

    def __init__(self, headers: HeadersColumn | None, rows: int) -> None:
        self.encoded = bytearray(64)  # of no headers: their number, 0
        self.is_empty = headers is None
        if headers is None:
            return
        self.offsets_view = _opened(headers.offsets, rows + 1, 4)
        self.offsets = raw.int32_address(self.offsets_view)
        self.keys = BinaryView(headers.keys, headers.count)
        self.values = BinaryView(headers.values, headers.count)
        if self.offsets[0] < 0 or self.offsets[rows] > headers.count:
            raise ValueError(f"header offsets {self.offsets[0]}..{self.offsets[rows]} of {headers.count} headers")

    def encode(self, row: int) -> int:
        """Write the row's headers, their count in front, to `encoded`; returns their length."""
        if self.is_empty:
            return 1
        first, last = self.offsets[row], self.offsets[row + 1]
        if first < 0 or last < first or last > self.keys.rows:
            raise ValueError(f"row {row}: header offsets {first}..{last} of {self.keys.rows} headers")
        keys = self.keys
        values = self.values
        size = raw.varint_size(last - first)
        for index in range(first, last):
            length = keys.length(index)
            if length < 0:
                raise InvalidRecord(f"row {row}: a header without a key")
            if not raw.is_text(keys.data, keys.offsets[index], length):
                raise InvalidRecord(f"row {row}: a header key that is not UTF-8")
            size += 10 + length + max(values.length(index), 0)
        if size > len(self.encoded):
            raw.resize(self.encoded, 2 * size)
        target = raw.bytearray_address(self.encoded)
        at = raw.put_varint(target, 0, last - first)
        for index in range(first, last):
            length = keys.length(index)
            at = raw.put_varint(target, at, length)
            raw.copy(target, at, keys.data, keys.offsets[index], length)
            at += length
            length = values.length(index)
            at = raw.put_varint(target, at, length)
            if length > 0:
                raw.copy(target, at, values.data, values.offsets[index], length)
                at += length
        return at


def _no_values(rows: int) -> BinaryColumn:
    return BinaryColumn(bytes(4 * (rows + 1)), b"", bytes((rows + 7) // 8), rows)


def _opened(buffer: Buffer, count: int, width: int) -> memoryview:
    """So many numbers of `width` bytes."""
    view = memoryview(buffer).cast("B")
    if len(view) < count * width:
        raise ValueError(f"{len(view)} bytes are too few for {count} numbers of {width} bytes")
    return raw.aligned(view[: count * width], width)
