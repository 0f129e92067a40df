"""Entries that transaction indexes have lost are found by the markers, and entered again."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.protocol.records.control import ControlType
from kbroker.protocol.records.offset_map import BYTES_PER_ENTRY
from kbroker.segment.cleaning import CleaningAborted
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.lost_aborts import enter_lost_aborts
from kbroker.segment.scrubber import LogScrubber, LogScrubberSettings
from kbroker.segment.transaction_index import ENTRY, AbortedTransaction
from tests.segment.batches import new_log, reopen
from tests.segment.compaction import COMPACTED, LIMITS, clean, end_transaction, put, roll, values

WAYS = ["removed", "emptied", "shortened"]


def entries(log: Log) -> list[list[AbortedTransaction]]:
    """By segment."""
    indexes = [segment.transaction_index() for segment in log.segments]
    return [[] if index is None else list(index.entries) for index in indexes]


def write(log: Log, producer: int, sequence: int, *keys: str) -> None:
    put(log, *((key, f"of {producer}") for key in keys), producer=(producer, 0, sequence), transactional=True)


def with_transactions(path: Path, config: LogConfig) -> Log:
    """Three segments: aborted transactions within and across them, committed ones, one without data."""
    log = new_log(path, config)
    put(log, ("a", "committed"), ("b", "committed"), ("c", "committed"))
    write(log, 7, 0, "a")
    write(log, 8, 0, "d")
    end_transaction(log, ControlType.ABORT, 7)
    write(log, 9, 0, "b")
    roll(log)
    write(log, 8, 1, "e")
    end_transaction(log, ControlType.COMMIT, 8)
    write(log, 7, 1, "c")
    end_transaction(log, ControlType.ABORT, 9)
    end_transaction(log, ControlType.ABORT, 8)
    end_transaction(log, ControlType.ABORT, 7)
    roll(log)
    put(log, ("f", "committed"))
    return log


def spoiled(log: Log, way: str) -> Log:
    """Opened again after a clean stop, with transaction indexes that lack something."""
    log.close()
    path = log.directory.parent
    for file in log.directory.glob("*.txnindex"):
        if way == "removed":
            file.unlink()
        else:
            file.write_bytes(b"" if way == "emptied" else file.read_bytes()[: -ENTRY.size])
    end = log.log_end_offset
    known: dict[str, Any] = {"clean": True, "high_watermark": end, "recovery_point": end}
    return reopen(path, log.config, **known)


@pytest.mark.parametrize("way", WAYS)
def test_what_an_index_has_lost_is_entered_again(tmp_path: Path, way: str) -> None:
    log = with_transactions(tmp_path, COMPACTED)
    before = entries(log)
    assert [len(each) for each in before] == [1, 2, 0]
    again = spoiled(log, way)
    assert entries(again) != before
    counts = [enter_lost_aborts(again, segment) for segment in again.segments]
    assert counts == [1, 1 if way == "shortened" else 2, 0]
    assert entries(again) == before
    assert not any(enter_lost_aborts(again, segment) for segment in again.segments)
    again.close()
    again = reopen(tmp_path, COMPACTED, clean=True)
    assert entries(again) == before
    again.close()


@pytest.mark.parametrize("way", WAYS)
def test_compaction_removes_nothing_for_the_sake_of_aborted_records(tmp_path: Path, way: str) -> None:
    log = with_transactions(tmp_path, COMPACTED)
    before = entries(log)
    everything = values(log)
    again = spoiled(log, way)
    with pytest.raises(CleaningAborted):
        clean(again)
    assert (values(again), entries(again)) == (everything, before)
    clean(again)
    kept = {key: value for _, key, value in values(again)}
    assert kept == dict.fromkeys("abcf", "committed") | {"d": "of 8", "e": "of 8"}
    again.close()


def test_a_marker_behind_what_is_compacted_counts(tmp_path: Path) -> None:
    """Another transaction, that is open, keeps compaction away from it."""
    log = new_log(tmp_path, COMPACTED)
    put(log, ("a", "committed"))
    write(log, 7, 0, "a")
    roll(log)
    write(log, 8, 0, "b")
    end_transaction(log, ControlType.ABORT, 7)
    again = spoiled(log, "removed")
    again.update_high_watermark(again.log_end_offset)
    with pytest.raises(CleaningAborted):
        clean(again)
    clean(again)
    assert values(again)[0] == (0, "a", "committed")
    again.close()


def test_a_marker_that_was_met_before_the_map_was_full_counts_once(tmp_path: Path) -> None:
    log = new_log(tmp_path, COMPACTED)
    put(log, *((f"key-{number}", "value") for number in range(8)))
    write(log, 7, 0, "a")
    end_transaction(log, ControlType.ABORT, 7)
    write(log, 7, 1, "a")
    roll(log)
    end_transaction(log, ControlType.COMMIT, 7)
    stats = clean(log, limits=replace(LIMITS, map_bytes=4 * BYTES_PER_ENTRY))
    assert 0 < stats.end_offset < 8
    log.close()


@pytest.mark.parametrize("way", WAYS)
def test_the_scrubber_enters_what_an_index_has_lost(tmp_path: Path, way: str) -> None:
    log = with_transactions(tmp_path, LogConfig())
    before = entries(log)
    again = spoiled(log, way)
    manager: Any = SimpleNamespace(logs={("orders", 0): again})
    scrubber = LogScrubber(manager, LogScrubberSettings())
    assert not scrubber.scrub_all()
    assert (entries(again), scrubber.damages) == (before, 0)
    again.close()
