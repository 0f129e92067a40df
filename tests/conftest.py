"""What all tests share: the fixture plugins, and the report's first lines (ZooKeeper's is in its plugin)."""

import contextlib
import gc
import importlib
import os
import platform
import resource
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from kbroker.dev.java import JavaNotFound, provide_java
from kbroker.segment import disk_pace

pytest_plugins = (
    "tests.fixtures.scheduling",
    "tests.fixtures.zookeeper",
    "tests.fixtures.processes",
    "tests.fixtures.brokers",
    "tests.fixtures.certificates",
    "tests.fixtures.data_path",
    "tests.fixtures.others",
    "tests.fixtures.copies",
    "tests.fixtures.java",
    "tests.fixtures.kafka",
    "tests.fixtures.spark",
)

MEMORY = Path("/dev/shm")
ROOM = 6 << 30


def pytest_configure() -> None:
    """Give tests a JVM, and folders in memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold what brokers know
    keep_files_in_memory()
    # A test that others kept from running for a moment has no slow disk, of which threads would take care from then on.
    disk_pace.SLOW_S = 5.0
    with contextlib.suppress(JavaNotFound):
        provide_java()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from thousands of tests, while they are found and ever after."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def keep_files_in_memory() -> None:
    """Where there is room `tmp_path` lies in memory: what logs, ZooKeepers and checkpoints wait for is the disk.

    What a disk alone can show asks for one (`on_disk`); $PYTEST_DEBUG_TEMPROOT, pytest's own, chooses another place.
    """
    with contextlib.suppress(OSError):
        available = next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in line)
        if min(shutil.disk_usage(MEMORY).free, int(available.split()[1]) << 10) >= ROOM:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder of this test's on a disk."""
    with tempfile.TemporaryDirectory(prefix="kbroker-test-", dir="/var/tmp") as folder:
        yield Path(folder)


def pytest_report_header() -> str:
    return f"codec: {codec_kind()}"


def codec_kind() -> str:
    """Say whether the compiled codec runs or the interpreted one."""
    try:
        module = importlib.import_module("kbroker.protocol.codec")
    except ImportError as error:
        return f"not importable ({error})"
    file = Path(module.__file__ or "")
    if file.suffix == ".py":
        return f"interpreted ({file.name} on {platform.python_implementation()} {platform.python_version()})"
    return f"compiled ({file.name})"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With $KBROKER_SKIPS=fail, as continuous integration has it, the run fails when a test was skipped."""
    if os.environ.get("KBROKER_SKIPS") == "fail" and skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why a run without a failed test failed."""
    if os.environ.get("KBROKER_SKIPS") == "fail" and (count := skipped(terminalreporter.config)):
        terminalreporter.section("skipped")
        terminalreporter.line(
            f"{count} skipped tests count as failed (KBROKER_SKIPS=fail): they proved nothing", red=True
        )


def skipped(config: pytest.Config) -> int:
    """How many tests were skipped, in all test processes."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return 0 if reporter is None else len(reporter.stats.get("skipped", ()))
