"""One .log file with its indexes. (Skeleton.)"""

from __future__ import annotations


class FileRecords:
    """A slice of one segment's file: what a Fetch answer sends with sendfile.

    `fileno()` opens the file if need be and pins it, until `release()` (also called when the object is dropped): a deleted
    or renamed segment stays readable for a slice that is pinned. Ask for it late, just before sending, and release after:
    pinned files count against the pool of open descriptors. sendfile may return 0 early when the log was truncated
    meanwhile: the connection must then be closed.
    """

    __slots__ = ("position", "segment_base_offset", "size")

    size: int
    position: int
    """Byte position of the slice in the file."""
    segment_base_offset: int

    def fileno(self) -> int:
        """Open and pin the file; its descriptor."""
        raise NotImplementedError

    def release(self) -> None:
        """Give the file back to the pool. Idempotent."""
        raise NotImplementedError

    def read(self) -> bytes:
        """The slice's bytes (pread)."""
        raise NotImplementedError
