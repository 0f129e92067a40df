"""The snippets of docs/clients.md run, one after the other, against a real broker."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from kbroker.client.blocking import Admin
from kbroker.dev.broker_process import BrokerProcess

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"


def test_every_snippet_of_the_page_runs(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(snippets) > 8
    names: dict[str, Any] = {"BOOTSTRAP": broker.bootstrap}
    try:
        for snippet in snippets:
            needed = re.findall(r"^# needs: (\w+)", snippet)
            if all(importlib.util.find_spec(name) for name in needed):
                exec(compile(snippet, str(PAGE), "exec"), names)
    finally:
        with Admin(broker.bootstrap) as admin:
            admin.delete_topics([name for name in ("flights", "notes") if name in admin.list_topics()])
    printed = capsys.readouterr().out
    assert "3000 rows:" in printed
    assert "100 rows refused" in printed
    assert "MESSAGE_TOO_LARGE" in printed
    assert "carrier: string" in printed
    assert "value.carrier" in printed, "pandas"
    for library, said in (("polars", "shape: (3, 2)"), ("duckdb", "('B6', ")):
        assert said in printed or importlib.util.find_spec(library) is None, library
