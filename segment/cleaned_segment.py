"""What compaction makes of a group of segments: `<base>.log.cleaned` with its indexes, until it takes their place.

Written by one thread and read by nobody. It is on disk, whole, before the first of its files is renamed:

    .cleaned    being written; a start removes it
    .swap       finished; a start completes the exchange: it removes what this replaces and takes the suffix off
    (none)      the log's segment
"""

from __future__ import annotations

from kbroker.segment.files import Buffer, FilePool, Folder, PooledFile
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.names import CLEANED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, file_name
from kbroker.segment.transaction_index import ENTRY, AbortedTransaction


class CleanedSegment:
    """Append, finish, then either rename it twice and take it over as a segment, or discard it."""

    def __init__(self, pool: FilePool, folder: Folder, base_offset: int) -> None:
        """Make the empty file. Raises OSError, as all that follows."""
        self.pool = pool
        self.folder = folder
        self.base_offset = base_offset
        self.size = 0
        self._contents = {INDEX: bytearray(), TIME_INDEX: bytearray(), TRANSACTION_INDEX: bytearray()}
        """Of the small files, written at the end."""
        self._files: dict[str, PooledFile] = {}
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            pool.files.unlink(f"{folder.path}/{file_name(base_offset, suffix)}{CLEANED}")
        self._log = self._make(LOG)

    def _make(self, suffix: str) -> PooledFile:
        file = PooledFile(self.pool, self.folder, file_name(self.base_offset, suffix) + CLEANED, create=True)
        self._files[suffix] = file
        return file

    def append(self, batches: Buffer, offset_entries: bytes, time_entries: bytes) -> None:
        """Add batches and their index entries."""
        self._log.write(batches, self.size)
        self.size += len(batches)
        self._contents[INDEX] += offset_entries
        self._contents[TIME_INDEX] += time_entries

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Keep an entry of the transaction index; in the order of the markers."""
        self._contents[TRANSACTION_INDEX] += ENTRY.pack(0, *transaction)

    def finish(self, last_time_entry: bytes, modified_ns: int) -> None:
        """Write the indexes, give all the time of the newest segment replaced, let everything reach the disk."""
        self._contents[TIME_INDEX] += last_time_entry
        for suffix, content in self._contents.items():
            if content or suffix != TRANSACTION_INDEX:
                self._make(suffix).write(content, 0)
        for file in self._files.values():
            file.sync()
            self.pool.files.set_modified(file.path, modified_ns)

    def rename(self, state: str) -> None:
        """Give all files another state (SWAP, then none): the log first, as a start expects it."""
        for suffix, file in self._files.items():
            self.pool.rename(file, file_name(self.base_offset, suffix) + state)

    def to_segment(self, config: LogConfig, created_ms: int) -> LogSegment:
        """The segment that the files, renamed, are."""
        self.close()
        segment = LogSegment(self.pool, self.folder, self.base_offset, config, created_ms, self.size)
        segment.forget_timestamps()
        segment.trust_all()
        return segment

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def discard(self) -> None:
        """Remove the files."""
        for file in self._files.values():
            file.remove()
