"""Kafka's own classes read our record batches and we read theirs, record by record, and both hash keys alike."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from kbroker.protocol.records.batch import check_batch, split_batches
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.column_writer import ColumnEncoder
from kbroker.protocol.records.columns import ColumnDecoder
from kbroker.protocol.records.compression import CompressionType
from kbroker.protocol.records.message_set import to_batches
from kbroker.protocol.records.partitioner import murmur2
from kbroker.protocol.records.record import decode_batch
from tests.fixtures.java import JavaTool
from tests.protocol.records.batches import (
    Row,
    batch_of,
    column_of,
    headers_column_of,
    row_of,
    row_text,
    table,
)
from tests.protocol.records.old_messages import message, wrapper
from tests.segment.batches import put_segment, reopen

pytestmark = pytest.mark.slow

PROGRAM = str(Path(__file__).with_name("Records.java"))
BASE_OFFSET = 9_000_000_000
CODECS = [codec.name.lower() for codec in CompressionType]


def random_rows(seed: int, count: int) -> list[Row]:
    """Records of every shape: null, empty, long, noise, repetitive; timestamps that jump back and forth."""
    random = Random(seed)

    def cell() -> bytes | None:
        return random.choice(
            (None, b"", b"key", random.randbytes(300), b"so it goes, " * 400, random.randbytes(70_000))
        )

    def headers() -> list[tuple[str, bytes | None]]:
        return [(random.choice(("", "trace", "grüße 𝄞")), cell()) for _ in range(random.choice((0, 0, 0, 1, 3)))]

    return [
        (cell(), cell(), headers(), random.choice((-1, 0, 1_700_000_000_000 + random.randrange(10**6), 2**40)))
        for _ in range(count)
    ]


ROWS = random_rows(1, 60)


def size_of(row: Row) -> int:
    return len(row_text(row)) // 2


def whole(codec: int) -> bytes:
    builder = BatchBuilder(1 << 30, codec)
    for key, value, headers, timestamp in ROWS:
        assert builder.append(key, value, headers, timestamp)
    return bytes(builder.build())


def from_columns(codec: int) -> bytes:
    """Several batches, of about 100 KiB each."""
    encoder = ColumnEncoder(1, 100_000, codec)
    timestamps = memoryview(bytearray(8 * len(ROWS))).cast("q")
    for index, row in enumerate(ROWS):
        timestamps[index] = row[3]
    encoder.append(
        len(ROWS),
        column_of([row[0] for row in ROWS]),
        column_of([row[1] for row in ROWS]),
        timestamps,
        headers_column_of([row[2] for row in ROWS]),
    )
    return b"".join(made.batch for made in encoder.finish())


def small(codec: int) -> bytes:
    """One batch of BatchBuilder's, a producer's, far into the log."""
    rows = [row for row in ROWS if size_of(row) < 10_000]
    return batch_of(rows, codec, base_offset=BASE_OFFSET, producer_id=4, producer_epoch=2, base_sequence=2**31 - 3)


def test_java_reads_our_batches_of_every_codec(java_tool: JavaTool) -> None:
    streams = [(codec, make(codec)) for codec in CompressionType for make in (whole, from_columns, small)]
    lines = java_tool(PROGRAM, "read", given="\n".join(stream.hex() for _, stream in streams)).splitlines()
    at = 0
    for codec, stream in streams:
        for position, size in split_batches(stream):
            header, _ = check_batch(stream, position, size)
            assert lines[at] == f"batch {codec.name.lower()} {header.base_offset}"
            rows = [(r.key, r.value, list(r.headers), r.timestamp) for r in decode_batch(stream, position, size)]
            assert [row_of(line) for line in lines[at + 1 : at + 1 + header.count]] == rows
            at += 1 + header.count
    assert at == len(lines)


@pytest.mark.parametrize("make", [whole, from_columns])
def test_what_java_reads_is_what_was_written(java_tool: JavaTool, make: object) -> None:
    assert callable(make)
    lines = java_tool(PROGRAM, "read", given=make(CompressionType.ZSTD).hex()).splitlines()
    assert [row_of(line) for line in lines if not line.startswith("batch")] == ROWS


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_javas_batches(java_tool: JavaTool, codec: str) -> None:
    data = bytes.fromhex(java_tool(PROGRAM, "write", codec, given="\n".join(map(row_text, ROWS))))
    header, _ = check_batch(data, 0, len(data))
    assert (header.count, header.compression) == (len(ROWS), CompressionType[codec.upper()])
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in decode_batch(data)] == ROWS
    decoder = ColumnDecoder(with_headers=True)
    decoder.append(data, 0)
    assert [row[4:] for row in table(decoder.finish())] == [row[:3] for row in ROWS]


def test_uncompressed_batches_are_javas_byte_for_byte(java_tool: JavaTool) -> None:
    data = bytes.fromhex(java_tool(PROGRAM, "write", "none", given="\n".join(map(row_text, ROWS))))
    assert data == whole(CompressionType.NONE)


OLD_ROWS: list[Row] = [(key, value, [], max(timestamp, 0)) for key, value, _, timestamp in ROWS[:30]]
OLD_CODECS = [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_we_keep_and_read_javas_messages_of_old(
    java_tool: JavaTool, tmp_path: Path, magic: int, codec: CompressionType
) -> None:
    given = "\n".join(map(row_text, OLD_ROWS))
    data = bytes.fromhex(java_tool(PROGRAM, "write", codec.name.lower(), str(magic), given=given))
    put_segment(tmp_path, 40, data)
    log = reopen(tmp_path)
    assert (log.log_end_offset, log.read(40, 1 << 24).read()) == (40 + len(OLD_ROWS), data)
    log.close()
    batches = to_batches(data)
    records = [record for at, size in split_batches(batches) for record in decode_batch(batches, at, size)]
    times = [row[3] if magic else -1 for row in OLD_ROWS]
    assert [(r.offset, r.timestamp, r.key, r.value) for r in records] == [
        (40 + n, times[n], row[0], row[1]) for n, row in enumerate(OLD_ROWS)
    ]


def test_java_reads_the_messages_of_old_that_our_tests_make(java_tool: JavaTool) -> None:
    pairs: list[tuple[bytes | None, bytes | None]] = [(b"k", b"1"), (None, b"2"), (b"", None)]
    for magic in (0, 1):
        made = [message(magic, 40 + n, *pair, 7) for n, pair in enumerate(pairs)]
        made += [wrapper(magic, 43, pairs, codec, [7, 7, 7]) for codec in OLD_CODECS[1:] if magic or codec != 3]
        lines = java_tool(PROGRAM, "read", given=b"".join(made).hex()).splitlines()
        rows = [row_of(line) for line in lines if not line.startswith("batch")]
        expected: list[tuple[Any, ...]] = [(*pair, [], 7 if magic else -1) for pair in pairs]
        assert rows == expected * (len(rows) // 3)
        assert len(rows) == 3 * (len(made) - 2)


def test_keys_hash_as_in_java(java_tool: JavaTool) -> None:
    random = Random(2)
    keys = [random.randbytes(length % 70) for length in range(2000)]
    hashes = java_tool(PROGRAM, "murmur2", given="\n".join("x" + key.hex() for key in keys)).split()
    assert [murmur2(key) for key in keys] == [int(number) for number in hashes]
