"""The offsets that a group has committed, and those on their way into the log (pure).

A commit is `begin`-ned when its record is about to be appended and ends as `stored` or `failed`: the offset counts only
when it is acknowledged. Should two commits of a partition be acknowledged out of order, the later record wins.
Offsets of a transaction wait, by producer id, for the marker that decides it. A removal is a record like any other:
what came into the log before it is gone, also what waits for its marker, whenever that is written or heard of. (It is
what compaction leaves, too.) What is removed is not read any more, but the removal is owed until its record, or that of
a later commit, is acknowledged: should it fail, the log still has the offset, and a next coordinator would find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kbroker.protocol.grouping import Key


class CommittedOffset(NamedTuple):
    """What one commit said."""

    offset: int
    """The next record the group will read."""
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    """ms since 1970"""
    expire_timestamp: int = -1
    """-1, or when this offset goes whatever the broker's retention (old clients could say so)."""


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("_owed", "_pending", "_records", "committed", "transactional")

    def __init__(self) -> None:
        self.committed: dict[Key, CommittedOffset] = {}
        self.transactional: dict[int, dict[Key, tuple[CommittedOffset, int]]] = {}
        """producer id -> partition -> (offset, offset of its record) of transactions that are not decided."""
        self._records: dict[Key, int] = {}
        """Offsets of the records that `committed` comes from."""
        self._pending: dict[Key, int] = {}
        """How many commits are on their way."""
        self._owed: dict[Key, None] = {}
        """Whose removal is not known to be in the log."""

    @property
    def is_waiting(self) -> bool:
        """Whether commits are on their way or in transactions that are not decided."""
        return bool(self._pending or self.transactional)

    # --- plain commits ----------------------------------------------------------------------------------------

    def begin(self, keys: Iterable[Key]) -> None:
        """Commits of these partitions are about to be appended."""
        pending = self._pending
        for key in keys:
            pending[key] = pending.get(key, 0) + 1

    def stored(self, key: Key, committed: CommittedOffset, record_offset: int) -> None:
        """A commit is acknowledged; its record has this offset."""
        self._end(key)
        self.load(key, committed, record_offset)

    def failed(self, keys: Iterable[Key]) -> None:
        """Commits could not be appended, or nobody knows whether they were."""
        for key in keys:
            self._end(key)

    def load(self, key: Key, committed: CommittedOffset, record_offset: int) -> None:
        """Take over a commit that is in the log, unless a later one is known."""
        if self._records.get(key, -1) <= record_offset:
            self._records[key] = record_offset
            self.committed[key] = committed
            self._owed.pop(key, None)

    def load_all(self, committed: dict[Key, CommittedOffset], records: dict[Key, int]) -> None:
        """Take over commits that are in the log, with the offsets of their records; the dicts are ours from then on."""
        if not self.committed:
            self.committed, self._records = committed, records
            return
        for key, each in committed.items():
            self.load(key, each, records[key])

    def record_offset(self, key: Key) -> int:
        """Return the offset of the record that says what is committed; -1 when nothing is."""
        return self._records.get(key, -1)

    def _end(self, key: Key) -> None:
        left = self._pending.get(key, 0) - 1
        if left > 0:
            self._pending[key] = left
        else:
            self._pending.pop(key, None)

    # --- transactional commits --------------------------------------------------------------------------------

    def stored_in_transaction(self, producer_id: int, key: Key, committed: CommittedOffset, record_offset: int) -> None:
        """A commit inside of a transaction is acknowledged; it was `begin`-ned as a plain one is."""
        self._end(key)
        self.add_transactional(producer_id, key, committed, record_offset)

    def add_transactional(self, producer_id: int, key: Key, committed: CommittedOffset, record_offset: int) -> None:
        """A commit inside of a transaction is in the log."""
        waiting = self.transactional.setdefault(producer_id, {})
        if key not in waiting or waiting[key][1] <= record_offset:
            waiting[key] = (committed, record_offset)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """The transaction's marker is in the log: its offsets count, or are forgotten."""
        for key, (committed, record_offset) in self.transactional.pop(producer_id, {}).items():
            if is_commit:
                self.load(key, committed, record_offset)

    # --- questions --------------------------------------------------------------------------------------------

    def is_unstable(self, key: Key) -> bool:
        """Whether a commit of the partition is under way, plain or in a transaction."""
        if key in self._pending:
            return True
        return any(key in offsets for offsets in self.transactional.values())

    # --- the end of offsets -----------------------------------------------------------------------------------

    def remove(self, keys: Iterable[Key]) -> list[Key]:
        """Forget offsets, those in transactions, too; return those whose removal is to be written, or written again."""
        removed = []
        for key in keys:
            # What is on its way comes into the log before the removal, and goes with it: see `removal_stored`.
            known = self.committed.pop(key, None) is not None or key in self._pending or key in self._owed
            self._records.pop(key, None)
            for offsets in self.transactional.values():
                known = offsets.pop(key, None) is not None or known
            if known:
                removed.append(key)
                self._owed[key] = None
        self.transactional = {producer: offsets for producer, offsets in self.transactional.items() if offsets}
        return removed

    def removal_stored(self, key: Key, record_offset: int) -> None:
        """A removal is acknowledged, its record has this offset: what came into the log before it is gone, too."""
        self._owed.pop(key, None)
        if self._records.get(key, record_offset) < record_offset:
            del self.committed[key], self._records[key]
        for producer_id, offsets in list(self.transactional.items()):
            if key in offsets and offsets[key][1] < record_offset:
                del offsets[key]
                if not offsets:
                    del self.transactional[producer_id]

    def owed_removals(self) -> list[Key]:
        """Return the partitions whose removal may be written again: nothing has been committed for them since."""
        return [key for key in self._owed if not self.is_unstable(key)]

    def take_over_removals(self, former: GroupOffsets) -> None:
        """Owe what the group that had this one's id owes."""
        self._owed.update((key, None) for key in former._owed if key not in self.committed)

    def pending_keys(self) -> list[Key]:
        """Return the partitions whose commits are on their way."""
        return list(self._pending)

    def all_keys(self) -> dict[Key, None]:
        """Return the partitions with offsets that are committed, on their way, in transactions, or still in the log."""
        waiting = (key for offsets in self.transactional.values() for key in offsets)
        return dict.fromkeys((*self.committed, *waiting, *self._pending, *self._owed))

    def expired(
        self,
        now: int,
        retention_ms: int,
        base_timestamp: Callable[[CommittedOffset], int],
        is_kept: Callable[[str], bool] = lambda topic: False,
    ) -> list[Key]:
        """Return the partitions whose retention is over; `is_kept` tells the topics that somebody reads."""
        found = []
        for key, committed in self.committed.items():
            if self.is_unstable(key) or is_kept(key[0]):
                continue
            if committed.expire_timestamp >= 0:
                over = now >= committed.expire_timestamp
            else:
                over = now - base_timestamp(committed) >= retention_ms
            if over:
                found.append(key)
        return found

    def check(self) -> None:
        """Assert what always holds."""
        assert self.committed.keys() == self._records.keys()
        assert all(count > 0 for count in self._pending.values())
        assert all(self.transactional.values())
        assert not self._owed.keys() & self.committed.keys()
