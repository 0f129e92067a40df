"""Records as Parquet, written piece by piece: what was written is taken out at once."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet

from kbroker.client.arrow import SCHEMA_WITH_HEADERS
from kbroker.page.held import size_of
from kbroker.protocol.records.record import Record

GROUP_RECORDS = 20_000
GROUP_BYTES = 16 << 20
MOST_MS = ((1 << 63) - 1) // 1000
"""The file counts microseconds in 64 bits."""


class ParquetWriter:
    """Collects records into row groups; columns are those of the clients' batches."""

    def __init__(self) -> None:
        self._stream = _Drained()
        self._writer = pa.parquet.ParquetWriter(self._stream, SCHEMA_WITH_HEADERS, compression="zstd")
        self._waiting: list[Record] = []
        self._bytes = 0

    def write(self, records: Sequence[Record]) -> bytes:
        """Take records; returns what is ready to be sent."""
        self._waiting += records
        self._bytes += size_of(records)
        if len(self._waiting) >= GROUP_RECORDS or self._bytes >= GROUP_BYTES:
            self._write_group()
        return self._stream.take()

    def close(self) -> bytes:
        """Return the rest of the file."""
        if self._waiting:
            self._write_group()
        self._writer.close()
        pa.default_memory_pool().release_unused()  # else it keeps what the largest groups took
        return self._stream.take()

    def _write_group(self) -> None:
        records, self._waiting, self._bytes = self._waiting, [], 0
        columns = {
            "key": [record.key for record in records],
            "value": [record.value for record in records],
            "topic": [record.topic for record in records],
            "partition": [record.partition for record in records],
            "offset": [record.offset for record in records],
            "timestamp": [max(-MOST_MS, min(record.timestamp, MOST_MS)) * 1000 for record in records],
            "timestampType": [record.timestamp_type for record in records],
            "headers": [[{"key": name, "value": value} for name, value in record.headers] for record in records],
        }
        arrays = [pa.array(columns[each.name], each.type) for each in SCHEMA_WITH_HEADERS]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA_WITH_HEADERS))


class _Drained(io.RawIOBase):
    """A file whose bytes are taken away as they come, and that still knows where it is."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        """It is for writing."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._position

    def write(self, data: object) -> int:
        """Keep bytes until they are taken."""
        piece = bytes(data)  # type: ignore[call-overload]
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def take(self) -> bytes:
        """Return what was written since the last time."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken
