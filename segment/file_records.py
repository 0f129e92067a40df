"""Records that stay in their file until they are sent."""

from __future__ import annotations

from kbroker.segment.files import PooledFile


class FileRecords:
    """A slice of one segment's file: what a Fetch answer sends with sendfile.

    `fileno()` opens the file if need be and pins it until `release()` (also called when the object is dropped): a
    slice that is pinned can be read to its end even if its segment is deleted meanwhile. Ask for it late, just before
    sending, and release it after: pinned files count against the pool of open descriptors. sendfile returns 0 early
    when the log was truncated meanwhile (a follower); the connection must then be closed.
    """

    __slots__ = ("_pinned", "file", "goes_on", "offset", "position", "segment_base_offset", "size")

    def __init__(self, file: PooledFile, position: int, size: int, segment_base_offset: int, offset: int = -1) -> None:
        self.file = file
        self._pinned = False
        self.position = position
        """Byte position of the slice in the file."""
        self.size = size
        self.segment_base_offset = segment_base_offset
        self.offset = offset
        """What was asked for: the first batch holds it."""
        self.goes_on = False
        """Whether there are further records below the reader's limit in a later segment."""

    def __len__(self) -> int:
        """Bytes in the slice."""
        return self.size

    def fileno(self) -> int:
        """Open and pin the file; its descriptor."""
        if self._pinned:
            return self.file.descriptor
        descriptor = self.file.pool.pin(self.file)
        self._pinned = True
        return descriptor

    def release(self) -> None:
        """Give the file back to the pool. Idempotent."""
        if self._pinned:
            self._pinned = False
            self.file.pool.unpin(self.file)

    def read(self) -> bytes:
        """The slice's bytes (pread)."""
        return self.file.read(self.size, self.position) if self.size else b""

    def read_ahead(self) -> None:
        """Bring the slice into the page cache, so that sending it does not wait for the disk. Blocks."""
        if self.size:
            self.file.read_ahead(self.size, self.position)

    def __del__(self) -> None:
        if self._pinned:
            self.release()
