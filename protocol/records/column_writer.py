# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Columns in Arrow's layout (buffers.py) to record batches, partitioned as Java's producer would.

Rows keep their order within a partition. A row's partition: the one given, else by its key's murmur2, else (no key)
the partition of the batch that keyless rows are being collected in, which changes whenever that batch is full.
"""

from dataclasses import dataclass

from protocol.records.batch import increment_sequence
from protocol.records.buffers import BinaryColumn, Buffer, HeadersColumn
from protocol.records.builder import BatchBuilder, encode_varint
from protocol.records.errors import InvalidRecord
from protocol.records.partitioner import KeyPartitioner

_EMPTY_HEADERS = b"\x00"


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

    __slots__ = ("data", "is_null", "offsets", "rows", "validity")

    def __init__(self, column: BinaryColumn, rows: int) -> None:
        offsets = memoryview(column.offsets).cast("B")
        if len(offsets) < 4 * (rows + 1):
            raise ValueError(f"{len(offsets)} bytes of offsets are too few for {rows} rows")
        self.offsets = offsets[: 4 * (rows + 1)].cast("i")
        self.rows = rows
        self.data = memoryview(column.data).cast("B") if len(column.data) else b""
        self.is_null = column.validity is not None and column.null_count != 0
        self.validity = b""
        if self.is_null and column.validity is not None:
            self.validity = memoryview(column.validity).cast("B")  # type: ignore[assignment]
            if len(self.validity) < (rows + 7) // 8:
                raise ValueError(f"{len(self.validity)} bytes of validity are too few for {rows} rows")
        self._check(rows)

    def _check(self, rows: int) -> None:
        offsets = self.offsets
        if offsets[0] < 0 or offsets[rows] > len(self.data):
            raise ValueError(f"offsets {offsets[0]}..{offsets[rows]} of a column of {len(self.data)} bytes")
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
    ) -> None:
        self.partitions = partitions
        self.partitioner = KeyPartitioner(partitions)
        self.batch_size = batch_size
        self.compression = compression
        self.level = level
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequences = [0] * partitions if sequences is None else list(sequences)
        if len(self.sequences) != partitions:
            raise ValueError(f"{len(self.sequences)} sequences for {partitions} partitions")
        self.sticky = 0
        self.rows_seen = 0
        self.builders: list[BatchBuilder | None] = [None] * partitions
        self.first_rows = [0] * partitions
        self.last_rows = [0] * partitions
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
        times = None if isinstance(timestamps, int) else _opened(timestamps, rows, 8, "q")
        targets = None if partition is None else _opened(partition, rows, 4, "i")
        header_rows = _HeaderRows(headers, rows) if headers is not None else None
        for row in range(rows):
            key_length = keys.length(row)
            if targets is not None:
                target = targets[row]
                if target < 0 or target >= self.partitions:
                    raise ValueError(f"row {row}: there is no partition {target} of {self.partitions}")
            elif key_length >= 0:
                target = self.partitioner.of_range(keys.data, keys.offsets[row], key_length)
            else:
                target = self.sticky
            timestamp = constant if times is None else times[row]
            blob = _EMPTY_HEADERS if header_rows is None else header_rows.encode(row)
            self._add(row, target, timestamp, keys, key_length, values, values.length(row), blob)
        self.rows_seen += rows

    def _add(
        self,
        row: int,
        target: int,
        timestamp: int,
        keys: BinaryView,
        key_length: int,
        values: BinaryView,
        value_length: int,
        blob: bytes,
    ) -> None:
        """Put the row into its partition's batch, or into a new one when that is full."""
        for _ in range(2):
            builder = self.builders[target]
            if builder is None:
                builder = BatchBuilder(self.batch_size, self.compression, self.level)
                self.builders[target] = builder
                self.first_rows[target] = self.rows_seen + row
            if builder.append_slices(
                timestamp,
                keys.data,
                keys.offsets[row],
                key_length,
                values.data,
                values.offsets[row],
                value_length,
                blob,
                len(blob),
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
        sequence = self.sequences[target] if self.producer_id >= 0 else -1
        batch = builder.build(self.producer_id, self.producer_epoch, sequence)
        if self.producer_id >= 0:
            self.sequences[target] = increment_sequence(sequence, count)
        self.done.append(
            EncodedBatch(target, count, batch, [self.first_rows[target], self.last_rows[target]], sequence)
        )
        if target == self.sticky:
            self.sticky = (target + 1) % self.partitions

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
    """The headers of each row, encoded as they stand in a record."""

    def __init__(self, headers: HeadersColumn, rows: int) -> None:
        self.offsets = _opened(headers.offsets, rows + 1, 4, "i")
        self.keys = BinaryView(headers.keys, headers.count)
        self.values = BinaryView(headers.values, headers.count)
        if self.offsets[0] < 0 or self.offsets[rows] > headers.count:
            raise ValueError(f"header offsets {self.offsets[0]}..{self.offsets[rows]} of {headers.count} headers")

    def encode(self, row: int) -> bytes:
        """The count, then each header."""
        first, last = self.offsets[row], self.offsets[row + 1]
        if first == last:
            return _EMPTY_HEADERS
        if first < 0 or last < first or last > self.keys.rows:
            raise ValueError(f"row {row}: header offsets {first}..{last} of {self.keys.rows} headers")
        parts = [encode_varint(last - first)]
        for index in range(first, last):
            for column in (self.keys, self.values):
                length = column.length(index)
                if length < 0 and column is self.keys:
                    raise InvalidRecord(f"row {row}: a header without a key")
                parts.append(encode_varint(length))
                start = column.offsets[index]
                parts.append(bytes(column.data[start : start + max(length, 0)]))
        return b"".join(parts)


def _no_values(rows: int) -> BinaryColumn:
    return BinaryColumn(bytes(4 * (rows + 1)), b"", bytes((rows + 7) // 8), rows)


def _opened(buffer: Buffer, count: int, width: int, code: str) -> memoryview:
    view = memoryview(buffer).cast("B")
    if len(view) < count * width:
        raise ValueError(f"{len(view)} bytes are too few for {count} numbers of {width} bytes")
    return view[: count * width].cast(code)  # type: ignore[call-overload, no-any-return]
