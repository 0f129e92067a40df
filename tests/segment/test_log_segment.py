"""One segment: its index entries, and which of its bytes are trusted."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path
from threading import Barrier

import pytest

from kbroker.protocol.records.batch import stamp
from kbroker.segment import log_segment
from kbroker.segment.batch_checks import check_batches
from kbroker.segment.fetched import check_fetched
from kbroker.segment.files import Buffer, Files, NotInMemory
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_segment import LogSegment
from tests.segment.batches import batch, fill, new_log, reopen
from tests.segment.interleaving import at_each_line

CONFIG = LogConfig(index_interval_bytes=300)


def test_an_index_entry_is_the_last_offset_of_a_chunk_and_its_position_but_none_for_the_first(tmp_path: Path) -> None:
    log = new_log(tmp_path, CONFIG)
    fill(log, 20, count=2)
    size = log.active_segment.size // 20
    index = log.active_segment.index
    entries = [index.entry(number) for number in range(index.count)]
    assert entries[0] == (2 * (300 // size + 1) + 1, (300 // size + 1) * size)
    assert all(position == offset // 2 * size for offset, position in entries)
    assert log.active_segment.time_index.count == len(entries)
    log.close()


def test_threads_that_ask_for_an_index_at_once_are_given_the_same(tmp_path: Path) -> None:
    log = new_log(tmp_path, CONFIG)
    fill(log, 20)
    log.close()
    with ThreadPoolExecutor(4) as threads:
        for _ in range(100):
            segment = LogSegment(log.active_segment.pool, log.active_segment.folder, 0, CONFIG, 0, log.size)
            segment.forget_timestamps()
            barrier = Barrier(4)

            def ask(barrier: Barrier = barrier, segment: LogSegment = segment) -> tuple[object, object, int]:
                barrier.wait()
                return segment.index, segment.time_index, segment.max_timestamp

            asked = [threads.submit(ask) for _ in range(4)]
            assert len({each.result() for each in asked}) == 1
            segment.close()


@pytest.mark.parametrize("line", range(20))
def test_what_is_appended_during_a_read_is_not_read_beyond_its_limit(tmp_path: Path, line: int) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=1500))
    fill(log, 10)
    found = []
    others = chain(repeat(lambda: None, line), [lambda: fill(log, 1), lambda: fill(log, 30)])
    at_each_line(lambda: found.append(log.read(4, 1 << 20, 10)), Log.read.__code__, others)
    (records,) = found
    assert [header.base_offset for _, header in check_fetched(memoryview(records.read()), "")] == [4, 5, 6, 7, 8, 9]
    log.close()


def test_who_is_not_patient_checks_little_and_leaves_the_rest_to_others(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 8, size=100_000)
    size = log.size // 8
    log.close()
    again = reopen(tmp_path, recovery_point=8, log_start_offset=0, clean=True)
    assert again.read(7, 1 << 20, patient=False).size == size
    with pytest.raises(NotInMemory):
        again.read(0, 1 << 20, patient=False)
    assert again.read(0, 1 << 20).size == 8 * size
    assert again.read(0, 1 << 20, patient=False).size == 8 * size
    again.close()


def test_what_was_appended_a_moment_ago_is_in_memory_without_asking(tmp_path: Path) -> None:
    class Silent(Files):
        def read_at_once(self, descriptor: int, buffer: bytearray, position: int) -> bool:
            raise AssertionError

    log = new_log(tmp_path, files=Silent())
    fill(log, 8, size=1000)
    assert log.read(7, 1 << 20, patient=False).size == log.size // 8
    log.close()


def test_what_is_found_good_while_a_segment_is_distrusted_brings_no_former_trust_back(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 10)
    segment = log.active_segment
    meanwhile = threading.Thread(target=segment.distrust)

    class Ranges(list[tuple[int, int]]):
        """Looked at just when somebody else distrusts it all."""

        def __iter__(self) -> Iterator[tuple[int, int]]:
            meanwhile.start()
            meanwhile.join(0.2)
            return super().__iter__()

    segment.trusted_from = segment.size
    segment._trusted = Ranges([(0, 100)])
    segment._trust(200, 300, segment._distrusts)
    meanwhile.join(20)
    assert [segment._trusted, segment.trusted_from] == [None, segment.size]
    log.close()


def test_what_a_reader_knew_before_trust_was_taken_away_is_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log(tmp_path)
    fill(log, 10)
    segment = log.active_segment
    segment.distrust()
    log.read(0, segment.size // 10 * 3)
    assert segment._trusted

    def check(data: bytes, *limits: int) -> tuple[int, str]:
        segment.distrust()  # by another thread, which has just found damage
        return check_batches(data, *limits)

    monkeypatch.setattr(log_segment, "check_batches", check)
    log.read(0, 1 << 20)
    assert [segment._trusted, segment.trusted_from] == [None, segment.size]
    log.close()


class Writing(Files):
    """A disk that lets others look at a file that it is still writing to."""

    __slots__ = ("look",)

    def __init__(self) -> None:
        self.look: Callable[[], object] = list

    def pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        written = os.pwrite(descriptor, data, position)
        os.utime(descriptor, ns=(0, time.time_ns()))
        self.look()
        return written


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_write_that_is_not_over_is_no_change_from_outside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_leader: bool
) -> None:
    caplog.set_level(logging.INFO)
    files, read = Writing(), list[int]()
    log = new_log(tmp_path, files=files)
    fill(log, 1)
    size = log.size
    files.look = lambda: read.append(log.read(0, 1000).size)
    if is_leader:
        fill(log, 1)
    else:
        continuing = batch()
        stamp(continuing, 0, 1, 0)
        log.append_as_follower(continuing)
    assert (read, log.active_segment._distrusts) == ([size], 0)
    assert "from outside" not in caplog.text
    log.close()
