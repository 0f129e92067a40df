"""The command line's frame: help, exit status, what is loaded."""

import subprocess
import sys
from typing import Any

import pytest

from kbroker.cli import open_closed_streams
from tests.kbroker.cli.commands import kbroker

HEAVY_MODULES = ("asyncio", "rich", "yaml", "kazoo", "pyarrow", "pyspark", "kbroker.protocol.apis", "kbroker.client")


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from kbroker.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as end:\n    assert end.code == 0, end.code\n"
        f"loaded = [name for name in {HEAVY_MODULES!r} if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for command in ("dev", "start", "zookeeper", "topic", "config", "cluster", "log"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize("command", ["dev", "start", "zookeeper", "topic", "config", "cluster"])
def test_every_command_has_help(command: str) -> None:
    done = kbroker(command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: kbroker" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("dev", "--set", "no-equals-sign"),
        ("dev", "--port", "x"),
        ("start", "/nowhere/server.properties"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_line_on_stderr(arguments: tuple[str, ...]) -> None:
    done = kbroker(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_shown() -> None:
    assert kbroker("--version").stdout.startswith("kbroker")


@pytest.mark.slow
def test_a_list_is_asked_for_without_what_typer_reads_values_with() -> None:
    program = (
        "import sys\n"
        "from kbroker.cli import main\n"
        "try:\n    main(['topic', 'list', '-b', '127.0.0.1:1', '--format', 'json'])\n"
        "except SystemExit as end:\n    assert end.code == 1, end.code\n"
        "loaded = [name for name in ('pydantic', 'rich', 'yaml') if name in sys.modules]\n"
        "assert 'kbroker.client.admin' in sys.modules and not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("to", "reason"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
@pytest.mark.parametrize("words", ["completion bash", "help profiles"])
def test_output_that_cannot_be_written_is_told_in_a_line(words: str, to: str, reason: str) -> None:
    command = f"PYTHONUNBUFFERED= '{sys.executable}' -m kbroker {words} {to}"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr.decode()) == (1, f"kbroker: standard output: {reason}\n")


@pytest.mark.slow
def test_closed_streams_disturb_no_command_that_does_not_use_them() -> None:
    command = f"'{sys.executable}' -m kbroker --version <&- 2>&-"
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(b"kbroker")


def test_input_that_is_closed_is_an_error_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    open_closed_streams()
    stdin: Any = sys.stdin
    with stdin, pytest.raises(OSError, match="Bad file descriptor"):
        stdin.buffer.read1(1)
