"""The stand-in for ZooKeeper as a child process: no JVM, there in a few hundredths of a second, on loopback only.

The data directory holds everything: stand_in/journal.py draws it; zookeeper.log is what the process wrote.
It ends with the process that started it. What it acknowledged survives its own end, and with `sync` a power cut.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from pathlib import Path

from kbroker.dev.child_process import start_child
from kbroker.dev.free_ports import free_ports
from kbroker.dev.zookeeper_child import HOST, ZooKeeperChild

BACKLOG = 1000
START_ATTEMPTS = 5
PROGRAM = "import sys; from kbroker.dev.stand_in.process import main; sys.exit(main(sys.argv[1:]))"
READY = b"ready\n"


class StandInError(RuntimeError):
    """The stand-in cannot run: one line says why and what to do."""


class StandInZooKeeper(ZooKeeperChild):
    """One stand-in on loopback, from `start` to `stop`; usable as a context manager."""

    name = "the stand-in for ZooKeeper"

    def __init__(
        self,
        data_dir: Path | str,
        port: int = 0,
        *,
        sync: bool = False,
        tick_time_ms: int = 250,
        host: str = HOST,
    ) -> None:
        """Name the data directory (made when missing) and the port; 0 picks a free one at the first start.

        `sync`: everything is on the disk before it is acknowledged. `host`: no other than loopback is taken.
        """
        if host not in (HOST, "localhost"):
            raise StandInError(
                f"the stand-in for ZooKeeper does not listen on {host}: it is for development and tests only, "
                "one process on loopback"
            )
        super().__init__(data_dir, port)
        self._sync = sync
        self._tick_time_ms = tick_time_ms
        self._ready: int | None = None
        """A pipe in which the process says that it serves."""

    def start(self, timeout: float = 30.0) -> StandInZooKeeper:
        """Start it and return once it serves; StandInError when it cannot.

        A second start keeps the port and the data.
        """
        self.begin()
        return self.wait_until_serving(timeout)

    def begin(self) -> None:
        """Start it and return at once: who connects from now on is served as soon as it can. StandInError."""
        assert not self.is_running, "the stand-in runs already"
        with self._listener() as listener:
            told, tell = os.pipe()
            self._ready = told
            try:
                self._spawn(listener, tell)
            finally:
                os.close(tell)

    def wait_until_serving(self, timeout: float = 30.0) -> StandInZooKeeper:
        """Return once it serves; StandInError when it has ended, or takes longer."""
        assert self._ready is not None, "the stand-in is not started"
        waiting = select.poll()
        waiting.register(self._ready, select.POLLIN)
        answer = os.read(self._ready, len(READY)) if waiting.poll(1000 * timeout) else None
        self._close_ready()
        if answer == READY:
            return self
        if answer is None:
            self.kill()
            raise StandInError(f"the stand-in for ZooKeeper did not start in time: see {self.log_file}")
        assert self._child is not None
        self._child.wait(timeout)
        self._child = None
        raise StandInError(self._last_words())

    def stop(self, timeout: float = 10.0) -> None:
        """End it (SIGTERM, then SIGKILL); its data stays. Harmless when it has ended."""
        self._close_ready()
        super().stop(timeout)

    def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL)."""
        self._close_ready()
        super().kill()

    def __enter__(self) -> StandInZooKeeper:
        return self if self.is_running else self.start()

    def _close_ready(self) -> None:
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None

    def _listener(self) -> socket.socket:
        """Return a listening socket; the port is ours from now on, nobody can take it."""
        for attempt in range(START_ATTEMPTS):
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((HOST, self.port or free_ports(1, HOST)[0]))
                listener.listen(BACKLOG)
            except OSError:
                listener.close()
                if self.port == 0 and attempt + 1 < START_ATTEMPTS:
                    continue
                raise StandInError(
                    f"port {self.port} on {HOST} is taken: choose another for ZooKeeper, or end the process on it"
                ) from None
            self.port = listener.getsockname()[1]
            return listener
        raise AssertionError("unreachable")

    def _spawn(self, listener: socket.socket, tell: int) -> None:
        sync = "sync" if self._sync else "no-sync"
        arguments = [str(self.data_dir), str(listener.fileno()), str(tell), sync, str(self._tick_time_ms)]
        # -S, -P: no site-packages are looked through, which takes longer than all the rest, and nothing else is found.
        command = [sys.executable, "-S", "-P", "-c", PROGRAM, *arguments]
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            with self.log_file.open("wb") as log:
                self._child = start_child(
                    command,
                    output=log,
                    cwd=self.data_dir,
                    environment={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
                    pass_fds=(listener.fileno(), tell),
                )
        except OSError as error:
            raise StandInError(
                f"cannot write to ZooKeeper's data directory {self.data_dir}: {error.strerror}"
            ) from None

    def _last_words(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines()
        return f"the stand-in for ZooKeeper cannot run: {lines[-1] if lines else 'it wrote nothing'}"
