"""Reads a history's file into columns."""

from __future__ import annotations

from pathlib import Path

from kbroker.verify.columns import Columns, ColumnsBuilder
from kbroker.verify.history import read_history


def read_columns(path: Path) -> Columns:
    """All events of a file as columns."""
    builder = ColumnsBuilder()
    for event in read_history(path):
        builder.add(event)
    return builder.build()
