"""Reads a history's file into columns: plain lines by the line reader, all others one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kbroker.verify.columns import Columns, ColumnsBuilder
from kbroker.verify.history import DamagedHistory, decode
from kbroker.verify.line_reader import LineReader

PIECE_BYTES = 2 << 20


def read_columns(path: Path, piece_bytes: int = PIECE_BYTES) -> Columns:
    """All events of a file as columns; a last line that was cut short is left out, as a crash leaves one."""
    builder = ColumnsBuilder()
    reader = LineReader(piece_bytes, builder.processes.known, builder.keys, builder.record_keys)
    reader.waiting = builder.waiting
    number = 1
    for piece in _pieces(path, piece_bytes):
        position = 0
        while position < len(piece):
            if len(piece) <= piece_bytes:
                reader.begin(builder.row)
                try:
                    position = reader.read(piece, position)
                except UnicodeDecodeError as error:
                    raise DamagedHistory(f"behind line {number}: {error}") from error
                builder.extend(reader)
            if position < len(piece):
                end = piece.index(b"\n", position) + 1
                line = piece[position:end]
                if line.strip():
                    builder.add(decode(line, number + piece.count(b"\n", 0, position)))
                position = end
        number += piece.count(b"\n")
    return builder.build()


def _pieces(path: Path, piece_bytes: int) -> Iterator[bytes]:
    """Whole lines, as many as fit into a piece; one that is longer is a piece of its own."""
    rest = b""
    with path.open("rb") as file:
        while block := file.read(piece_bytes // 2):
            rest += block
            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end]
                rest = rest[end:]
    if rest.rstrip().endswith(b"}"):
        yield rest + b"\n"
