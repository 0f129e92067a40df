"""The command line's frame: help, exit status, what is loaded."""

import subprocess
import sys

import pytest

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
