"""The table of faults is true: each cell has tests that are there, or says why it has none."""

from __future__ import annotations

import ast

import pytest

from tests.faults.table import COLUMNS, TABLE
from tests.promises.table import ROOT


@pytest.mark.parametrize("fault", TABLE)
def test_each_fault_has_a_test_or_a_reason_for_each_kind_of_client(fault: str) -> None:
    cells = TABLE[fault]
    assert len(cells) == len(COLUMNS)
    assert any(not isinstance(cell, str) for cell in cells), "nobody looks at it"
    for column, cell in zip(COLUMNS, cells, strict=True):
        if isinstance(cell, str):
            assert len(cell.split()) > 4, f"{column}: that is no reason"
            continue
        assert cell, column
        for test in cell:
            file, _, name = test.partition("::")
            tree = ast.parse((ROOT / file).read_text())
            names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert name in names, f"{column}: {test}: no such test"
