"""The aborted transactions of a segment (`.txnindex`); the file exists only when there are some.

entry = version int16 = 0 | producer id int64 | first offset int64 | last offset int64 | last stable offset int64
        34 bytes, big-endian, ascending by last offset (the offset of the ABORT marker)
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from kbroker.segment.files import FilePool, Folder, PooledFile
from kbroker.segment.names import TRANSACTION_INDEX, file_name

ENTRY = struct.Struct(">hqqqq")
_last_offset = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """One aborted transaction that had data."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The ABORT marker's offset."""
    last_stable_offset: int
    """The log's last stable offset once this one was decided."""


class TransactionIndex(PooledFile):
    """Aborted transactions in the order of their markers, all in memory once used.

    Whoever appends or truncates holds the log's lock; readers hold none. So the list only grows, or is replaced.
    """

    __slots__ = ("_entries",)

    def __init__(self, pool: FilePool, folder: Folder, base_offset: int, suffix: str = TRANSACTION_INDEX) -> None:
        super().__init__(pool, folder, file_name(base_offset, suffix), create=True)
        self._entries: list[AbortedTransaction] = []
        data = pool.files.read_file(self.path) or b""
        if len(data) % ENTRY.size:
            raise ValueError(f"{self.path}: {len(data)} bytes are no whole number of {ENTRY.size}-byte entries")
        self._entries = [parse_entry(data, position) for position in range(0, len(data), ENTRY.size)]
        before = base_offset - 1
        for each in self._entries:
            if each.producer_id < 0 or not 0 <= each.first_offset <= each.last_offset or each.last_offset <= before:
                raise ValueError(f"{self.path}: {each} behind offset {before} makes no sense")
            before = each.last_offset

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        """All entries, ascending by last offset."""
        return tuple(self._entries)

    def append(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction (its marker was just appended to this segment)."""
        self.write(ENTRY.pack(0, *transaction), len(self._entries) * ENTRY.size)
        self._entries.append(transaction)

    def enter(self, transactions: Iterable[AbortedTransaction]) -> int:
        """Add those that are not there, wherever they belong, and let all reach the disk; how many."""
        known = {each.last_offset for each in self._entries}
        lost = [each for each in transactions if each.last_offset not in known]
        if lost:
            entries = sorted([*self._entries, *lost], key=_last_offset)
            self.write(b"".join(ENTRY.pack(0, *each) for each in entries), 0)
            self.sync()
            self._entries = entries
        return len(lost)

    def collect(self, fetch_offset: int, upper: int, found: list[AbortedTransaction]) -> bool:
        """Add what overlaps [fetch_offset, upper) to found; True when no later segment can hold more."""
        entries = self._entries
        for number in range(bisect_left(entries, fetch_offset, key=_last_offset), len(entries)):
            transaction = entries[number]
            if transaction.first_offset < upper:
                found.append(transaction)
            if transaction.last_stable_offset >= upper:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker lies at or above offset."""
        kept = bisect_left(self._entries, offset, key=_last_offset)
        if kept != len(self._entries):
            self.truncate(kept * ENTRY.size)
            self._entries = self._entries[:kept]


def parse_entry(data: bytes, position: int) -> AbortedTransaction:
    """Read one entry. Raises ValueError for a version other than 0."""
    version, *fields = ENTRY.unpack_from(data, position)
    if version != 0:
        raise ValueError(f"unknown version {version} of an aborted transaction at position {position}")
    return AbortedTransaction(*fields)
