"""Lies of every kind behind a right CRC: readers answer or refuse, compiled as interpreted, and nothing else."""

from array import array
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.protocol.records import batch, column_writer, columns, record
from kbroker.protocol.records.buffers import BinaryColumn, HeadersColumn
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from tests.protocol.records import interpreted
from tests.protocol.records.batches import (
    INT64_MAX,
    Row,
    around,
    batch_of,
    codecs,
    column_of,
    damaged_batches,
    headers_column_of,
    outcome,
    rows,
    short_rows,
    table,
)

plain = interpreted.load()
fuzzed = settings(max_examples=80, deadline=None)
FAR = 2**62


def summary_of(module: ModuleType, data: bytes) -> Any:
    header, summary = module.check_batch(data)
    numbers = None if summary is None else [getattr(summary, name) for name in sorted(SUMMARY)]
    return repr(header), numbers, module.split_batches(data)


SUMMARY = ("max_timestamp", "offset_of_max_timestamp", "min_timestamp", "has_null_key")


@pytest.mark.slow
@fuzzed
@given(data=damaged_batches(), cut=st.integers(-3, 90), before=st.integers(0, 3))
def test_a_check_answers_or_refuses(data: bytes, cut: int, before: int) -> None:
    for damaged in (data, data[:cut], bytes(before) + data):
        position = before if len(damaged) > len(data) else 0
        expected = outcome(lambda: summary_of(plain["batch"], damaged))  # noqa: B023
        assert outcome(lambda: summary_of(batch, damaged)) == expected  # noqa: B023
        expected = outcome(lambda: repr(plain["batch"].check_batch(damaged, position)[0]))  # noqa: B023
        assert outcome(lambda: repr(batch.check_batch(damaged, position)[0])) == expected  # noqa: B023
    whole = outcome(lambda: vars_of(batch.validate_records(data, 0, len(data), 1 << 20)))
    assert whole == outcome(lambda: vars_of(plain["batch"].validate_records(data, 0, len(data), 1 << 20)))


def vars_of(summary: Any) -> list[Any]:
    return [getattr(summary, name) for name in SUMMARY]


@pytest.mark.slow
@fuzzed
@given(data=damaged_batches(), from_offset=around(0, 0, 1, 6, INT64_MAX), as_view=st.booleans())
def test_records_are_read_or_refused(data: bytes, from_offset: int, as_view: bool) -> None:
    given = memoryview(bytearray(data)) if as_view else data

    def decode(module: ModuleType) -> Any:
        found = module.decode_batch(given, from_offset=from_offset, topic="t", partition=2, max_payload_size=1 << 20)
        return [r._fields() for r in found]

    assert outcome(lambda: decode(record)) == outcome(lambda: decode(plain["record"]))


def drain(
    decoder: Any, data: bytes | memoryview, from_offset: int, to_offset: int | None, finish_always: bool
) -> tuple[list[Any], Any]:
    """Decode a whole stream as a consumer does: rows, then how it ended."""
    found: list[Any] = []
    position = 0
    decoder_offset = from_offset
    for _ in range(200):
        try:
            position = decoder.append(data, 7, decoder_offset, to_offset, position)
        except (CorruptBatch, InvalidRecord) as error:
            found += table(decoder.finish())
            return found, (type(error).__name__, str(error), decoder.next_offset)
        decoder_offset = decoder.next_offset
        if not decoder.full:
            found += table(decoder.finish())
            return found, (position, decoder_offset)
        if finish_always or decoder.rows:
            found += table(decoder.finish())
    raise AssertionError("no end to it")


offsets = around(0, 0, 3, 9)
whole_batches = st.builds(lambda held, at, codec: batch_of(held, codec, base_offset=at), short_rows, offsets, codecs)
streams = st.lists(damaged_batches(offsets) | whole_batches, min_size=1, max_size=4)


@pytest.mark.slow
@fuzzed
@given(
    parts=streams,
    row_limit=st.integers(1, 30),
    byte_limit=around(0, 1, 50, 400, 1 << 20),
    with_headers=st.booleans(),
    from_offset=around(0, 0, 1, 4, 11),
    to_offset=st.none() | st.integers(0, 20) | around(INT64_MAX),
    cut=around(0, 0, 1, 30),
)
def test_columns_are_read_or_refused_as_the_records_are(
    parts: list[bytes],
    row_limit: int,
    byte_limit: int,
    with_headers: bool,
    from_offset: int,
    to_offset: int | None,
    cut: int,
) -> None:
    stream = b"".join(parts)
    stream = stream[: len(stream) - cut]
    outcomes = []
    for module in (columns, plain["columns"]):
        decoder = module.ColumnDecoder(row_limit, byte_limit, with_headers, max_payload_size=1 << 20)
        found = drain(decoder, stream, from_offset, to_offset, True)
        again = drain(decoder, batch_of(GOOD), 0, None, True)  # whatever happened, it goes on with good batches
        outcomes.append((found, again))
    assert outcomes[0] == outcomes[1]
    assert [(row[4], row[5]) for row in outcomes[0][1][0]] == [(key, value) for key, value, _, _ in GOOD]


GOOD: list[Row] = [(None, b"one", [("h", b"1")], 5), (b"k", None, [], 6), (b"", b"x" * 90, [("", None)] * 9, 7)]


@pytest.mark.slow
@fuzzed
@given(held=rows, codec=codecs, row_limit=st.integers(1, 45), first=st.integers(0, 41), last=st.integers(0, 41))
def test_columns_and_records_agree_wherever_the_limits_fall(
    held: list[Row], codec: int, row_limit: int, first: int, last: int
) -> None:
    data = batch_of(held, codec)
    expected = [
        (r.offset, min(r.timestamp * 1000, INT64_MAX), 0, 7, r.key, r.value, list(r.headers))
        for r in record.decode_batch(data)
        if first <= r.offset < last
    ]
    found, _ = drain(columns.ColumnDecoder(row_limit, with_headers=True), data, first, last, True)
    assert found == expected


@pytest.mark.slow
@fuzzed
@given(good=st.lists(short_rows, min_size=1, max_size=3), bad=damaged_batches(around(90)), row_limit=st.integers(1, 90))
def test_a_bad_batch_takes_back_only_its_own_rows(good: list[list[Row]], bad: bytes, row_limit: int) -> None:
    if not isinstance(outcome(lambda: record.decode_batch(bad, max_payload_size=1 << 20)), tuple):
        return
    stream = b""
    held: list[Row] = []
    for part in good:
        stream += batch_of(part, base_offset=len(held))
        held += part
    decoder = columns.ColumnDecoder(row_limit, with_headers=True, max_payload_size=1 << 20)
    found, ending = drain(decoder, stream + bad, 0, None, False)
    expected = [(key, value) for key, value, _, _ in held]
    assert [row[4:6] for row in found][: len(held)] == expected
    if row_limit == 90:  # the bad one is decoded in one go: nothing of it was handed over
        assert len(found) == len(held)
    assert len(ending) in (2, 3)


def lying_column(random: Random, count: int, null: bytes | None = None) -> BinaryColumn:
    """A column whose offsets, data or validity may be too short or point anywhere."""
    column = column_of([random.choice((null, b"", b"text", random.randbytes(30))) for _ in range(count)])
    offsets, data, validity = bytearray(column.offsets), column.data, column.validity
    match random.randrange(10):
        case 0:
            at = 4 * random.randrange(count + 1)
            number = random.choice((-(2**31), -1, 0, 1, 41, 2**31 - 1))
            offsets[at : at + 4] = number.to_bytes(4, "little", signed=True)
        case 1:
            del offsets[random.randrange(4 * count + 1) :]
        case 2:
            data = data[: random.randrange(len(data) + 1)]
        case 3:
            validity = b""
    return BinaryColumn(bytes(offsets), data, validity, column.null_count)


def lying_headers(random: Random, count: int) -> HeadersColumn:
    """Headers of `count` rows, 30 in all, whose offsets may go back or beyond."""
    numbers = [random.randint(0, 30) for _ in range(count + 1)]
    if random.random() < 0.8:
        numbers.sort()
    if random.random() < 0.1:
        numbers[random.randrange(count + 1)] = random.choice((-1, 31, 2**31 - 1))
    keys = lying_column(random, 30, b"" if random.random() < 0.8 else None)
    return HeadersColumn(array("i", numbers).tobytes(), keys, lying_column(random, 30), 30)


@pytest.mark.slow
@fuzzed
@given(seed=st.integers(0, 2**40), count=st.integers(0, 20), partitions=st.integers(1, 4), codec=codecs)
def test_columns_are_written_or_refused(seed: int, count: int, partitions: int, codec: int) -> None:
    random = Random(seed)
    key = random.choice((None, lying_column(random, count)))
    value = random.choice((None, lying_column(random, count)))
    headers = random.choice((None, lying_headers(random, count)))
    targets = array("i", [random.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 0, partitions - 1, 3, -1)) for _ in range(count)])
    partition = random.choice((None, targets.tobytes(), targets.tobytes()[1:]))
    times = random.choice((-2, -1, FAR, random.randbytes(8 * count), bytes(8 * count)))
    batch_size = random.choice((1, 100, 1000))
    outcomes = []
    for module in (column_writer, plain["column_writer"]):
        encoder = module.ColumnEncoder(partitions, batch_size, codec, producer_id=3, producer_epoch=0)
        try:
            encoder.append(count, key, value, times, headers, partition)
            ending = ""
        except (ValueError, InvalidRecord) as error:
            ending = str(error)
        encoder.append(3, None, column_of([b"a", None, b""]), 4)
        written = [(b.partition, b.count, bytes(b.batch), b.rows, b.base_sequence) for b in encoder.finish()]
        outcomes.append((ending, written, encoder.sequences, encoder.rows_seen))
    assert outcomes[0] == outcomes[1]
    for _, number, made, _, _ in outcomes[0][1]:
        assert len(record.decode_batch(made)) == number


@pytest.mark.slow
@fuzzed
@given(held=rows, batch_size=around(1, 500, 1 << 20), codec=codecs)
def test_what_is_written_from_columns_is_read_back(held: list[Row], batch_size: int, codec: int) -> None:
    encoder = column_writer.ColumnEncoder(1, batch_size, codec)
    timestamps = memoryview(bytearray(8 * len(held))).cast("q")
    for index, row in enumerate(held):
        timestamps[index] = row[3]
    encoder.append(
        len(held),
        column_of([row[0] for row in held]),
        column_of([row[1] for row in held]),
        timestamps,
        headers_column_of([row[2] for row in held]),
    )
    found = [r for made in encoder.finish() for r in record.decode_batch(made.batch)]
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in found] == held


@pytest.mark.parametrize("module", [columns, plain["columns"]], ids=["compiled", "interpreted"])
def test_a_null_at_the_edge_of_the_room_is_kept(module: ModuleType) -> None:
    for count in (1, 7, 8, 9, 63, 64, 65, 127, 128, 129):
        held: list[Row] = [(b"k", b"v", [], 1)] * (count - 1) + [(None, None, [("h", None)], 1)]
        decoder = module.ColumnDecoder(count, with_headers=True)
        decoder.append(batch_of(held), 0)
        found = table(decoder.finish())
        assert [row[4] for row in found] == [b"k"] * (count - 1) + [None]
