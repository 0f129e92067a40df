"""One compaction of one log: what stays, where it lies, and who may go on reading meanwhile."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.compression import CompressionType
from kbroker.protocol.records.control import ControlType
from kbroker.segment.cleaned_segment import CleanedSegment
from kbroker.segment.cleaning import Cleaning, CleaningAborted
from kbroker.segment.cleaning_plan import examine
from kbroker.segment.files import Files
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.offset_lookup import collect_aborted
from kbroker.segment.recovery import KnownOffsets
from tests.segment.batches import NOW, reopen
from tests.segment.compaction import (
    COMPACTED,
    LIMITS,
    clean,
    compacted_log,
    end_transaction,
    headers,
    put,
    records,
    roll,
    values,
)

DAY = 86_400_000


def test_the_last_value_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in range(100):
        put(log, (f"key-{number % 7}", f"value-{number}"))
    roll(log)
    stats = clean(log)
    assert values(log) == [(number, f"key-{number % 7}", f"value-{number}") for number in range(93, 100)]
    assert (stats.records_read, stats.records_kept, stats.end_offset) == (100, 7, 100)
    assert (log.log_start_offset, log.log_end_offset, log.first_dirty_offset) == (0, 100, 100)
    log.close()


def test_the_active_segment_and_what_is_not_replicated_stay_as_they_are(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, segment_bytes=300))
    for number in range(30):
        put(log, ("k", f"{number:020d}"))
    bases = [segment.base_offset for segment in log.segments]
    log.update_high_watermark(bases[3] + 1)
    log.high_watermark = bases[3] + 1
    clean(log)
    assert [offset for offset, _, _ in values(log)] == list(range(bases[3] - 1, 30))
    log.update_high_watermark(30)
    clean(log)
    assert [offset for offset, _, _ in values(log)] == list(range(bases[-1] - 1, 30))
    log.close()


def test_an_open_transaction_is_not_compacted(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, ("a", "1"))
    roll(log)
    put(log, ("a", "2"), producer=(5, 0, 0), transactional=True)
    roll(log)
    assert clean(log).end_offset == 1
    assert values(log) == [(0, "a", "1"), (1, "a", "2")]
    end_transaction(log, ControlType.COMMIT, 5)
    roll(log)
    clean(log)
    assert values(log) == [(1, "a", "2")]
    log.close()


def test_a_tombstone_stays_for_delete_retention_ms_and_takes_older_records_along(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, delete_retention_ms=DAY))
    put(log, ("a", "1"), ("b", "1"))
    roll(log)
    put(log, ("a", None))
    roll(log)
    clean(log)
    assert values(log) == [(1, "b", "1"), (2, "a", None)]
    clean(log, NOW + DAY - 1)
    assert values(log) == [(1, "b", "1"), (2, "a", None)]
    clean(log, NOW + DAY)
    assert values(log) == [(1, "b", "1")]
    log.close()


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4])
@pytest.mark.parametrize("is_aborted", [False, True])
def test_where_the_log_ends_is_still_told_when_nothing_before_an_empty_active_segment_stays(
    tmp_path: Path, compression: CompressionType, is_aborted: bool
) -> None:
    for name in ("log", "replica"):
        (tmp_path / name).mkdir()
    log = compacted_log(tmp_path / "log", replace(COMPACTED, delete_retention_ms=DAY))
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None), ("b", None), compression=compression)
    if is_aborted:
        put(log, ("c", "1"), producer=(5, 0, 0), transactional=True)
        end_transaction(log, ControlType.ABORT, 5)
        log.producers.state.producers.clear()  # expired
    end = log.log_end_offset
    roll(log)
    for later in (0, 1, 2):
        clean(log, NOW + later * DAY)
    assert [(header.next_offset, header.count) for header in headers(log)] == [(end, 0)]
    replica = compacted_log(tmp_path / "replica")
    replica.append_as_follower(log.read(0, 1 << 20).read())
    assert replica.log_end_offset == end
    put(log, ("d", "1"))
    roll(log)
    clean(log, NOW + 2 * DAY)
    assert values(log) == [(end, "d", "1")], "and goes when others follow"
    assert [header.count for header in headers(log)] == [1]
    log.close()
    replica.close()


def test_aborted_records_go_at_once_their_marker_and_index_entry_later(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, delete_retention_ms=DAY))
    put(log, ("a", "kept"))
    put(log, ("a", "aborted"), producer=(5, 0, 0), transactional=True)
    end_transaction(log, ControlType.ABORT, 5)
    put(log, ("c", "other"), producer=(5, 0, 1), transactional=True)
    end_transaction(log, ControlType.COMMIT, 5)
    roll(log)
    clean(log)
    assert values(log) == [(0, "a", "kept"), (3, "c", "other")]
    assert [header.base_offset for header in headers(log) if header.is_control] == [2, 4]
    index = log.segments[0].transaction_index()
    assert index is not None
    assert [entry.last_offset for entry in index.entries] == [2]
    clean(log)
    assert [(h.base_offset, h.has_delete_horizon) for h in headers(log) if h.is_control] == [(2, True), (4, False)]
    assert log.segments[0].transaction_index() is None
    clean(log, NOW + DAY)
    assert [header.base_offset for header in headers(log) if header.is_control] == [4]
    log.close()


def test_a_value_is_kept_from_an_aborted_one_whose_marker_is_not_compacted_yet(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, ("a", "committed"))
    put(log, ("a", "aborted"), producer=(5, 0, 0), transactional=True)
    roll(log)
    end_transaction(log, ControlType.ABORT, 5)
    clean(log)
    assert values(log) == [(0, "a", "committed")]
    roll(log)
    clean(log)
    assert values(log) == [(0, "a", "committed")]
    log.close()


def test_the_newest_batch_of_an_active_producer_keeps_its_sequence(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, ("a", "1"), ("b", "1"), producer=(5, 3, 0))
    put(log, ("a", "2"), ("b", "2"), producer=(6, 0, 0))
    put(log, ("a", "3"), ("b", "3"))
    roll(log)
    clean(log)
    assert [(h.base_offset, h.count, h.producer_id, h.last_sequence) for h in headers(log)[:2]] == [
        (0, 0, 5, 1),
        (2, 0, 6, 1),
    ]
    log.close()
    again = reopen(tmp_path, COMPACTED, recovery_point=0)
    put(again, ("c", "next"), producer=(5, 3, 2))
    assert values(again) == [(4, "a", "3"), (5, "b", "3"), (6, "c", "next")]
    again.close()


def test_a_marker_that_alone_knows_a_producers_epoch_keeps_its_head(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, delete_retention_ms=0))
    put(log, ("a", "1"), producer=(5, 0, 0), transactional=True)
    end_transaction(log, ControlType.ABORT, 5, epoch=1)
    roll(log)
    for now in (NOW, NOW + 1, NOW + 2, NOW + 3):
        clean(log, now)
    (marker,) = headers(log)
    assert (marker.is_control, marker.count, marker.producer_epoch) == (True, 0, 1)
    log.close()


def test_neighbours_are_put_together_up_to_a_segment(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, segment_bytes=1_000))
    for number in range(60):
        put(log, (f"{number:04d}", "v" * 100))
    count = len(log.segments)
    clean(log)
    assert len(log.segments) == count  # nothing went, so no two fit together
    for number in range(0, 60, 2):
        put(log, (f"{number:04d}", "w" * 100))
    roll(log)
    clean(log)
    halves = len(log.segments)
    clean(log)
    assert len(log.segments) < halves
    assert all(segment.size <= 1_000 for segment in log.segments)
    assert len(values(log)) == 60
    log.close()


def test_indexes_of_a_compacted_segment_find_everything(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, segment_bytes=100_000))
    for number in range(400):
        put(log, (f"{number % 100}-{number % 3}", f"{number}"), timestamp=NOW + number)
    roll(log)
    clean(log)
    segment = log.segments[0]
    assert segment.index.count > 50
    kept = records(log)
    for record in kept:
        assert log.read(record.offset, 1).read()[:8] == record.offset.to_bytes(8, "big")
        found = log.offset_for_timestamp(record.timestamp)
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (record.offset, record.timestamp)
    gone = next(offset for offset in range(400) if offset not in {record.offset for record in kept})
    following = min(record.offset for record in kept if record.offset > gone)
    assert log.read(gone, 1).read()[:8] == following.to_bytes(8, "big")
    assert segment.max_timestamp == max(record.timestamp for record in kept if record.offset < 400)
    log.close()


def test_the_time_of_the_newest_segment_is_kept(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    put(log, ("a", "1"))
    roll(log)
    before = log.segments[0].file.change_time_ns()
    clean(log)
    assert log.segments[0].file.change_time_ns() == before
    log.close()


def test_a_reader_that_holds_a_replaced_segment_reads_on(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in range(20):
        put(log, ("a", f"{number}"))
    roll(log)
    old_segment = log.segments[0]
    slices = [log.read(offset, 10_000) for offset in (0, 7, 15)]
    expected = [part.read() for part in slices]
    for _ in range(3):  # each compaction buries a segment of the same name
        clean(log)
    assert [part.read() for part in slices] == expected
    assert old_segment.find(7) == slices[1].position
    assert len(list(log.directory.glob("*.log*.deleted"))) == 3
    log.close()


def test_aborted_transactions_of_a_slice_are_found_when_its_segment_was_replaced_meanwhile(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, segment_bytes=100_000))
    for number in range(300):
        put(log, (f"{number}", "x" * 50))
    roll(log)
    for number in range(30):
        put(log, (f"t{number}", "aborted"), producer=(5, 0, number), transactional=True)
    end_transaction(log, ControlType.ABORT, 5)
    roll(log)
    part = log.read(300, 1_000)
    expected = log.aborted_transactions(part)
    assert [each.first_offset for each in expected] == [300]
    clean(log)
    assert len(log.segments) == 2
    assert log.aborted_transactions(part) == expected
    log.close()


def test_a_log_reads_the_same_after_a_clean_and_after_an_unclean_restart(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in range(50):
        put(log, (f"key-{number % 4}", "x" * 50), producer=(5, 0, number))
    roll(log)
    clean(log)
    before = values(log)
    end = log.log_end_offset
    log.close()
    for clean_stop in (True, False):
        again = reopen(tmp_path, COMPACTED, clean=clean_stop, first_dirty_offset=50)
        assert (values(again), again.log_end_offset, again.first_dirty_offset) == (before, end, 50)
        put(again, ("z", "next"), producer=(5, 0, end))
        before, end = values(again), again.log_end_offset
        again.close()


def test_a_map_too_small_takes_several_rounds(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in range(100):
        put(log, (f"{number % 10}", f"{number}"), ("same", "x"))
    roll(log)
    small = replace(LIMITS, map_bytes=24 * 5)
    ends: list[int] = []
    while not ends or ends[-1] < 200:
        ends.append(clean(log, limits=small).end_offset)
    assert ends == sorted(set(ends))
    assert len(ends) > 10
    assert values(log) == [*((180 + 2 * key, f"{key}", f"{90 + key}") for key in range(10)), (199, "same", "x")]
    log.close()


def test_a_batch_larger_than_a_chunk_is_read_whole(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, segment_bytes=100_000))
    put(log, ("a", "1" * 30_000))
    put(log, ("b", "2" * 30_000), compression=CompressionType.ZSTD)
    put(log, ("a", "3"))
    roll(log)
    clean(log)
    assert [key for _, key, _ in values(log)] == ["b", "a"]
    log.close()


@pytest.mark.parametrize("place", [-71, -69, -60, -40, -1], ids=str)
def test_damage_is_refused_and_nothing_is_changed(tmp_path: Path, place: int) -> None:
    log = compacted_log(tmp_path)
    for number in range(10):
        put(log, ("a", f"{number}"))
    roll(log)
    path = log.directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(KafkaError):
        clean(log)
    assert path.read_bytes() == data
    assert not list(log.directory.glob("*.cleaned"))
    log.close()


def meddled(log: Log, change: object) -> None:
    """Compact, and change the log in the middle of it."""
    pauses = []

    def pause(size: int) -> None:
        pauses.append(size)
        if len(pauses) == 3:
            assert callable(change)
            change()

    with pytest.raises(CleaningAborted):
        Cleaning(examine(log, NOW), LIMITS, NOW, pause).run()
    assert len(pauses) >= 3
    assert not list(log.directory.glob("*.cleaned"))


def test_truncation_ends_a_compaction_and_what_was_cut_does_not_come_back(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in range(60):
        put(log, (f"{number % 5}", f"{number:060d}"))
    roll(log)
    meddled(log, lambda: log.truncate_to(7))
    assert [offset for offset, _, _ in values(log)] == list(range(7))
    log.close()


def test_truncation_makes_dirty_what_comes_after_it(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, replace(COMPACTED, segment_bytes=500))
    for number in range(30):
        put(log, (f"{number}", "x" * 50))
    roll(log)
    clean(log)
    assert log.first_dirty_offset == 30
    log.truncate_to(20)
    assert log.first_dirty_offset == log.active_segment.base_offset <= 20
    log.close()


def test_retention_and_deletion_end_a_compaction(tmp_path: Path) -> None:
    for name, change in (
        ("retention", lambda log: (log.update_log_start_offset(40), log.retention(NOW))),
        ("restart", lambda log: log.truncate_fully_and_start_at(100)),
        ("deletion", Log.discard),
    ):
        (tmp_path / name).mkdir()
        log = compacted_log(tmp_path / name)
        for number in range(60):
            put(log, (f"{number % 50}", f"{number:060d}"))
        roll(log)
        meddled(log, lambda log=log, change=change: change(log))
        log.discard()


@pytest.mark.parametrize("moment", ["while it reads", "before it swaps the first segments in"])
def test_nothing_is_taken_from_a_topic_that_is_not_compacted_any_more(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = compacted_log(tmp_path)
    for number in range(60):
        put(log, (f"{number % 5}", f"{number:060d}"))
    roll(log)
    before = values(log)

    def change() -> None:
        log.apply_config(replace(log.config, cleanup_policy=("delete",)))

    if moment == "while it reads":
        meddled(log, change)
    else:
        finish = CleanedSegment.finish

        def finish_and_change(*args: Any) -> None:
            finish(*args)
            change()

        monkeypatch.setattr(CleanedSegment, "finish", finish_and_change)
        with pytest.raises(CleaningAborted):
            Cleaning(examine(log, NOW), LIMITS, NOW, lambda size: None).run()
    assert values(log) == before
    assert not list(log.directory.glob("*.cleaned"))
    log.close()


operation = st.one_of(
    st.tuples(st.just("put"), st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=4)),
    st.tuples(st.just("transact"), st.integers(0, 2), st.lists(st.integers(0, 5), min_size=1, max_size=3)),
    st.tuples(st.just("end"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.integers(0, 100), st.sampled_from([3, 100])),
    st.tuples(st.just("reopen"), st.booleans()),
)


class Unsynced(Files):
    """Does not wait for the disk, for tests that make many logs."""

    __slots__ = ()

    def sync(self, descriptor: int) -> None:
        pass

    def sync_folder(self, path: str) -> None:
        pass


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    operations=st.lists(operation, max_size=40),
    codec=st.sampled_from([CompressionType.NONE, CompressionType.LZ4]),
    delete_retention_ms=st.sampled_from([0, 50, 1000]),
)
def test_a_reader_of_committed_records_ends_with_the_same_table(
    operations: list[tuple[object, ...]], codec: CompressionType, delete_retention_ms: int
) -> None:
    """Whatever is written and compacted: who reads it all has the last committed value of each key, in order."""
    config = replace(COMPACTED, segment_bytes=400, delete_retention_ms=delete_retention_ms)
    with TemporaryDirectory() as folder:
        run = Run(Path(folder), config, codec)
        for name, *arguments in operations:
            getattr(run, f"do_{name}")(*arguments)
        run.finish()


class Run:
    """A log and the model of it."""

    def __init__(self, path: Path, config: LogConfig, codec: CompressionType) -> None:
        self.path, self.config, self.codec = path, config, codec
        self.log = compacted_log(path, config, Unsynced())
        self.now = NOW
        self.table: dict[str, tuple[int, str | None]] = {}
        """Key -> offset and value of the last committed record."""
        self.open: dict[int, list[tuple[int, str, str | None]]] = {}
        self.sequences: dict[int, int] = {}

    def do_put(self, pairs: list[tuple[int, bool]]) -> None:
        base = self.log.log_end_offset
        items = [(f"k{key}", None if deletes else f"v{base + at}") for at, (key, deletes) in enumerate(pairs)]
        put(self.log, *items, compression=self.codec)
        self.table |= {key: (base + at, value) for at, (key, value) in enumerate(items)}

    def do_transact(self, producer: int, keys: list[int]) -> None:
        base = self.log.log_end_offset
        items = [(f"k{key}", f"t{base + at}") for at, key in enumerate(keys)]
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(items)
        put(self.log, *items, compression=self.codec, producer=(producer, 0, sequence), transactional=True)
        self.open.setdefault(producer, []).extend((base + at, *item) for at, item in enumerate(items))

    def do_end(self, producer: int, commits: bool) -> None:
        written = self.open.pop(producer, None)
        if written is None:
            return
        end_transaction(self.log, ControlType.COMMIT if commits else ControlType.ABORT, producer)
        for offset, key, value in written if commits else ():
            if self.table.get(key, (-1, ""))[0] < offset:
                self.table[key] = (offset, value)

    def do_roll(self) -> None:
        if self.log.active_segment.size:
            roll(self.log)

    def do_clean(self, later: int, slots: int) -> None:
        self.now += later
        stable = self.log.last_stable_offset
        before = [each for each in values(self.log) if each[0] >= stable]
        clean(self.log, self.now, replace(LIMITS, map_bytes=24 * slots))
        assert [each for each in values(self.log) if each[0] >= stable] == before
        self.check()

    def do_reopen(self, was_clean: bool) -> None:
        known = KnownOffsets(
            was_clean, 0, self.log.log_start_offset, self.log.high_watermark, self.log.first_dirty_offset
        )
        end = self.log.log_end_offset
        producers = self.log.producers.newest_batches()
        self.log.close()
        fields = {name: getattr(known, name) for name in KnownOffsets.__dataclass_fields__}
        self.log = reopen(self.path, self.config, Unsynced(), **fields)
        assert self.log.log_end_offset == end
        assert self.log.producers.newest_batches() == producers
        self.check()

    def check(self) -> None:
        """What a reader of committed records would have in the end."""
        committed = self.committed()
        offsets = [offset for offset, _, _ in committed]
        assert offsets == sorted(set(offsets))
        found: dict[str, tuple[int, str | None]] = {key: (offset, value) for offset, key, value in committed}
        living = {key: item for key, item in found.items() if item[1] is not None}
        assert living == {key: item for key, item in self.table.items() if item[1] is not None}
        tombstones = {key: item for key, item in found.items() if item[1] is None}
        assert tombstones.items() <= self.table.items()

    def committed(self) -> list[tuple[int, str, str | None]]:
        aborted = collect_aborted(self.log.segments, self.log.log_start_offset, self.log.log_end_offset)
        hidden = [(each.producer_id, each.first_offset, each.last_offset) for each in aborted]
        undecided = {offset for written in self.open.values() for offset, _, _ in written}
        writer = {header.base_offset: header.producer_id for header in headers(self.log)}
        bases = sorted(writer)
        found = []
        for offset, key, value in values(self.log):
            producer = writer[max(base for base in bases if base <= offset)]
            if offset in undecided or any(p == producer and low <= offset <= high for p, low, high in hidden):
                continue
            found.append((offset, key, value))
        return found

    def finish(self) -> None:
        for producer in list(self.open):
            self.do_end(producer, producer == 1)
        self.do_roll()
        for _ in range(3):
            self.do_clean(1000, 100)
        tombstones = [value for _, _, value in values(self.log) if value is None]
        assert not tombstones
        assert len(values(self.log)) == sum(value is not None for _, value in self.table.values())
        self.log.close()
