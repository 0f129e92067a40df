"""Records as a reader sees them: bytes as JSON, text or hexadecimal, and rows of a download. Pure."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kbroker.client.record_objects import as_object
from kbroker.protocol.records.record import Record

LONGEST_PREVIEW = 240
LONGEST_SHOWN = 32 << 10
"""Bytes of a key or a value that are shown; a download has all."""
LONGEST_WRITTEN = 4 * LONGEST_SHOWN
"""Characters that JSON may become with its line breaks."""
HEX_WIDTH = 16
FRAME_BYTES = 5
"""Before a value that was written with a schema: a zero and the schema's id."""
MOST_HEADERS = 100
FORMATS = ("auto", "json", "text", "hex")
CSV_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
"""Of what was found to be JSON."""
_OPENING, _CLOSING = ("[", "{"), ("]", "}")


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes, written out: in a line, in full, and in which form; `size` is None for null."""

    preview: str
    full: str
    form: str
    size: int | None
    framed: bytes | None = None
    """All of it, where it begins as what a schema registry's serializers write, and is no text."""
    problem: str = ""
    """Why it is not written out better."""

    @property
    def is_cut(self) -> bool:
        """Whether there is more than is shown."""
        return self.size is not None and self.size > LONGEST_SHOWN


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record, written out."""

    partition: int
    offset: int
    timestamp: int
    key: Content
    value: Content
    headers: tuple[tuple[str, Content], ...]
    headers_left: int = 0
    """Headers that are not shown: there are too many, or they are too long."""


def view_of(record: Record, form: str) -> RecordView:
    """Write a record out."""
    headers = _headers(record, "hex" if form == "hex" else "auto")
    return RecordView(
        record.partition,
        record.offset,
        record.timestamp,
        content_of(record.key, "auto" if form == "json" else form),
        content_of(record.value, form),
        headers,
        len(record.headers) - len(headers),
    )


def _headers(record: Record, form: str) -> tuple[tuple[str, Content], ...]:
    shown: list[tuple[str, Content]] = []
    size = 0
    for name, value in record.headers[:MOST_HEADERS]:
        if size > LONGEST_SHOWN:
            break
        size += len(name) + len(value or b"")
        shown.append((name[:LONGEST_SHOWN], content_of(value, form)))
    return tuple(shown)


def content_of(data: bytes | None, form: str) -> Content:
    """Write bytes out as one of FORMATS; what is no JSON or no text becomes text or hexadecimal."""
    if data is None:
        return Content("null", "null", "null", None)
    shown = bytes(data[:LONGEST_SHOWN])
    if form in ("auto", "json") and len(data) <= LONGEST_SHOWN:
        text = _pretty(shown)
        if text is not None:
            return Content(_line(shown.decode()), text, "json", len(data))
    if form != "hex":
        is_whole = len(data) == len(shown)
        plain = _text(shown, is_whole=is_whole, insist=form == "text")
        if plain is not None:
            return Content(_line(plain), plain, "text", len(data))
    is_framed = form == "auto" and len(data) >= FRAME_BYTES and data[0] == 0 and len(data) <= LONGEST_SHOWN
    preview = shown[: LONGEST_PREVIEW // 3].hex(" ")
    return Content(preview, _hex_lines(shown), "hex", len(data), shown if is_framed else None)


def json_content(text: str, form: str, size: int | None) -> Content | None:
    """Return JSON that was made of something else, with line breaks; None where it is too long."""
    full = _pretty(text.encode())
    return None if full is None else Content(_line(text), full, form, size)


def _pretty(data: bytes) -> str | None:
    """Return JSON with line breaks, its numbers, escapes and doubled names as they stand.

    None where it is none, or where nesting makes far more of it than it is.
    """
    try:
        text = data.decode()
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    pieces: list[str] = []
    size = depth = 0
    before = ""
    for token in _TOKENS.findall(text):
        is_first, is_end = before in _OPENING, token in _CLOSING
        depth -= is_end
        is_line = before == "," or is_first != is_end
        piece = "\n" + "  " * depth if is_line else " " * (before == ":")
        depth += token in _OPENING
        before = token
        pieces += (piece, token)
        size += len(piece) + len(token)
        if size > LONGEST_WRITTEN:
            return None
    return "".join(pieces)


def _text(data: bytes, *, is_whole: bool, insist: bool) -> str | None:
    if insist:
        return data.decode("utf-8", "replace")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(data) - 4:  # a character that was cut through is no reason
            return None
        text = data[: error.start].decode()
    return text if all(char.isprintable() or char in "\n\r\t" for char in text[:LONGEST_PREVIEW]) else None


def _line(text: str) -> str:
    return " ".join(text[: LONGEST_PREVIEW * 2].split())[:LONGEST_PREVIEW]


def _hex_lines(data: bytes) -> str:
    lines = []
    for start in range(0, len(data), HEX_WIDTH):
        row = data[start : start + HEX_WIDTH]
        readable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{3 * HEX_WIDTH}} {readable}")
    return "\n".join(lines)


def csv_lines(records: Iterable[Record], *, heading: bool) -> bytes:
    """Records as lines of CSV: keys and values that are no text, and headers, as JSON."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\r\n")
    if heading:
        writer.writerow(CSV_COLUMNS)
    for record in records:
        found = as_object(record)
        writer.writerow([_cell(found[column]) for column in CSV_COLUMNS])
    return stream.getvalue().encode()


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def spark_snippet(
    bootstrap: str,
    topic: str,
    places: Sequence[tuple[int, int]] | None,
    at_ms: int | None,
    *,
    is_stream: bool = False,
    is_secured: bool = False,
) -> str:
    """Return Python that reads the topic in Spark from partitions' offsets, a time, or the beginning.

    A batch cannot begin at the end: from there a stream reads.
    """
    options = [("kafka.bootstrap.servers", bootstrap), ("subscribe", topic)]
    if at_ms is not None:
        options.append(("startingTimestamp", str(at_ms)))
    elif places is not None:
        offsets = json.dumps({topic: {str(partition): offset for partition, offset in places}})
        options.append(("startingOffsets", offsets))
    else:
        options.append(("startingOffsets", "earliest"))
    lines = "".join(f"    .option({key!r}, {value!r})\n" for key, value in options)
    if is_secured:
        lines += "    # and the options of the cluster's security: kafka.security.protocol, ...\n"
    read = "readStream" if is_stream else "read"
    return f'frame = (\n    spark.{read}.format("kbroker")  # "kafka" takes the same options\n{lines}    .load()\n)'
