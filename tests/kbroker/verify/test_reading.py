"""Tests for kbroker.verify.reading: a file gives the same columns as its events."""

from pathlib import Path

import pytest

from kbroker.verify.columns import Columns, columns_of
from kbroker.verify.history import DamagedHistory, write_history
from kbroker.verify.reading import read_columns
from tests.kbroker.verify.simulated import healthy


def as_lists(columns: Columns) -> list[object]:
    """All columns as plain values."""
    tables = (
        columns.operations,
        columns.sends,
        columns.reads,
        columns.commits,
        columns.fetches,
        columns.ends,
        columns.moves,
    )
    plain = [getattr(table, name).tolist() for table in tables for name in table.__slots__]
    names = [columns.processes, columns.keys, columns.groups, columns.record_keys, columns.odd_values]
    return [*plain, *names, columns.rebalances.operation.tolist(), columns.admin, columns.faults]


def test_a_file_gives_the_same_columns_as_its_events(tmp_path: Path) -> None:
    for seed, workload in enumerate(("append", "txn", "group", "compact")):
        events = healthy(seed, workload)
        write_history(tmp_path / "history.jsonl", events)
        assert as_lists(read_columns(tmp_path / "history.jsonl")) == as_lists(columns_of(events))


def test_lines_of_any_length_and_pieces_of_any_size_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    events = healthy(3, "group")
    write_history(path, events)
    expected = as_lists(columns_of(events))
    for piece_bytes in (64, 300, 5_000):
        assert as_lists(read_columns(path, piece_bytes)) == expected


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    events = [event for event in healthy(1, "append") if event.f == "send"]
    write_history(path, events)
    path.write_bytes(path.read_bytes()[:-10])
    assert as_lists(read_columns(path)) == as_lists(columns_of(events[:-1]))


def test_a_damaged_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    write_history(path, healthy(1, "append"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:20], b"{oops}\n", *lines[20:]]))
    with pytest.raises(DamagedHistory, match="line 21 is no event"):
        read_columns(path)
