"""Messages of magic 0 and 1, written as the brokers and producers of their time did."""

import struct
from zlib import crc32

from kbroker.protocol.records.compression import CompressionType, compress

Row = tuple[bytes | None, bytes | None]


def message(
    magic: int,
    offset: int,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    timestamp: int = -1,
    attributes: int = 0,
) -> bytes:
    """One message; the timestamp counts with magic 1 only."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for cell in (key, value):
        body += struct.pack(">i", -1) if cell is None else struct.pack(">i", len(cell)) + cell
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def wrapper(
    magic: int,
    first_offset: int,
    rows: list[Row],
    codec: CompressionType,
    timestamps: list[int] | None = None,
    append_time: int | None = None,
    gaps: tuple[int, ...] = (),
) -> bytes:
    """A compressed message of some rows. `gaps`: numbers of rows that compaction has taken out."""
    times = timestamps or [-1] * len(rows)
    kept = [number for number in range(len(rows)) if number not in gaps]
    inner = b"".join(message(magic, (0 if magic else first_offset) + n, *rows[n], times[n]) for n in kept)
    attributes, timestamp = int(codec), max(times)
    if append_time is not None:
        attributes, timestamp = attributes | 8, append_time
    packed = bytes(compress(codec, inner))
    return message(magic, first_offset + kept[-1], None, packed, timestamp, attributes)
