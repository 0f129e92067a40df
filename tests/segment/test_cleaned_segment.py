"""Files under another name until they take the place of others."""

import os
from pathlib import Path

import pytest

from kbroker.segment.cleaned_segment import CleanedSegment
from kbroker.segment.files import FilePool, Folder
from kbroker.segment.log_config import LogConfig
from kbroker.segment.names import SWAP
from kbroker.segment.transaction_index import AbortedTransaction
from tests.segment.batches import batch


@pytest.fixture
def cleaned(tmp_path: Path) -> CleanedSegment:
    return CleanedSegment(FilePool(), Folder(str(tmp_path)), 0, 36)


def names(path: Path) -> list[str]:
    return sorted(name.removeprefix("0" * 20) for name in os.listdir(path))


def test_it_is_written_under_its_own_names_and_renamed_twice(tmp_path: Path, cleaned: CleanedSegment) -> None:
    data = bytes(batch(2))
    cleaned.append(data, [])
    cleaned.append(data, [(3, len(data), 70, 1), (4, len(data), 80, 2), (5, len(data), 90, 3)])
    cleaned.add_aborted(AbortedTransaction(1, 2, 3, 4))
    assert names(tmp_path) == [".log.cleaned", ".txnindex.cleaned"]
    cleaned.finish(100, 3, 5_000_000_000)
    assert names(tmp_path) == [f"{suffix}.cleaned" for suffix in (".index", ".log", ".timeindex", ".txnindex")]
    cleaned.rename(SWAP)
    assert names(tmp_path) == [f"{suffix}.swap" for suffix in (".index", ".log", ".timeindex", ".txnindex")]
    cleaned.rename("")
    assert names(tmp_path) == [".index", ".log", ".timeindex", ".txnindex"]
    segment = cleaned.to_segment(LogConfig(), 0)
    assert segment.file.read(10_000, 0) == data + data
    assert [segment.index.lookup(offset) for offset in (2, 3, 5)] == [(0, 0), (3, len(data)), (4, len(data))]
    assert segment.time_index.last_entry == (100, 3)
    assert segment.time_index.count == 3, "as many as there is room for, one of it for the last"
    index = segment.transaction_index()
    assert index is not None
    assert index.entries == (AbortedTransaction(1, 2, 3, 4),)
    assert {os.stat(tmp_path / name).st_mtime_ns for name in os.listdir(tmp_path)} == {5_000_000_000}
    segment.close()


def test_without_aborted_transactions_there_is_no_file_for_them(tmp_path: Path, cleaned: CleanedSegment) -> None:
    cleaned.finish(-1, -1, 1)
    assert names(tmp_path) == [".index.cleaned", ".log.cleaned", ".timeindex.cleaned"]
    cleaned.discard()
    assert names(tmp_path) == []


def test_what_an_earlier_attempt_left_is_not_mixed_in(tmp_path: Path) -> None:
    for suffix in (".log", ".txnindex"):
        (tmp_path / f"{0:020d}{suffix}.cleaned").write_bytes(b"old")
    cleaned = CleanedSegment(FilePool(), Folder(str(tmp_path)), 0, 36)
    cleaned.finish(-1, -1, 1)
    assert (tmp_path / f"{0:020d}.log.cleaned").read_bytes() == b""
    assert not (tmp_path / f"{0:020d}.txnindex.cleaned").exists()
    cleaned.close()
