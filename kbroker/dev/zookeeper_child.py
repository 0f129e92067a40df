"""What a ZooKeeper that runs as a child process can be told, whichever it is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from kbroker.dev.child_process import ChildProcess

HOST = "127.0.0.1"


class ZooKeeperChild:
    """A server on loopback; whoever makes one of it starts `_child`."""

    name = "ZooKeeper"

    def __init__(self, data_dir: Path | str, port: int) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.port = port
        self._child: ChildProcess | None = None

    @property
    def connect_string(self) -> str:
        """`host:port` for `zookeeper.connect`; a chroot may be appended."""
        return f"{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        """What the server writes."""
        return self.data_dir / "zookeeper.log"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._started().pid

    @property
    def is_running(self) -> bool:
        """Whether the server's process is there (stopped by SIGSTOP counts)."""
        return self._child is not None and self._child.poll() is None

    def stop(self, timeout: float = 10.0) -> None:
        """End the server (SIGTERM, then SIGKILL); its data stays. Harmless when it has ended."""
        child, self._child = self._child, None
        if child is not None:
            child.stop(timeout)

    def kill(self) -> None:
        """End the server at once, as a crash would (SIGKILL)."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def pause(self) -> None:
        """Make the server hang (SIGSTOP): connections stay open, nothing is answered."""
        self._started().pause()

    def resume(self) -> None:
        """Let a paused server continue."""
        os.kill(self.pid, signal.SIGCONT)

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _started(self) -> ChildProcess:
        assert self._child is not None, f"{self.name} is not started"
        return self._child
