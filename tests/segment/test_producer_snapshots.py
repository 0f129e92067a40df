"""Snapshot files of a log."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbroker.protocol.records.batch import BatchHeader, read_header
from kbroker.segment import producer_snapshots
from kbroker.segment.files import FilePool, Files, Folder
from kbroker.segment.log_config import LogConfig
from kbroker.segment.producer_snapshots import MOST_PRODUCERS_OFTEN, ProducerSnapshots
from kbroker.segment.producer_state import ProducerState, read_snapshot, snapshot_bytes
from tests.segment.batches import NOW, batch, fill, new_log, reopen

LIMIT_S = 30


def written(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.snapshot"))


def test_a_snapshot_is_not_taken_twice_and_goes_when_it_shows_too_much(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(Files(), Folder(str(tmp_path)))
    state = ProducerState()
    snapshots.take(state, 10)
    assert snapshots.write_waiting() == [f"{10:020d}.snapshot"]
    snapshots.take(state, 10)
    before = snapshots.has_waiting
    snapshots.take(state, 20)
    assert (before, snapshots.has_waiting) == (False, True)
    assert snapshots.write_waiting(sync=False) == [f"{20:020d}.snapshot"]
    assert written(tmp_path) == [10, 20]
    assert snapshots.load_newest(state, 0, 15, 0, 1000) == 10
    assert state.last_snapshot_offset == 10
    snapshots.remove_above(15)
    assert snapshots.offsets == written(tmp_path) == [10]
    snapshots.remove_all()
    assert not list(tmp_path.iterdir())


def header(producer_id: int, sequence: int) -> BatchHeader:
    return read_header(batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence))


def test_a_snapshot_shows_the_state_as_it_was_when_it_was_taken(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(Files(), Folder(str(tmp_path)))
    state = ProducerState()
    state.append(header(1, 0), 0, NOW, None)
    state.append(header(2, 0), 1, NOW, None)
    snapshots.take(state, 2)
    state.append(header(2, 1), 2, NOW, None)
    state.append(header(3, 0), 3, NOW, None)
    snapshots.take(state, 4)
    state.append(header(1, 1), 4, NOW, None)
    assert snapshots.write_waiting() == [f"{offset:020d}.snapshot" for offset in (2, 4)]
    found = []
    for offset in (2, 4):
        entries = read_snapshot((tmp_path / f"{offset:020d}.snapshot").read_bytes())
        found.append({entry.producer_id: entry.batches[-1].last_offset for entry in entries})
    assert found == [{1: 0, 2: 1}, {1: 0, 2: 2, 3: 3}]
    assert state.producers[1].next_sequence == 2


def test_a_snapshot_that_waits_is_as_good_as_a_written_one(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(Files(), Folder(str(tmp_path)))
    state = ProducerState()
    state.append(header(1, 0), 5, NOW, None)
    snapshots.take(state, 6)
    state.append(header(1, 1), 6, NOW, None)
    assert snapshots.load_newest(state, 0, 6, NOW, 1000) == 6
    assert state.producers[1].next_sequence == 1
    state.append(header(1, 1), 6, NOW, None)
    snapshots.write_waiting()
    (entry,) = read_snapshot((tmp_path / f"{6:020d}.snapshot").read_bytes())
    assert entry.batches[-1].last_offset == 5


def many_producers(number: int) -> ProducerState:
    state = ProducerState()
    for producer_id in range(number):
        state.append(header(producer_id, 0), producer_id, NOW, None)
    return state


def test_of_very_many_producers_one_snapshot_waits_however_often_a_log_rolls(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(Files(), Folder(str(tmp_path)))
    state = many_producers(MOST_PRODUCERS_OFTEN + 1)
    for offset in range(2000, 2100):
        snapshots.take(state, offset)
    holding = [each for each in gc.get_referrers(state.producers[7]) if isinstance(each, list)]
    assert len(holding) == 1
    assert snapshots.offsets == [2099]
    assert snapshots.write_waiting() == [f"{2099:020d}.snapshot"]
    snapshots.take(state, 2100)
    assert snapshots.offsets == [2099, 2100]


def test_of_very_many_producers_the_snapshot_that_is_being_written_stays_and_the_newest_waits(tmp_path: Path) -> None:
    files = Overtaken()
    snapshots = ProducerSnapshots(files, Folder(str(tmp_path)))
    state = many_producers(MOST_PRODUCERS_OFTEN + 1)
    holding: list[int] = []

    def rolls() -> None:
        for offset in range(2001, 2010):
            snapshots.take(state, offset)
        holding.append(sum(isinstance(each, list) for each in gc.get_referrers(state.producers[7])))

    files.meanwhile = rolls
    snapshots.take(state, 2000)
    assert snapshots.write_waiting() + snapshots.write_waiting() == [f"{each:020d}.snapshot" for each in (2000, 2009)]
    assert snapshots.offsets == [2000, 2009]
    assert holding == [2, 1]


def test_very_many_producers_are_known_after_a_crash_though_retention_took_all_that_they_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_snapshots, "MOST_PRODUCERS_OFTEN", 3)
    config = LogConfig(segment_bytes=300)
    log = new_log(tmp_path, config)
    for producer_id in range(10):
        log.append_as_leader(batch(producer_id=producer_id, producer_epoch=4, base_sequence=0), 0, NOW)
    for sequence in range(1, 20):
        log.append_as_leader(batch(producer_id=0, producer_epoch=4, base_sequence=sequence), 0, NOW)
    log.flush_rolled()
    log.update_high_watermark(log.log_end_offset)
    start = log.segments[-2].base_offset
    log.update_log_start_offset(start)
    assert log.retention(NOW) > 5
    log.flush()
    end = log.log_end_offset
    log.discard()
    again = reopen(tmp_path, config, recovery_point=end, log_start_offset=start, high_watermark=end)
    assert sorted(again.producers.state.producers) == list(range(10))
    again.close()


def test_silent_producers_are_known_after_a_crash_though_only_the_snapshot_that_waited_is_left_to_tell_of_them(
    tmp_path: Path,
) -> None:
    config = LogConfig(segment_bytes=300)
    log = new_log(tmp_path, config)
    for producer_id in range(10):
        log.append_as_leader(batch(producer_id=producer_id, producer_epoch=4, base_sequence=0), 0, NOW)
    log.flush_rolled()
    former = log.active_segment
    while log.active_segment is former:
        fill(log, 1)
    assert log.disk.snapshots.has_waiting
    log.update_high_watermark(log.log_end_offset)
    start = log.delete_records(log.active_segment.base_offset)
    assert log.retention(NOW) > 1
    end = log.log_end_offset
    log.discard()
    again = reopen(tmp_path, config, recovery_point=end, log_start_offset=start, high_watermark=end)
    assert sorted(again.producers.state.producers) == list(range(10))
    again.close()


def test_who_writes_snapshots_is_done_though_others_come_as_fast(tmp_path: Path) -> None:
    state = ProducerState()

    class Rolling(Files):
        def write_file(self, path: str, data: bytes, sync: bool) -> None:
            snapshots.take(state, snapshots.offsets[-1] + 1)
            super().write_file(path, data, sync)

    snapshots = ProducerSnapshots(Rolling(), Folder(str(tmp_path)))
    snapshots.take(state, 1)
    snapshots.take(state, 2)
    assert snapshots.write_waiting(sync=False) == [f"{offset:020d}.snapshot" for offset in (1, 2)]
    assert snapshots.has_waiting


def test_of_a_few_producers_each_roll_has_a_snapshot(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(Files(), Folder(str(tmp_path)))
    state = many_producers(3)
    for offset in range(10, 20):
        snapshots.take(state, offset)
    assert snapshots.offsets == list(range(10, 20))


def test_a_clean_stop_leaves_the_state_at_the_end_though_a_snapshot_of_very_many_waited(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=200))
    log.producers.state = many_producers(MOST_PRODUCERS_OFTEN + 1)
    fill(log, 10)
    assert len(log.disk.snapshots.offsets) == 1
    log.close()
    assert written(log.directory)[-1] == log.log_end_offset


def test_a_roll_without_a_snapshot_is_made_up_for_by_the_one_before_and_the_batches(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=200))
    log.producers.state = many_producers(MOST_PRODUCERS_OFTEN + 1)
    snapshots = log.disk.snapshots
    for sequence in range(10):
        log.append_as_leader(batch(producer_id=7, producer_epoch=1, base_sequence=sequence), 0, NOW)
        if len(log.segments) == 2:
            snapshots.write_waiting()
    assert len(log.segments) > 4
    assert snapshots.offsets == [log.segments[1].base_offset, log.active_segment.base_offset]
    state = ProducerState()
    snapshots.rebuild(state, log.segments, 0, log.segments[-2].base_offset, NOW, 1000)
    assert state.producers[7].next_sequence == log.segments[-2].base_offset
    assert len(state.producers) == MOST_PRODUCERS_OFTEN + 1
    log.close()


def test_a_producer_that_is_silent_is_packed_for_the_first_snapshot_only() -> None:
    state = many_producers(3)
    first = snapshot_bytes(state.capture())
    packed = {producer_id: entry.packed for producer_id, entry in state.producers.items()}
    state.append(header(2, 1), 3, NOW, None)
    second = snapshot_bytes(state.capture())
    assert [state.producers[each].packed is packed[each] for each in range(3)] == [True, True, False]
    assert [each.batches[-1].last_offset for each in read_snapshot(first)] == [0, 1, 2]
    assert [each.batches[-1].last_offset for each in read_snapshot(second)] == [0, 1, 3]


class Overtaken(Files):
    """While it writes, somebody else does something."""

    __slots__ = ("meanwhile",)
    meanwhile: Callable[[], object]

    def write_file(self, path: str, data: bytes, sync: bool) -> None:
        super().write_file(path, data, sync)
        self.meanwhile()


def test_a_snapshot_that_is_removed_while_it_is_written_does_not_come_back(tmp_path: Path) -> None:
    files = Overtaken()
    snapshots = ProducerSnapshots(files, Folder(str(tmp_path)))
    files.meanwhile = snapshots.remove_all
    snapshots.take(ProducerState(), 10)
    assert snapshots.write_waiting() == []
    assert not list(tmp_path.iterdir())


def test_a_snapshot_is_written_where_its_log_went_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    folder = Folder(str(tmp_path / "a"))
    files = Overtaken()
    snapshots = ProducerSnapshots(files, folder)

    def move() -> None:
        if folder.path.endswith("a"):
            os.rename(tmp_path / "a", tmp_path / "b")
            folder.path = str(tmp_path / "b")

    files.meanwhile = move
    snapshots.take(ProducerState(), 10)
    assert snapshots.write_waiting() == [f"{10:020d}.snapshot"]
    assert [each.name for each in (tmp_path / "b").iterdir()] == [f"{10:020d}.snapshot"]


class Moving(Files):
    """Whoever renames a folder waits, before it says so, until another has found nothing where it was."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self.begin = begin
        self.missed = threading.Event()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if os.path.isdir(target):
            self.begin()
            assert self.missed.wait(LIMIT_S)

    def write_file(self, path: str, data: bytes, sync: bool) -> None:
        with self._missing():
            super().write_file(path, data, sync)

    def sync_folder(self, path: str) -> None:
        with self._missing():
            super().sync_folder(path)

    @contextmanager
    def _missing(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            self.missed.set()
            raise


def test_a_snapshot_is_written_though_its_folder_is_being_renamed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    folder = Folder(str(tmp_path / "a"))
    with ThreadPoolExecutor(1) as background:
        written: list[Future[list[str]]] = []
        files = Moving(lambda: written.append(background.submit(snapshots.write_waiting)))
        snapshots = ProducerSnapshots(files, folder)
        snapshots.take(ProducerState(), 10)
        FilePool(files).move_folder(folder, str(tmp_path / "b"))
        assert written[0].result(LIMIT_S) == [f"{10:020d}.snapshot"]
    assert [each.name for each in (tmp_path / "b").iterdir()] == [f"{10:020d}.snapshot"]


def test_a_flush_while_the_log_is_being_deleted_is_no_fault_of_the_disk(tmp_path: Path) -> None:
    renamed = threading.Event()

    class Flushing(Moving):
        def sync_folder(self, path: str) -> None:
            if path == former and not renamed.is_set():
                flushing.set()
                assert renamed.wait(LIMIT_S)
            super().sync_folder(path)

    flushing = threading.Event()
    log = new_log(tmp_path, LogConfig(segment_bytes=200), Flushing(renamed.set))
    former = str(log.directory)
    fill(log, 10)
    with ThreadPoolExecutor(1) as background:
        flushed = background.submit(log.flush)
        assert flushing.wait(LIMIT_S)
        log.rename_folder(f"{former}-delete")
        flushed.result(LIMIT_S)
    assert log.recovery_point == log.log_end_offset == 10
    log.close()
