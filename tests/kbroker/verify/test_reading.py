"""Tests for kbroker.verify.reading: a file gives the same columns as its events."""

from pathlib import Path

from kbroker.verify.columns import Columns, columns_of
from kbroker.verify.history import write_history
from kbroker.verify.reading import read_columns
from tests.kbroker.verify.simulated import healthy


def as_lists(columns: Columns) -> list[object]:
    """All columns as plain values."""
    tables = (columns.operations, columns.sends, columns.reads, columns.commits, columns.fetches, columns.moves)
    plain = [getattr(table, name).tolist() for table in tables for name in table.__slots__]
    names = [columns.processes, columns.keys, columns.groups, columns.record_keys, columns.odd_values]
    return [*plain, *names, columns.rebalances.operation.tolist(), columns.admin, columns.faults]


def test_a_file_gives_the_same_columns_as_its_events(tmp_path: Path) -> None:
    for seed, workload in enumerate(("append", "txn", "group", "compact")):
        events = healthy(seed, workload)
        write_history(tmp_path / "history.jsonl", events)
        assert as_lists(read_columns(tmp_path / "history.jsonl")) == as_lists(columns_of(events))
