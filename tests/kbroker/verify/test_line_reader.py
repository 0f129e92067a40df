"""Tests for kbroker.verify.line_reader: plain lines are read as json reads them, all others are left alone."""

from __future__ import annotations

import json
import random

import pytest

from kbroker.verify.columns import Columns, ColumnsBuilder, Names
from kbroker.verify.history import encode
from kbroker.verify.line_reader import LineReader
from tests.kbroker.verify.simulated import healthy
from tests.kbroker.verify.test_reading import as_lists

BEGIN = b'{"index":0,"process":1,"type":"invoke","f":"send","operations":[["send","a",5]],"time":9}\n'
END = b'{"index":1,"process":1,"type":"ok","f":"send","operations":[["send","a",[3,5]]],"time":10}\n'
MOST_BYTES = 1 << 16


def reader() -> LineReader:
    return LineReader(MOST_BYTES, {}, Names(), Names())


def read(*lines: bytes) -> tuple[int, int]:
    """How many lines were read, and how many operations."""
    found = reader()
    piece = b"".join(lines)
    position = found.read(piece, 0)
    return piece.count(b"\n", 0, position), found.operations


def columns(lines: list[bytes]) -> Columns:
    builder = ColumnsBuilder()
    found = LineReader(1 << 20, builder.processes.known, builder.keys, builder.record_keys)
    found.waiting = builder.waiting
    found.begin(0)
    assert found.read(b"".join(lines), 0) == sum(map(len, lines))
    builder.extend(found)
    return builder.build()


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_all_fields_of_a_plain_line_are_read_with_or_without_spaces(separators: tuple[str, str]) -> None:
    events = [
        {
            "index": 0,
            "process": 7,
            "type": "invoke",
            "f": "txn",
            "operations": [["poll"], ["send", "a]b", 5]],
            "time": 9,
        },
        {
            "index": 1,
            "process": 7,
            "type": "fail",
            "f": "txn",
            "operations": [["poll", {"a]b": [[3, 4, "k"], [8, 9]], "ü": []}], ["send", "a]b", [6, 5]], ["poll", {}]],
            "time": 10,
            "commit_time": 8,
            "error": "no: [why]",
            "final": True,
        },
    ]
    lines = [json.dumps(each, separators=separators, ensure_ascii=False).encode() + b"\n" for each in events]
    found = columns(lines)
    operations = found.operations
    row = [getattr(operations, name).tolist()[0] for name in operations.__slots__]
    assert row == [0, 2, 1, 0, 1, 9, 10, 8, 1]
    assert (found.keys, found.record_keys, found.processes) == (["a]b", "ü"], ["k"], [7])
    assert (found.reads.value.tolist(), found.reads.record_key.tolist()) == ([4, 9], [0, -1])
    assert (found.sends.offset.tolist(), found.sends.value.tolist()) == ([6], [5])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b'{"index":1}',
        END[:-2],
        END[:-1] + b"x",
        END.replace(b"1,", b"-1,", 1)[:-1],
        END.replace(b'"send",', b'"s\\u0065nd",')[:-1],
        END.replace(b"[3,5]", b"[null,5]")[:-1],
        END.replace(b"[3,5]", b"[3,5]]")[:-1],
        END.replace(b"[3,5]", b'[3,"x"]')[:-1],
        END.replace(b"[3,5]", b"[3,9999999999999999999999]")[:-1],
        END.replace(b'"ok"', b'"oh no"')[:-1],
        END.replace(b'"f":"send"', b'"f":"seek"')[:-1],
        END.replace(b'"process":1', b'"process":2')[:-1],
        END.replace(b'"process":1', b'"process":"nemesis"')[:-1],
        END.replace(b'"time":10', b'"time":10,"rebalances":["a"]')[:-1],
        END.replace(b'[["send","a",[3,5]]]', b'[["poll",{"a":[[1,2][3,4]]}]]')[:-1],
    ],
)
def test_a_line_that_is_not_plain_is_left_alone_with_all_behind_it(line: bytes) -> None:
    assert read(BEGIN, line + b"\n", END) == (1, 0)


def test_what_a_line_had_before_it_turned_out_odd_is_taken_back() -> None:
    found = reader()
    odd = END.replace(b'"time":10', b'"time":10,"rebalances":[]')
    assert found.read(BEGIN + odd, 0) == len(BEGIN)
    assert (found.sends, found.operations) == (0, 0)
    assert list(found.waiting) == [1], "it is still under way"


def test_damaged_lines_never_lead_beyond_their_piece() -> None:
    rng = random.Random(5)
    lines = [encode(event).encode() for event in healthy(1, "txn")]
    for _ in range(300):
        piece = bytearray(b"".join(rng.sample(lines, 3)))
        for _ in range(rng.randint(1, 4)):
            piece[rng.randrange(len(piece))] = rng.choice(b'{}[]",:0 \\\n')
        piece = piece[: rng.randrange(len(piece))] + b"\n"
        try:
            position = reader().read(bytes(piece), 0)
        except UnicodeDecodeError:
            continue
        assert 0 <= position <= len(piece)


def test_a_piece_that_is_too_long_or_ends_within_a_line_is_refused() -> None:
    for piece in (BEGIN[:-1], b" " * MOST_BYTES + b"\n"):
        with pytest.raises(ValueError, match="piece of a history"):
            reader().read(piece, 0)


def test_plain_histories_are_read_as_events_are() -> None:
    for seed in range(5):
        events = [event for event in healthy(seed, "append") if event.f in ("send", "poll")]
        builder = ColumnsBuilder()
        for event in events:
            builder.add(event)
        assert as_lists(columns([encode(event).encode() for event in events])) == as_lists(builder.build())
