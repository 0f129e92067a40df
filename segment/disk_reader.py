"""Reads a file from its disk, past the page cache.

What is damaged on the disk below a page that is cached is seen, and what others have cached stays: neither do its pages
go, nor do others come in their place. A file system that has no such reads forgets its pages first.
"""

from __future__ import annotations

import errno
import mmap
import os

from kbroker.segment.files import Files

_BLOCK = mmap.PAGESIZE
"""Places and lengths are multiples of it, and so is the buffer's address: O_DIRECT wants that."""
_DIRECT: int = getattr(os, "O_DIRECT", 0)


class DiskReader:
    """Of one thread. Everything raises OSError; to be closed."""

    def __init__(self, files: Files, path: str) -> None:
        self.is_direct = bool(_DIRECT)
        """Whether the kernel reads past its cache."""
        self._files = files
        self._path = path
        self._buffer = mmap.mmap(-1, _BLOCK)
        self._descriptor = -1
        self._open()

    def _open(self) -> None:
        flags = os.O_RDONLY | os.O_CLOEXEC
        try:
            self._descriptor = self._files.open(self._path, flags | (_DIRECT if self.is_direct else 0))
        except OSError as error:
            if error.errno != errno.EINVAL or not self.is_direct:
                raise
            self.is_direct = False
            self._descriptor = self._files.open(self._path, flags)

    def read(self, size: int, position: int) -> bytes:
        """Up to size bytes from position; fewer only at the file's end."""
        first = position - position % _BLOCK
        wanted = -(-(position + size - first) // _BLOCK) * _BLOCK
        if wanted > len(self._buffer):
            self._buffer.close()
            self._buffer = mmap.mmap(-1, wanted)
        done = 0
        while done < wanted:
            with memoryview(self._buffer) as view, view[done:wanted] as rest:
                taken = self._read_into(rest, first + done)
            done += taken
            if not taken or taken % _BLOCK:  # the file's end
                break
        begin = position - first
        return self._buffer[begin : max(begin, min(done, begin + size))]

    def _read_into(self, buffer: memoryview, position: int) -> int:
        if self.is_direct:
            try:
                return self._files.read_into(self._descriptor, (buffer,), position)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            self.is_direct = False
            self._close_file()  # also where it cannot be opened again: its number may be another file's by then
            self._open()
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, position, len(buffer), os.POSIX_FADV_DONTNEED)
        return self._files.read_into(self._descriptor, (buffer,), position)

    def close(self) -> None:
        """Close the file."""
        self._buffer.close()
        if self._descriptor >= 0:
            self._close_file()

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        self._files.close(descriptor)
