"""An operating system that fails: writes cut short, a full disk, an I/O error at the n-th call."""

import errno
import os
from collections.abc import Callable

from kbroker.segment.files import Buffer, Files


class FaultyFiles(Files):
    """Counts the calls that change the disk and lets one of them fail."""

    __slots__ = ("calls", "code", "fail_at", "keep", "short")

    def __init__(self, fail_at: int = -1, code: int = errno.EIO, keep: int = 0, short: bool = False) -> None:
        self.calls = 0
        self.fail_at = fail_at
        self.code = code
        self.keep = keep
        """How many bytes of the failing write still reach the file."""
        self.short = short
        """Whether every write takes only half of what it is given (the kernel may)."""

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise OSError(self.code, os.strerror(self.code))

    def pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        self.calls += 1
        if self.calls == self.fail_at:
            if self.keep:
                os.pwrite(descriptor, bytes(data[: self.keep]), position)
            raise OSError(self.code, os.strerror(self.code))
        if self.short and len(data) > 1:
            return os.pwrite(descriptor, bytes(data[: len(data) // 2]), position)
        return os.pwrite(descriptor, data, position)

    def sync(self, descriptor: int) -> None:
        self._count()
        os.fdatasync(descriptor)

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._count()
        return super().open(path, flags)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)


Fault = Callable[[], FaultyFiles]
