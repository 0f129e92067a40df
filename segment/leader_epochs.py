"""Leader epoch -> its first offset (`leader-epoch-checkpoint`, format in checkpoints.py).

Kafka syncs this file at every change. Here a change only marks it: it is written by the next flush, roll, close or
`LogManager.run_due` (every second), and synced by the flush. Nothing is lost by that: every batch carries its leader
epoch, the recovery point never passes data before the file is synced, and recovery reads the epochs of all batches
above it again. An epoch without a batch says nothing that the next election would not say.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right

from kbroker.protocol.errors import ErrorCode, KafkaError

Entries = tuple[tuple[int, int], ...]

UNDEFINED = (-1, -1)


class LeaderEpochs:
    """Which leader epoch begins where. Both columns strictly increase. Thread-safe."""

    __slots__ = ("_doubted", "_lock", "dirty", "entries", "latest_epoch")

    def __init__(self, entries: Entries = ()) -> None:
        self._lock = threading.Lock()
        """Held while entries are replaced. Nobody waits for a disk with it: a leader is elected while others do."""
        self.entries: Entries = entries
        """(epoch, start offset); replaced as a whole, so any thread may read it."""
        self.latest_epoch = entries[-1][0] if entries else -1
        self.dirty = False
        """Whether the file does not show this yet."""
        self._doubted: Entries = ()
        """What the file said of offsets that a recovery has not come to yet."""

    def _replace(self, entries: Entries) -> None:
        if entries != self.entries:
            self.entries = entries
            self.latest_epoch = entries[-1][0] if entries else -1
            self.dirty = True

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that epoch begins at start_offset; entries that this contradicts go. True when anything changed."""
        with self._lock:
            if self.entries and epoch == self.latest_epoch and start_offset >= self.entries[-1][1]:
                return False
            kept = list(self.entries)
            while kept and (kept[-1][0] >= epoch or kept[-1][1] >= start_offset):
                kept.pop()
            self._replace((*kept, (epoch, start_offset)))
            return True

    def begin(self, epoch: int, start_offset: int) -> None:
        """A leader of another epoch than the latest appends; one of an earlier epoch may not."""
        if epoch < self.latest_epoch:
            message = f"a leader of epoch {epoch} appends, but epoch {self.latest_epoch} has begun"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        self.assign(epoch, start_offset)

    def doubt_from(self, offset: int) -> None:
        """The entries at or above offset may be of what was cut since: the batches found there tell."""
        self._doubted = tuple(entry for entry in self.entries if entry[1] >= offset)
        self.truncate_from_end(offset)

    def find(self, epoch: int, base_offset: int, next_offset: int) -> None:
        """Note a batch of a log that is read from its first to its last.

        Compaction may have removed the first batches of an epoch, or all: what was doubted and lies in the hole before
        this batch still holds.
        """
        while self._doubted and self._doubted[0][1] < next_offset:
            (doubted, start), *rest = self._doubted
            self._doubted = tuple(rest)
            if self.latest_epoch < doubted <= epoch and start <= base_offset:
                self.assign(doubted, start)
        if epoch > self.latest_epoch:
            self.assign(epoch, base_offset)

    def truncate_from_end(self, offset: int) -> None:
        """Drop the epochs that begin at or above offset."""
        with self._lock:
            self._replace(tuple(entry for entry in self.entries if entry[1] < offset))

    def truncate_from_start(self, offset: int) -> None:
        """Drop the epochs below offset; the one that reaches over it begins there now."""
        with self._lock:
            dropped = bisect_right(self.entries, offset, key=_start)
            if dropped:
                self._replace(((self.entries[dropped - 1][0], offset), *self.entries[dropped:]))

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._replace(())

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch <= the one asked for, as OffsetForLeaderEpoch answers."""
        entries = self.entries
        if epoch < 0 or not entries or epoch > entries[-1][0]:
            return UNDEFINED
        if epoch == entries[-1][0]:
            return epoch, log_end_offset
        higher = bisect_right(entries, epoch, key=_epoch)
        if higher == 0:  # older than all that is known: it ended before the first known one began
            return epoch, entries[0][1]
        return entries[higher - 1][0], entries[higher][1]

    def first_offset_after(self, epoch: int) -> int | None:
        """Where the first epoch above this one begins; None when there is none."""
        number = bisect_right(self.entries, epoch, key=_epoch)
        return self.entries[number][1] if number < len(self.entries) else None

    def epoch_for_offset(self, offset: int) -> int:
        """Epoch of the record at offset, -1 when not known."""
        number = bisect_right(self.entries, offset, key=_start)
        return self.entries[number - 1][0] if number else -1

    def previous_epoch(self, epoch: int) -> int:
        """The greatest known epoch below this one, -1 when there is none."""
        number = bisect_left(self.entries, epoch, key=_epoch)
        return self.entries[number - 1][0] if number else -1


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
