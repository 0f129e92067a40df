"""The commands and snippets of docs/backups.md and docs/tuning.md on a real broker, and the reference of commands."""

import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from kbroker import Admin, Producer
from kbroker.cli.commands_page import main
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import succeed

DOCS = Path(__file__).parents[3] / "docs"
NOON_MS = int(time.time()) * 1000
TOPICS = ("flights", "flights-restored", "tuned")


def test_what_pages_say_can_be_typed(broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    names: dict[str, Any] = {"BOOTSTRAP": broker.bootstrap}
    with Admin(broker.bootstrap) as admin:
        for topic in ("flights", "tuned"):
            admin.create_topic(topic, 1)
        try:
            with Producer(broker.bootstrap) as producer:
                producer.send_and_wait("flights", b"a record", key=b"AA", timestamp_ms=NOON_MS)
            for page in ("backups.md", "tuning.md"):
                for language, text in re.findall(r"```(python|bash)\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
                    if language == "python":
                        exec(compile(text, page, "exec"), names)
                        continue
                    for line in text.splitlines():
                        succeed(*shlex.split(line)[1:])
            assert (
                succeed("topic", "consume", "flights-restored", "-e", "-f", "%k=%v %T\n") == f"AA=a record {NOON_MS}\n"
            )
            assert (tmp_path / "flights-today.parquet").exists()
        finally:
            there = admin.list_topics()
            admin.delete_topics([topic for topic in TOPICS if topic in there])


def test_the_reference_of_commands_is_up_to_date() -> None:
    assert main(["--check", str(DOCS / "commands.md")]) == 0


def test_each_page_has_its_place_on_the_site() -> None:
    site = (DOCS.parent / "mkdocs.yml").read_text()
    assert [page.name for page in DOCS.glob("*.md") if f" {page.name}\n" not in site] == []
