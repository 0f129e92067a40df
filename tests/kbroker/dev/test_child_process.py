"""Children: their start, their end, and that they don't outlive their parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbroker.dev.child_process import USES_DEATH_SIGNAL, start_child

BOTH_WAYS = pytest.mark.parametrize("use_death_signal", [USES_DEATH_SIGNAL, False])


@BOTH_WAYS
def test_a_child_writes_to_the_given_file_and_its_status_is_known(tmp_path: Path, use_death_signal: bool) -> None:
    with (tmp_path / "out").open("wb") as output:
        child = start_child(
            ["sh", "-c", "echo out; echo err >&2; exit 3"], output=output, use_death_signal=use_death_signal
        )
    assert child.wait(60) == 3
    assert child.poll() == 3
    assert (tmp_path / "out").read_text() == "out\nerr\n"


@BOTH_WAYS
def test_a_child_that_ignores_sigterm_is_killed_after_the_timeout(tmp_path: Path, use_death_signal: bool) -> None:
    ignores = tmp_path / "ignores"
    script = "trap '' TERM; : > \"$0\"; while :; do sleep 0.1; done"
    child = start_child(["sh", "-c", script, str(ignores)], use_death_signal=use_death_signal)
    while not ignores.exists():
        time.sleep(0.01)
    assert child.stop(timeout=0.3) == -signal.SIGKILL


def test_a_child_has_a_session_of_its_own() -> None:
    child = start_child(["sleep", "60"])
    try:
        assert os.getsid(child.pid) == child.pid != os.getsid(0)
    finally:
        child.kill()


def test_a_command_that_does_not_exist_says_so_in_the_output(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as output:
        child = start_child(["/nowhere/command"], output=output, use_death_signal=True)
    assert child.wait(60) == 127
    assert "cannot run /nowhere/command" in (tmp_path / "out").read_text()


def test_a_forked_process_starts_children_of_its_own() -> None:
    program = (
        "import os, sys\n"
        "from kbroker.dev.child_process import start_child\n"
        "assert start_child(['true']).wait(60) == 0\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(start_child(['sh', '-c', 'exit 7']).wait(60))\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=60, check=False)
    assert done.returncode == 7


def test_a_paused_child_is_stopped_when_pause_returns() -> None:
    child = start_child([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        child.pause()
        state = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert state == "T"
        child.send_signal(signal.SIGCONT)
        assert child.poll() is None
    finally:
        child.kill()
