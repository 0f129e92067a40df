"""A file system with little room, for one broker: a tmpfs in a mount namespace that outlives the broker.

disk = SmallDisk(folder, "3m")
disk.launcher       goes before the broker's command
disk.path           where it is; brokers, and the test, find it there under the same name
disk.grow("100m")   more room, with all that is on it
"""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

LIMIT_S = 20


@functools.cache
def may_mount() -> bool:
    """Whether a file system can be mounted in a namespace of one's own (root may)."""
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    try:
        return subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False).returncode == 0
    except OSError:
        return False


class SmallDisk:
    """A context manager: what is on the disk is gone with the block."""

    def __init__(self, folder: Path, size: str, beside: SmallDisk | None = None) -> None:
        """Mount it; `size` as for tmpfs, as in "3m". `beside` another one: in the same namespace."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        # The shell waits at the end of a pipe that only this process holds open: it ends with it, and the disk too.
        script = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && read -r line'
        command = ["unshare", "-m"] if beside is None else beside.launcher
        self._holder = subprocess.Popen(
            [*command, "sh", "-c", script, "sh", size, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"mounted\n"

    @property
    def launcher(self) -> list[str]:
        """Run a command where the disk is mounted."""
        return ["nsenter", "-m", "-t", str(self._holder.pid)]

    @property
    def path(self) -> Path:
        """The disk as every process of the machine finds it."""
        return Path(f"/proc/{self._holder.pid}/root{self.folder}")

    def grow(self, size: str) -> None:
        """Give it more room."""
        command = [*self.launcher, "mount", "-o", f"remount,size={size}", str(self.folder)]
        subprocess.run(command, check=True, timeout=LIMIT_S)

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *exception: object) -> None:
        self._holder.kill()
        self._holder.communicate(timeout=LIMIT_S)
