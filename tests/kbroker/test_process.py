"""The log and the limit of open files, each in a process of its own."""

import asyncio
import subprocess
import sys

import pytest

from kbroker import process
from kbroker.dev.free_ports import free_ports
from kbroker.replica import turns
from tests.fixtures.brokers import MakeBroker


def told_by(script: str, *launcher: str) -> str:
    """What a script writes to standard output and standard error."""
    command = [*launcher, sys.executable, "-c", f"from kbroker.process import *\n{script}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_events_are_lines_on_standard_error_with_time_level_and_place() -> None:
    script = "set_up_logging(); import logging; logging.getLogger('a.b').info('it began'); logging.debug('hidden')"
    line, end = told_by(script).split("\n")
    assert line.startswith("[20")
    assert line.endswith("] INFO it began (a.b)")
    assert end == ""


@pytest.mark.slow
def test_a_name_that_a_client_chose_does_not_forge_a_line() -> None:
    script = (
        "set_up_logging(); import logging; log = logging.getLogger('a')\n"
        "log.info('Denied on Topic:%s', 'x\\n[2026-01-01] INFO all is well\\r\\x1b[2Jü\\u2028')\n"
        "try: 1 / 0\nexcept ZeroDivisionError: log.exception('it failed')"
    )
    first, second, *traceback, end = told_by(script).split("\n")
    assert first.endswith(r"Denied on Topic:x\x0a[2026-01-01] INFO all is well\x0d\x1b[2Jü\u2028 (a)")
    assert second.endswith("ERROR it failed (a)")
    assert traceback[0] == "Traceback (most recent call last):"
    assert end == ""


def test_where_strangers_come_in_without_a_login_a_warning_says_what_to_set(make_broker: MakeBroker) -> None:
    (port,) = free_ports(1)
    listeners = {"listeners": f"PLAINTEXT://0.0.0.0:{port}", "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    log = make_broker(properties=listeners, port=port).log_file.read_text()
    (line,) = [line for line in log.splitlines() if "comes in without a login" in line]
    assert f"WARNING whoever reaches PLAINTEXT://0.0.0.0:{port} comes in without a login: set listeners to" in line
    assert "without a login" not in make_broker(2).log_file.read_text()


@pytest.mark.slow
def test_a_process_that_has_its_own_logging_keeps_it() -> None:
    script = (
        "import logging; logging.basicConfig(format='mine: %(message)s'); set_up_logging();"
        " logging.info('hidden'); logging.warning('seen')"
    )
    assert told_by(script) == "mine: seen\n"


@pytest.mark.slow
def test_a_broker_starts_without_what_few_brokers_need() -> None:
    needless = ("email", "zipfile", "http", "re2", "cryptography", "pyarrow", "rich", "kbroker.client.types")
    script = f"from kbroker import handlers; handlers.load_all(); print([n for n in {needless} if n in sys.modules])"
    assert told_by(script) == "[]\n"


async def test_all_garbage_is_collected_when_no_long_work_is_under_way_or_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_at_work = True
    collected = 0

    def collect() -> None:
        nonlocal collected
        collected += 1

    monkeypatch.setattr(turns, "is_long_work_under_way", lambda: is_at_work)
    monkeypatch.setattr(process, "COLLECT_PAUSE_S", 0.001)
    monkeypatch.setattr(process, "LONGEST_COLLECT_PAUSE_S", 3600)
    task = asyncio.create_task(process.collect_now_and_then(collect))
    await asyncio.sleep(0.05)
    before = collected
    is_at_work = False
    async with asyncio.timeout(20):
        while not collected:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert before == 0
    is_at_work = True
    monkeypatch.setattr(process, "LONGEST_COLLECT_PAUSE_S", 0)
    task.cancel()
    task, collected = asyncio.create_task(process.collect_now_and_then(collect)), 0
    async with asyncio.timeout(20):
        while collected < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    task.cancel()
