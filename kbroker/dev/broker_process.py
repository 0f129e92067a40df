"""One broker as a child process, for `kbroker dev`, for tests and for the fixtures.

Its directory holds what a broker needs and leaves behind:

    server.properties   written anew at each start; mode 0600, it may hold passwords
    data/               the log directory, unless `log.dirs` says otherwise
    broker.log          what the broker wrote to stdout and stderr, all starts
    ready.json          there while the broker serves (its pid tells this start's from an earlier one's)
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbroker.dev.child_process import ChildProcess, start_child
from kbroker.dev.free_ports import is_port_free
from kbroker.dev.private_files import write_private

POLL_SECONDS = 0.01
MAX_LOG_BYTES = 100 << 20


class BrokerFailed(RuntimeError):
    """A broker ended, or doesn't serve in time; the message holds the last lines of its log."""


class BrokerProcess:
    """A broker of our own on loopback, from `start` to `stop`."""

    def __init__(self, broker_id: int, directory: Path, port: int, properties: Mapping[str, str]) -> None:
        """Describe the broker; `properties` add to what follows from the other arguments, or overrule it."""
        self.broker_id = broker_id
        self.directory = directory.absolute()
        self.port = port
        self.properties: dict[str, str] = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(self.directory / "data"),
            **properties,
        }
        self.launcher: list[str] = []
        """Goes before the command, and must replace itself by it: `prlimit …`, `unshare …`."""
        self._child: ChildProcess | None = None
        self._exit_status: int | None = None
        self._log_start = 0

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._child is not None, f"broker {self.broker_id} is not started"
        return self._child.pid

    @property
    def log_dirs(self) -> list[Path]:
        """The directories that hold its partitions."""
        return [Path(part.strip()) for part in self.properties["log.dirs"].split(",")]

    @property
    def log_dir(self) -> Path:
        """The first of the log directories."""
        return self.log_dirs[0]

    @property
    def log_file(self) -> Path:
        """What the broker wrote."""
        return self.directory / "broker.log"

    @property
    def exit_status(self) -> int | None:
        """How the process ended (negative: the signal that ended it); None while it runs or before its start."""
        if self._child is not None:
            self._exit_status = self._child.poll()
        return self._exit_status

    @property
    def is_running(self) -> bool:
        """Whether the process is there (stopped by SIGSTOP counts)."""
        return self._child is not None and self.exit_status is None

    @property
    def is_ready(self) -> bool:
        """Whether the broker has said that it serves."""
        return self.is_running and self.ready_info().get("pid") == self.pid

    def start(self) -> "BrokerProcess":
        """Start the process and return at once; `wait_until_ready` waits."""
        assert not self.is_running, f"broker {self.broker_id} runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        write_private(self.properties_file, properties_text(self.properties))
        self.forget_readiness()
        self._begin_log()
        command = [*self.launcher, *self.command(self.properties_file)]
        with self.log_file.open("ab") as log:
            self._child = start_child(command, output=log, cwd=self.directory, environment=_environment())
        return self

    def command(self, properties_file: Path) -> list[str]:
        """What runs the broker."""
        # -P: a file in the broker's directory must not be taken for a module.
        command = [sys.executable, "-P", "-m", "kbroker.process", str(properties_file)]
        return [*command, "--ready-file", str(self._ready_file)]

    def wait_until_ready(self, timeout: float = 60.0) -> "BrokerProcess":
        """Return once the broker serves; BrokerFailed when it ends or takes longer."""
        deadline = time.monotonic() + timeout
        while not self.is_ready:
            if not self.is_running:
                raise BrokerFailed(self.why_it_ended())
            if time.monotonic() > deadline:
                raise BrokerFailed(f"broker {self.broker_id} was not ready within {timeout:g} s{self._tail_text()}")
            time.sleep(POLL_SECONDS)
        return self

    def stop(self, timeout: float = 30.0) -> int | None:
        """Ask for a controlled shutdown (SIGTERM), insist (SIGKILL) after `timeout`; return the exit status."""
        child, self._child = self._child, None
        if child is not None:
            self._exit_status = child.stop(timeout)
            self.forget_readiness()
        return self._exit_status

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would."""
        child, self._child = self._child, None
        if child is not None:
            self._exit_status = child.kill()

    def restart(self, timeout: float = 60.0) -> "BrokerProcess":
        """Stop it if it runs, start it again on the same port and data, and wait until it serves."""
        self.stop()
        return self.start().wait_until_ready(timeout)

    def pause(self) -> None:
        """Make the process hang (SIGSTOP)."""
        assert self._child is not None, f"broker {self.broker_id} is not started"
        self._child.pause()

    def resume(self) -> None:
        """Let a paused process continue."""
        os.kill(self.pid, signal.SIGCONT)

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if self._child is not None:
            self._child.send_signal(number)

    def wait(self, timeout: float) -> int | None:
        """Wait for the end; the exit status, or None when it takes longer."""
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._exit_status = self._child.wait(timeout)
        return self._exit_status

    def ready_info(self) -> dict[str, Any]:
        """What the broker wrote when it served: id, host, port, pid, log_dirs; empty before."""
        try:
            info = json.loads(self._ready_file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return info if isinstance(info, dict) else {}

    def log_tail(self, lines: int = 20) -> str:
        """The last lines that this start of the broker wrote."""
        try:
            with self.log_file.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - 64_000))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def how_it_ended(self) -> str:
        """Say in a few words how the process ended."""
        status = self.exit_status
        if status is None:
            how = "is not started"
        elif status < 0:
            how = f"was ended by {signal.Signals(-status).name}"
        else:
            how = f"ended with status {status}"
        return f"broker {self.broker_id} {how}"

    def why_it_ended(self) -> str:
        """Say how the process ended, with the last lines of its log."""
        return f"{self.how_it_ended()}{self._tail_text()}"

    @property
    def start_command(self) -> list[str]:
        """What a user types to start this broker again by hand, in any shell: `kbroker` may not be on its PATH."""
        script = Path(sysconfig.get_path("scripts"), "kbroker")
        program = [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "kbroker"]
        return [*program, "start", str(self.properties_file), "--ready-file", str(self._ready_file)]

    def started_by_hand(self) -> int | None:
        """The pid of a broker that `start_command` runs, once it serves; None while there is none."""
        pid = self.ready_info().get("pid")
        if self.is_running or not isinstance(pid, int) or is_port_free(self.port):
            return None
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return pid
        return None

    def forget_readiness(self) -> None:
        """Remove what an ended process has left, so that only a later start's word counts."""
        self._ready_file.unlink(missing_ok=True)

    @property
    def properties_file(self) -> Path:
        """The configuration of the broker."""
        return self.directory / "server.properties"

    @property
    def _ready_file(self) -> Path:
        return self.directory / "ready.json"

    def _begin_log(self) -> None:
        self._exit_status = None
        self._log_start = 0
        with contextlib.suppress(FileNotFoundError):
            self._log_start = self.log_file.stat().st_size
            if self._log_start > MAX_LOG_BYTES:
                self.log_file.replace(self.log_file.with_name("broker.log.1"))
                self._log_start = 0

    def _tail_text(self) -> str:
        tail = self.log_tail()
        return f"; {self.log_file} ends with:\n{tail}" if tail else f"; it wrote nothing to {self.log_file}"


def _environment() -> dict[str, str]:
    """This process's environment; from a checkout, one in which the child finds the same checkout."""
    package_root = str(Path(__file__).resolve().parent.parent)
    search_path = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if package_root != sysconfig.get_path("purelib") and package_root not in search_path:
        search_path.insert(0, package_root)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(search_path), "PYTHONUNBUFFERED": "1"}


def properties_text(properties: Mapping[str, str]) -> str:
    """Write Java's properties format: one `key=value` a line, escapes for what isn't plain ASCII."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in properties.items())


def _escape(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if text.startswith(" "):
        text = "\\" + text
    units = text.encode("utf-16-be", errors="surrogatepass")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 127 else f"\\u{code:04x}" for code in codes)
