"""What the pages tell their readers to type is typed: on a cluster of three brokers, or, where that cannot be, read."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from kbroker import Admin, Producer
from kbroker.cli.commands_page import main
from tests.fixtures.brokers import MakeCluster
from tests.kbroker.cli.commands import succeed, understand
from tests.kbroker.cli.pages import DOCS, ROOT, Typed, named_in, pages, python_of, typed_in

NOON_MS = int(time.time()) * 1000
WALKED = ("README.md", "clients.md", "command-line.md", "backups.md", "tuning.md", "cluster.md", "security.md")
"""One after the other, on one cluster, in this order."""

ONLY_READ = {
    "dev": "a cluster of its own, without end: tests/kbroker/cli/test_dev.py, tests/kbroker/dev",
    "page": "a server without end: tests/kbroker/cli/test_page.py",
    "start": "a broker without end, in a folder that is not there: tests/kbroker/cli/test_start.py",
    "verify": "ten minutes: tests/kbroker/cli/test_verify.py",
    "--profile": "a profile of the reader's: tests/kbroker/cli/test_profiles.py; dev --secure: tests/kbroker/dev",
    "user add": "asks for a password: tests/kbroker/cli/test_user.py",
    "token": "a log-in by SASL: tests/kbroker/cli/test_token.py",
    "config alter broker 1": "certificates of the reader's: tests/kbroker/network/test_listeners.py",
    "cluster reassign --to 1,2,4": "a fourth broker: tests/kbroker/cli/test_reassign.py",
    "cluster info -b 127.0.0.1:9092": "a cluster of Kafka's: tests/mixed walks moving-from-kafka.md",
    "topic describe --under-replicated -b": "the same",
    "cluster elect-leaders -b": "the same",
}
"""Lines that are not carried out here, and why; the command line must still understand them."""

ENDED_BY = {
    "cluster top": ("-n", "1"),
    "group lag billing --watch": ("--count", "1"),
    "group history billing --watch": ("--count", "1"),
    "topic consume flights -o @-1h": ("-e",),
    "topic consume flights --group archive": ("-e",),
}
"""What goes on until Ctrl-C is told when to end."""

PYTHON = {
    "clients.md": "tests/kbroker/client/test_docs.py",
    "testing.md": "tests/kbroker/test_pytest_plugin.py",
    "tuning.md": "tests/kbroker/cli/test_docs.py",
    **dict.fromkeys(
        (
            "spark-batch.md",
            "spark-enrichment.md",
            "spark-migration.md",
            "spark-replay.md",
            "spark-streaming.md",
            "ten-minutes.md",
        ),
        "tests/spark/test_docs.py",
    ),
}
"""Where the Python of each page runs."""


def is_only_read(typed: Typed) -> bool:
    return any(typed.begins_with(text) for text in ONLY_READ)


def carry_out(typed: Typed) -> None:
    more = next((end for text, end in ENDED_BY.items() if typed.begins_with(text)), ())
    try:
        succeed(*typed.words, *more, given=typed.given)
    except AssertionError as error:
        raise AssertionError(f"{typed}: {error}") from error


def set_the_stage(bootstrap: str) -> None:
    """What the pages take for granted: topics, and a group."""
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        for topic in ("payments", "tuned"):
            admin.create_topic(topic, 2, 3)
        producer.send_and_wait("payments", b"10")
        admin.alter_group_offsets("billing", {("payments", 0): 0})


def write_table(path: Path) -> None:
    """The table that README and clients.md produce from."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = {"carrier": ["UA", "AA"], "delay": [7, 0], "time_hour": [NOON_MS, NOON_MS]}
    pq.write_table(pa.table(rows), path)


def test_what_pages_say_can_be_typed(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    cluster = make_cluster(3, properties={"default.replication.factor": "3"})
    monkeypatch.setenv("KBROKER_BOOTSTRAP", cluster.bootstrap)
    set_the_stage(cluster.bootstrap)
    texts = pages()
    for page in WALKED:
        folder = tmp_path / f"reader-of-{page}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        (folder / "kbroker-data").symlink_to(cluster.data_dir)
        if "--from flights.parquet --key carrier" in texts[page]:
            write_table(folder / "flights.parquet")
        for typed in typed_in(page, texts[page]):
            if not is_only_read(typed):
                carry_out(typed)
        if PYTHON.get(page) == "tests/kbroker/cli/test_docs.py":
            names: dict[str, Any] = {"BOOTSTRAP": cluster.bootstrap}
            for snippet in python_of(texts[page]):
                exec(compile(snippet, page, "exec"), names)
    restored = succeed("topic", "consume", "flights-restored", "-e", "-f", "%k %v %T\n").splitlines()
    assert f'UA {{"carrier":"UA","delay":7,"time_hour":{NOON_MS}}}' in "\n".join(restored)
    assert (tmp_path / "reader-of-backups.md" / "flights-today.parquet").exists()


@pytest.mark.slow
def test_every_command_of_every_page_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for needed in ("server.properties", "flights.parquet"):
        (tmp_path / needed).touch()
    for page, text in pages().items():
        for is_whole, found in ((True, typed_in(page, text)), (False, named_in(page, text))):
            for typed in found:
                with contextlib.suppress(typer.Exit):  # --help and --version
                    understand(*typed.words, placeholders=not is_whole)


def test_every_command_of_every_page_is_carried_out_or_said_why_not() -> None:
    typed = [each for page, text in pages().items() for each in typed_in(page, text)]
    assert len(typed) > 60
    assert [str(each) for each in typed if each.page not in WALKED and not is_only_read(each)] == []
    idle = [text for text in (*ONLY_READ, *ENDED_BY) if not any(each.begins_with(text) for each in typed)]
    assert idle == []


def test_the_python_of_every_page_runs_in_a_test_that_names_the_page() -> None:
    with_python = {page for page, text in pages().items() if python_of(text)}
    assert with_python == PYTHON.keys()
    silent = [page for page, test in PYTHON.items() if page not in (ROOT / test).read_text()]
    assert silent == []


def test_the_pictures_that_pages_show_are_there() -> None:
    shown = [
        (page, picture)
        for page, text in pages().items()
        for picture in re.findall(r"(?:src|srcset)=\"([^\"]+)\"|!\[[^\]]*\]\(([^)]+)\)", text)
    ]
    assert shown
    for page, names in shown:
        folder = ROOT if (ROOT / page).exists() else DOCS
        assert (folder / "".join(names)).exists(), (page, names)


def test_the_pictures_are_those_that_are_photographed() -> None:
    pytest.importorskip("pyarrow")
    from examples.pictures import AWAY, SCHEMES, VIEWS

    photographed = {f"{view.name}-{scheme}.png" for view in (*VIEWS, AWAY) for scheme in SCHEMES}
    assert {picture.name for picture in (DOCS / "pictures").iterdir()} == photographed


def test_the_files_that_pages_lead_to_are_there_and_on_the_site() -> None:
    for page, text in pages().items():
        folder = ROOT if (ROOT / page).exists() else DOCS
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            assert link.startswith(("http://", "https://")) or (folder / link).exists(), (page, link)
    assert "exclude_docs" not in (ROOT / "mkdocs.yml").read_text()


def test_the_reference_of_commands_is_up_to_date() -> None:
    assert main(["--check", str(DOCS / "commands.md")]) == 0


def test_each_page_has_its_place_on_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in DOCS.glob("*.md") if f" {page.name}\n" not in site] == []
