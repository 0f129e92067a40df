"""What compaction makes of a group of segments: `<base>.log.cleaned` with its indexes, until it takes their place.

Written by one thread and read by nobody. It is on disk, whole, before the first of its files is renamed:

    .cleaned    being written; a start removes it
    .swap       finished; a start completes the exchange: it removes what this replaces and takes the suffix off
    (none)      the log's segment
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbroker.segment.files import Buffer, FilePool, Folder, PooledFile
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.names import CLEANED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, file_name
from kbroker.segment.offset_index import OffsetIndex
from kbroker.segment.time_index import TimeIndex
from kbroker.segment.transaction_index import AbortedTransaction, TransactionIndex


class CleanedSegment:
    """Append, finish, then either rename it twice and take it over as a segment, or discard it."""

    def __init__(self, pool: FilePool, folder: Folder, base_offset: int, max_index_bytes: int) -> None:
        """Make the empty file. Raises OSError, as all that follows."""
        self.pool = pool
        self.folder = folder
        self.base_offset = base_offset
        self.size = 0
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            pool.files.unlink(f"{folder.path}/{file_name(base_offset, suffix)}{CLEANED}")
        self._log = PooledFile(pool, folder, file_name(base_offset, LOG) + CLEANED, create=True)
        self._log.write(b"", 0)
        self._index = OffsetIndex(pool, folder, base_offset, max_index_bytes, INDEX + CLEANED)
        self._time_index = TimeIndex(pool, folder, base_offset, max_index_bytes, TIME_INDEX + CLEANED)
        self._transaction_index: TransactionIndex | None = None

    def _files(self) -> dict[str, PooledFile]:
        files: dict[str, PooledFile] = {LOG: self._log, INDEX: self._index, TIME_INDEX: self._time_index}
        if self._transaction_index is not None:
            files[TRANSACTION_INDEX] = self._transaction_index
        return files

    def append(self, batches: Buffer, marks: Iterable[Sequence[int]]) -> None:
        """Add batches, and index entries where RecordFilter has set marks, as long as there is room."""
        self._log.write(batches, self.size)
        self.size += len(batches)
        for last_offset, position, timestamp, offset_of_timestamp in marks:
            if not (self._index.is_full or self._time_index.is_full):
                self._index.append(last_offset, position)
                self._time_index.maybe_append(timestamp, offset_of_timestamp)

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Keep an entry of the transaction index; in the order of the markers."""
        if self._transaction_index is None:
            self._transaction_index = TransactionIndex(
                self.pool, self.folder, self.base_offset, TRANSACTION_INDEX + CLEANED
            )
        self._transaction_index.append(transaction)

    def finish(self, max_timestamp: int, offset_of_max_timestamp: int, modified_ns: int) -> None:
        """End the indexes, give all the time of the newest segment replaced, let everything reach the disk."""
        self._time_index.maybe_append(max_timestamp, offset_of_max_timestamp)
        self._index.write_out()
        self._time_index.write_out()
        for file in self._files().values():
            file.sync()
            self.pool.files.set_modified(file.path, modified_ns)

    def rename(self, state: str) -> None:
        """Give all files another state (SWAP, then none): the log first, as a start expects it."""
        for suffix, file in self._files().items():
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
        for file in self._files().values():
            file.close()

    def discard(self) -> None:
        """Remove the files."""
        for file in self._files().values():
            file.remove()
