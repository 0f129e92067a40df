"""Record batches for tests: what they hold, whole ones, and ones whose structure lies while the CRC is right."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from kbroker.protocol.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, read_header, write_crc
from kbroker.protocol.records.buffers import BinaryColumn, Columns, HeadersColumn
from kbroker.protocol.records.builder import BatchBuilder, encode_varint
from kbroker.protocol.records.compression import compress
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord

Header = tuple[str, bytes | None]
Row = tuple[bytes | None, bytes | None, list[Header], int]
INT64_MAX = 2**63 - 1

binaries = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=9), binaries), max_size=3)
rows = st.lists(st.tuples(binaries, binaries, headers, st.integers(-1, 2**62)), min_size=1, max_size=40)
short_rows = st.lists(
    st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=70), headers, st.integers(-1, 2**40)),
    min_size=1,
    max_size=12,
)
codecs = st.sampled_from([0, 1, 2, 3, 4])


def batch_of(rows: list[Row], codec: int = 0, **fields: Any) -> bytes:
    """One batch of the rows, built by the compiled builder."""
    filling = BatchBuilder(1 << 20, codec)
    for key, value, extra, timestamp in rows:
        assert filling.append(key, value, extra, timestamp)
    return bytes(filling.build(**fields))


def around(*numbers: int) -> st.SearchStrategy[int]:
    return st.sampled_from(numbers)


ANY_OFFSET = around(0, 0, 0, 5, -1, INT64_MAX, INT64_MAX - 2**31, -(2**63))


def assemble(payload: bytes, codec: int, fields: dict[str, int]) -> bytes:
    """A batch of any payload under any header, its length and CRC right."""
    body = bytes(compress(codec, payload)) if fields.get("codec_bits", codec) == codec else payload
    batch = bytearray(HEADER_SIZE) + body
    HEADER.pack_into(
        batch,
        0,
        fields["base_offset"],
        len(batch) - LOG_OVERHEAD,
        -1,
        2,
        0,
        fields.get("codec_bits", codec) | fields["attributes"],
        fields["last_offset_delta"],
        fields["base_timestamp"],
        fields["max_timestamp"],
        -1,
        -1,
        -1,
        fields["count"],
    )
    write_crc(batch, 0)
    return bytes(batch)


@st.composite
def damaged_payloads(draw: Callable[..., Any], payload: bytes) -> bytes:
    """The payload with some bytes changed, cut out, put in, repeated, or its end missing."""
    damaged = bytearray(payload)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(len(damaged) - 1, 0)))
        length = draw(st.integers(1, 12))
        match draw(st.sampled_from(["set", "set", "cut", "put", "repeat", "end", "number"])):
            case "set":
                damaged[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "cut":
                del damaged[at : at + length]
            case "put":
                damaged[at:at] = draw(st.binary(min_size=1, max_size=12))
            case "repeat":
                damaged[at:at] = damaged[at : at + length]
            case "end":
                del damaged[at:]
            case "number":
                number = encode_varint(draw(around(-(2**31), -2, -1, 0, 1, 63, 64, 2**31 - 1, 2**62, -(2**63))))
                damaged[at : at + draw(st.integers(0, 2))] = number
    return bytes(damaged)


@st.composite
def damaged_batches(draw: Callable[..., Any], offsets: st.SearchStrategy[int] | None = None) -> bytes:
    """A batch that may lie anywhere but in its length and CRC, so that readers get to its structure."""
    held = draw(short_rows)
    whole = batch_of(held)
    header = read_header(whole)
    codec = draw(codecs)
    fields = {
        "base_offset": draw(
            around(0, 0, 0, 5, -1, INT64_MAX, INT64_MAX - 2**31, -(2**63)) if offsets is None else offsets
        ),
        "attributes": draw(around(0, 0, 0, 8, 16, 32)),
        "count": header.count,
        "last_offset_delta": header.last_offset_delta,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
    }
    lies = {
        "count": around(-(2**31), -1, 0, header.count - 1, header.count + 1, 2**31 - 1),
        "last_offset_delta": around(-(2**31), -1, 0, header.count - 2, header.count, header.count + 3, 2**31 - 1),
        "base_timestamp": around(-(2**63), -1, INT64_MAX),
        "max_timestamp": around(-(2**63), -1, INT64_MAX),
        "codec_bits": st.integers(0, 7),
    }
    for name in draw(st.lists(st.sampled_from(sorted(lies)), max_size=2)):
        fields[name] = draw(lies[name])
    return assemble(draw(damaged_payloads(whole[HEADER_SIZE:])), codec, fields)


def outcome(work: Callable[[], Any]) -> Any:
    """What a reader answers, or the error that it may raise; anything else fails the test."""
    try:
        return work()
    except (CorruptBatch, InvalidRecord) as error:
        return type(error).__name__, str(error)


def cells(column: BinaryColumn, rows: int) -> list[bytes | None]:
    """A column's values, its buffers checked on the way."""
    offsets, data = memoryview(column.offsets).cast("B").cast("i"), bytes(column.data)
    assert len(offsets) == rows + 1
    assert offsets[0] == 0
    assert list(offsets) == sorted(offsets)
    assert offsets[rows] == len(data)
    found: list[bytes | None] = []
    for row in range(rows):
        null = column.validity is not None and not column.validity[row >> 3] >> (row & 7) & 1
        found.append(None if null else data[offsets[row] : offsets[row + 1]])
    assert found.count(None) == column.null_count
    return found


def header_cells(column: HeadersColumn, rows: int) -> list[list[Header]]:
    """Each row's headers."""
    offsets = memoryview(column.offsets).cast("B").cast("i")
    assert (len(offsets), offsets[0], offsets[rows]) == (rows + 1, 0, column.count)
    keys = [None if key is None else key.decode() for key in cells(column.keys, column.count)]
    pairs = list(zip(keys, cells(column.values, column.count), strict=True))
    return [pairs[offsets[row] : offsets[row + 1]] for row in range(rows)]  # type: ignore[misc]


def table(columns: Columns) -> list[tuple[Any, ...]]:
    """A row each: offset, timestamp (us), timestamp type, partition, key, value, headers."""
    count = columns.rows
    return list(
        zip(
            columns.offset.cast("q"),
            columns.timestamp.cast("q"),
            columns.timestamp_type.cast("i"),
            columns.partition.cast("i"),
            cells(columns.key, count),
            cells(columns.value, count),
            header_cells(columns.headers, count) if columns.headers is not None else [None] * count,
            strict=True,
        )
    )


def column_of(values: list[bytes | None]) -> BinaryColumn:
    """The values in Arrow's layout."""
    offsets = memoryview(bytearray(4 * len(values) + 4)).cast("i")
    validity = bytearray(len(values) // 8 + 1)
    for row, value in enumerate(values):
        offsets[row + 1] = offsets[row] + len(value or b"")
        if value is not None:
            validity[row >> 3] |= 1 << (row & 7)
    return BinaryColumn(offsets, b"".join(value or b"" for value in values), validity, values.count(None))


def headers_column_of(values: list[list[Header]]) -> HeadersColumn:
    """The rows' headers in Arrow's layout."""
    offsets = memoryview(bytearray(4 * len(values) + 4)).cast("i")
    for row, value in enumerate(values):
        offsets[row + 1] = offsets[row] + len(value)
    flat = [header for value in values for header in value]
    keys = column_of([key.encode() for key, _ in flat])
    return HeadersColumn(offsets, keys, column_of([value for _, value in flat]), len(flat))


def row_text(row: Row) -> str:
    """A row as a line: timestamp key value [header value]...; bytes are x and hexadecimal digits, null is a dash."""
    key, value, extra, timestamp = row
    words = [key, value] + [word for name, held in extra for word in (name.encode(), held)]
    return " ".join([str(timestamp), *("-" if word is None else "x" + word.hex() for word in words)])


def row_of(text: str) -> Row:
    """The row of a line."""
    timestamp, *words = text.split(" ")
    cells = [None if word == "-" else bytes.fromhex(word[1:]) for word in words]
    extra = [((name or b"").decode(), held) for name, held in zip(cells[2::2], cells[3::2], strict=True)]
    return cells[0], cells[1], extra, int(timestamp)
