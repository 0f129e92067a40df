"""Aborted transactions of a segment."""

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
    assert again.entries == (FIRST, SECOND)
    found: list[AbortedTransaction] = []
    assert not again.collect(21, 100, found)
    assert found == [SECOND]
    found.clear()
    assert again.collect(0, 12, found)
    assert found == [FIRST]
    again.truncate_to(25)
    assert again.entries == (FIRST,)
    assert (tmp_path / f"{0:020d}.txnindex").stat().st_size == 34
    again.close()


def test_a_torn_or_unknown_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.txnindex"
    for data in (bytes(33), b"\0\1" + bytes(32)):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"whole number|version"):
            TransactionIndex(FilePool(capacity=16), Folder(str(tmp_path)), 0)
