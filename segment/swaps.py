"""What a compaction or a deletion had begun when its broker ended, undone or completed.

.tmp, .deleted, .cleaned    go
.swap                       replaces the segments of its offsets, the rest of which go with it. One that is damaged
                            goes, where what it was to replace is there; it loses its first segment first. Else it
                            is all there is
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from kbroker.protocol.errors import KafkaError
from kbroker.segment.files import FilePool, Folder
from kbroker.segment.kept_damage import batches
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.names import CLEANED, DELETED, LOG, SNAPSHOT, SWAP, FileName, file_name, parse_file_name
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET

log = logging.getLogger(__name__)


class FolderListing:
    """The names in the folder of a log that is being opened."""

    def __init__(self, pool: FilePool, folder: Folder, config: LogConfig) -> None:
        self._pool = pool
        self._folder = folder
        self._config = config
        self.names = sorted(os.listdir(folder.path))

    def parsed(self) -> list[tuple[str, FileName]]:
        """Those of segments' files."""
        pairs = [(name, parse_file_name(name)) for name in self.names]
        return [(name, parsed) for name, parsed in pairs if parsed is not None]

    def remove(self, name: str, why: str) -> None:
        """Remove a file."""
        log.info("%s/%s: removed, %s", self._folder.path, name, why)
        self._pool.files.unlink(f"{self._folder.path}/{name}")
        self.names.remove(name)

    def finish_swaps(self) -> None:
        """Leave no file of a compaction or a deletion that did not come to its end."""
        if not any(name.endswith((".tmp", DELETED, CLEANED, SWAP)) for name in self.names):
            return
        for name in list(self.names):
            if name.endswith(".tmp"):
                self.remove(name, "an unfinished write")
            elif name.endswith(DELETED):
                self.remove(name, "left over")
        files = [(name, parsed) for name, parsed in self.parsed() if parsed.state]
        if not files:
            return
        cleaned = [parsed.offset for _, parsed in files if parsed.state == CLEANED]
        for name, parsed in files:
            if parsed.state == CLEANED:
                self.remove(name, "left over")
            elif cleaned and parsed.offset >= min(cleaned):
                self.remove(name, "its compaction was not finished")
        swaps = [(name, parsed) for name, parsed in self.parsed() if parsed.state == SWAP]
        bases = [parsed.offset for _, parsed in swaps if parsed.suffix == LOG]
        if bases and not self._make_way(min(bases), swaps):
            for name, _ in swaps:
                self.remove(name, "it was to replace what is there")
        else:
            self._complete(swaps)

    def _make_way(self, low: int, swaps: Sequence[tuple[str, FileName]]) -> bool:
        """Remove what is replaced; False where that is to stay."""
        high = low
        for name, swap in swaps:
            if swap.suffix != LOG:
                continue
            end, why = self._look_at(name, swap.offset)
            if why:
                is_needed = file_name(low, LOG) not in self.names
                what = "what it replaced is gone" if is_needed else "removed, what it was to replace is there"
                log.error("%s/%s is damaged (%s): %s", self._folder.path, name, why, what)
                if not is_needed:
                    return False
            high = max(high, end)
        for name, parsed in self.parsed():
            if not parsed.state and parsed.suffix != SNAPSHOT and low <= parsed.offset < high:
                self.remove(name, "replaced by a compacted segment")
        return True

    def _look_at(self, name: str, base_offset: int) -> tuple[int, str]:
        """The offset behind the last good batch of a segment, and what is wrong behind it or ""."""
        segment = LogSegment(self._pool, self._folder, base_offset, self._config, 0)
        segment.file.name = name
        segment.size = segment.file.file_size()
        end, reached = base_offset, 0
        try:
            for position, header, is_good in batches(segment, base_offset + MAX_RELATIVE_OFFSET + 1):
                if not is_good:
                    return end, f"the batch at position {position} is not what was written"
                end, reached = header.next_offset, position + header.size
        except KafkaError as error:
            return end, error.message
        finally:
            segment.close()
        return end, "" if reached == segment.size else f"it ends within the batch at position {reached}"

    def _complete(self, swaps: Sequence[tuple[str, FileName]]) -> None:
        for name, _ in swaps:
            plain = name.removesuffix(SWAP)
            self._pool.files.rename(f"{self._folder.path}/{name}", f"{self._folder.path}/{plain}")
            self.names.remove(name)
            if plain not in self.names:  # one that an empty segment replaces is still there: its range holds no offset
                self.names.append(plain)
