"""Aborted transactions of a segment."""

import random
from pathlib import Path

import pytest

from kbroker.segment.files import FilePool, Folder
from kbroker.segment.transaction_index import AbortedTransaction, TransactionIndex

FIRST, SECOND = AbortedTransaction(1, 10, 20, 15), AbortedTransaction(2, 15, 30, 31)


def test_entries_are_collected_where_they_overlap_and_survive(tmp_path: Path) -> None:
    index = TransactionIndex(FilePool(capacity=16), Folder(str(tmp_path)), 0)
    index.append(FIRST)
    index.append(SECOND)
    index.close()
    again = TransactionIndex(FilePool(capacity=16), Folder(str(tmp_path)), 0)
    assert list(again.entries) == [FIRST, SECOND]
    found: list[AbortedTransaction] = []
    assert not again.collect(21, 100, found)
    assert found == [SECOND]
    found.clear()
    assert again.collect(0, 12, found)
    assert found == [FIRST]
    again.truncate_to(25)
    assert list(again.entries) == [FIRST]
    assert (tmp_path / f"{0:020d}.txnindex").stat().st_size == 34
    again.close()


def test_what_is_collected_is_what_overlaps_wherever_one_begins(tmp_path: Path) -> None:
    rng = random.Random(5)
    index = TransactionIndex(FilePool(capacity=16), Folder(str(tmp_path)), 0)
    entries: list[AbortedTransaction] = []
    last_stable_offset = 0
    for number in range(200):
        last_offset = 5 * number + 4
        last_stable_offset = rng.randint(last_stable_offset, last_offset + 1)
        entries.append(
            AbortedTransaction(
                number % 9, rng.randint(max(0, last_offset - 60), last_offset), last_offset, last_stable_offset
            )
        )
        index.append(entries[-1])
    for start in range(1010):
        upper = start + rng.randint(1, 100)
        found: list[AbortedTransaction] = []
        is_last = index.collect(start, upper, found)
        assert is_last == any(each.last_offset >= start and each.last_stable_offset >= upper for each in entries)
        looked_at = entries
        if is_last:
            ends = next(
                n for n, each in enumerate(entries) if each.last_offset >= start and each.last_stable_offset >= upper
            )
            looked_at = entries[: ends + 1]
        assert found == [each for each in looked_at if each.last_offset >= start and each.first_offset < upper]
    index.truncate_to(504)
    assert index.entries == tuple(entries[:100])
    index.append(SECOND._replace(last_offset=504))
    index.close()
    again = TransactionIndex(FilePool(capacity=16), Folder(str(tmp_path)), 0)
    assert again.entries == (*entries[:100], SECOND._replace(last_offset=504))
    again.close()


def test_a_torn_or_unknown_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.txnindex"
    for data in (bytes(33), b"\0\1" + bytes(32)):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"whole number|version"):
            TransactionIndex(FilePool(capacity=16), Folder(str(tmp_path)), 0)
