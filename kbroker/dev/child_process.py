"""Child processes that end with their parent, whatever ends the parent.

On Linux the child asks the kernel for SIGKILL at its parent's death (PR_SET_PDEATHSIG). That signal is sent when the
*thread* that forked ends, so all children are forked by one thread that lives as long as the process. The request is
made by a few lines of Python that then replace themselves by the command: unlike `preexec_fn` they cannot deadlock in
a process with threads. Elsewhere a shell waits at the end of a pipe that only the parent holds open, and kills the
child when the pipe closes.

Each child has a session of its own: a Ctrl-C in the terminal reaches the parent only, which stops the children in
order.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

LINUX_LAUNCHER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    os.write(2, f"cannot run {sys.argv[2]}: {error}\\n".encode())
    os._exit(127)
"""
"""Ask for SIGKILL (9) at the parent's death (PR_SET_PDEATHSIG is 1); give up if it is dead already."""

WATCHER_SCRIPT = 'read -r line; kill -KILL "$1" 2>/dev/null'

USES_DEATH_SIGNAL = sys.platform.startswith("linux")


class ChildProcess:
    """A running child: its pid, its end, and the ways to bring it about."""

    def __init__(self, process: "subprocess.Popen[bytes]", watcher: "subprocess.Popen[bytes] | None") -> None:
        self._process = process
        self._watcher = watcher

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status (negative: the signal that ended it), None while it runs."""
        status = self._process.poll()
        if status is not None:
            self._dismiss_watcher()
        return status

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit status; subprocess.TimeoutExpired when it takes longer."""
        status = self._process.wait(timeout)
        self._dismiss_watcher()
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens when the child has ended."""
        self._process.send_signal(number)

    def pause(self) -> None:
        """Make it hang (SIGSTOP); returns once it does, or has ended."""
        self.send_signal(signal.SIGSTOP)
        # The signal is only noticed when each of its threads is: wait for that, and leave the news to others too.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def stop(self, timeout: float) -> int:
        """End it by SIGTERM, by SIGKILL after `timeout` seconds; return the exit status."""
        self.send_signal(signal.SIGTERM)
        # A stopped (SIGSTOP) process handles SIGTERM only once it continues.
        self.send_signal(signal.SIGCONT)
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End it by SIGKILL and return the exit status."""
        self._process.kill()
        return self.wait(timeout=30)

    def _dismiss_watcher(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is None:
            return
        watcher.kill()
        assert watcher.stdin is not None
        with contextlib.suppress(OSError):
            watcher.stdin.close()
        watcher.wait(timeout=30)


def start_child(
    command: Sequence[str],
    *,
    output: IO[bytes] | int = subprocess.DEVNULL,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    use_death_signal: bool | None = None,
) -> ChildProcess:
    """Start a command with no input; `output` takes what it writes to stdout and stderr.

    On Linux a command that cannot be run ends with status 127 and a line in `output`; elsewhere OSError is raised.
    """
    if use_death_signal is None:
        use_death_signal = USES_DEATH_SIGNAL
    arguments = list(command)
    if use_death_signal:
        # -I -S: nothing of the environment or of site-packages may slow down or change the launcher.
        arguments = [sys.executable, "-I", "-S", "-c", LINUX_LAUNCHER, str(os.getpid()), *arguments]
    options: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": output,
        "stderr": subprocess.STDOUT,
        "cwd": cwd,
        "env": None if environment is None else dict(environment),
        "pass_fds": tuple(pass_fds),
        "start_new_session": True,
    }
    process = _spawner().call(lambda: subprocess.Popen(arguments, **options))
    watcher = None if use_death_signal else _watch(process)
    return ChildProcess(process, watcher)


def _watch(process: "subprocess.Popen[bytes]") -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        ["/bin/sh", "-c", WATCHER_SCRIPT, "sh", str(process.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class _Spawner:
    """One daemon thread that runs what it is given; it ends only with the process."""

    def __init__(self) -> None:
        self.owner_pid = os.getpid()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="kbroker-spawner", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._calls.get()()

    def call(self, function: "Callable[[], subprocess.Popen[bytes]]") -> "subprocess.Popen[bytes]":
        """Run the function in the thread and return its value, or raise its exception, here."""
        done: queue.SimpleQueue[subprocess.Popen[bytes] | BaseException] = queue.SimpleQueue()

        def run() -> None:
            try:
                done.put(function())
            except BaseException as error:
                done.put(error)

        self._calls.put(run)
        result = done.get()
        if isinstance(result, BaseException):
            raise result
        return result


_spawner_lock = threading.Lock()
_current_spawner: _Spawner | None = None


def _spawner() -> _Spawner:
    """Return this process's spawner; a forked process has lost its parent's threads and gets its own."""
    global _current_spawner
    with _spawner_lock:
        if _current_spawner is None or _current_spawner.owner_pid != os.getpid():
            _current_spawner = _Spawner()
        return _current_spawner
