"""The snippets of docs/clients.md and README.md run, one after the other, against a real broker."""

import contextlib
import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.client.blocking import Admin
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.pages import ROOT, indented_python_of

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"


class EnoughSeen(Exception):
    """Ends a snippet that goes on for ever."""


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


def test_every_snippet_of_the_readme_runs(broker: BrokerProcess) -> None:
    pytest.importorskip("pyarrow")
    snippets = [each for each in indented_python_of((ROOT / "README.md").read_text()) if "spark." not in each]
    assert len(snippets) == 4
    seen: list[tuple[Any, ...]] = []

    def printed(*values: Any) -> None:
        seen.append(values)
        if len(seen) == 1:
            raise EnoughSeen

    names: dict[str, Any] = {"print": printed}
    cluster = SimpleNamespace(bootstrap=broker.bootstrap)
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("flights", partitions=2)
        try:
            for snippet in snippets:
                code = compile(snippet.replace("127.0.0.1:9092", broker.bootstrap), "README.md", "exec")
                with contextlib.suppress(EnoughSeen):
                    exec(code, names)
            names["test_mine"](cluster, "flights")
            made = admin.list_offsets([("out", 0)])
        finally:
            admin.delete_topics([name for name in ("flights", "out") if name in admin.list_topics()])
    assert [seen[0][2:], seen[1][0], seen[1][1][:2]] == [(b"UA", b"..."), 1, ["key", "value"]]
    assert [found.offset > 0 for found in made.values()] == [True]
