"""The log as a whole: append, read, roll, truncate, delete, flush."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import HEADER_SIZE, read_header, split_batches
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.files import Files
from kbroker.segment.log import AppendOrigin, Log
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, TOPIC_ID, batch, fill, new_log, reopen

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def offsets_from(log: Log, offset: int, limit: int | None = None) -> list[int]:
    """Every offset that a consumer sees, fetch by fetch."""
    seen: list[int] = []
    end = log.log_end_offset if limit is None else limit
    while offset < end:
        data = log.read(offset, 500, limit).read()
        for position, size in split_batches(data):
            seen += [record.offset for record in decode_batch(data, position, size) if record.offset >= offset]
        assert seen, f"nothing at {offset}"
        offset = seen[-1] + 1
    return seen


def test_an_append_gives_offsets_and_the_leader_epoch_in_place(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 2, count=3)
    sent = batch(3)
    result = log.append_as_leader(sent, 7, NOW)
    assert (result.base_offset, result.last_offset, result.duplicate, result.log_append_time_ms) == (6, 8, False, -1)
    header = read_header(sent)
    assert (header.base_offset, header.partition_leader_epoch) == (6, 7)
    assert log.log_end_offset == 9
    assert log.leader_epochs.entries == ((0, 0), (7, 6))
    log.close()


def test_an_append_of_an_earlier_leader_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append_as_leader(batch(), 7, NOW)
    with pytest.raises(KafkaError) as refusal:
        log.append_as_leader(batch(), 6, NOW)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (log.log_end_offset, log.latest_epoch) == (1, 7)
    log.close()


LARGER = LogConfig(segment_bytes=2000, index_interval_bytes=300)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda log: log.delete_records(2), (2, ((0, 2),), SMALL)),
        (lambda log: log.update_log_start_offset(1), (1, ((0, 1),), SMALL)),
        (lambda log: log.assign_leader_epoch(7), (0, ((0, 0), (7, 3)), SMALL)),
        (lambda log: log.apply_config(LARGER), (0, ((0, 0),), LARGER)),
    ],
)
def test_what_the_event_loop_changes_waits_for_nobody_who_waits_for_the_disk(
    tmp_path: Path, change: Callable[[Log], object], expected: tuple[object, ...]
) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 3)
    log.update_high_watermark(3)
    with log.changing("append"):
        changing = threading.Thread(target=change, args=(log,))
        changing.start()
        changing.join(20)
        has_ended = not changing.is_alive()
    changing.join(20)
    assert has_ended
    assert (log.log_start_offset, log.leader_epochs.entries, log.config) == expected
    log.close()


class Between(Files):
    """Settings change while a segment is made."""

    __slots__ = ("change",)

    def __init__(self) -> None:
        self.change: Callable[[], object] = list

    def open(self, path: str, flags: int) -> int:
        if path.endswith(".log"):
            self.change()
        return super().open(path, flags)


@pytest.mark.parametrize("makes", [lambda log: fill(log, 1, size=700), lambda log: log.truncate_fully_and_start_at(50)])
def test_settings_that_come_while_a_segment_is_made_are_those_of_that_segment_too(
    tmp_path: Path, makes: Callable[[Log], object]
) -> None:
    files = Between()
    log = new_log(tmp_path, SMALL, files)
    fill(log, 3)
    before = log.active_segment
    files.change = lambda: log.apply_config(LARGER)
    makes(log)
    assert log.active_segment is not before
    assert log.active_segment._interval == LARGER.index_interval_bytes
    log.close()


def test_what_was_appended_is_read_from_any_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60, count=3)
    assert len(log.segments) > 5
    for offset in range(log.log_end_offset):
        assert offsets_from(log, offset)[:2] == [offset, offset + 1][: log.log_end_offset - offset]
    assert offsets_from(log, 0) == list(range(180))
    log.close()


def test_a_read_stops_at_its_limit_and_at_the_end(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60, count=3)
    assert offsets_from(log, 100, limit=117) == list(range(100, 117))
    assert log.read(117, 1000, limit=117).size == 0
    assert log.read(180, 1000).size == 0
    for offset in (-1, 181):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 1000)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.close()


def test_a_read_returns_one_whole_batch_even_if_it_is_too_large_unless_told_otherwise(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3, size=5000)
    whole = read_header(log.read(0, 1).read()).size
    assert log.read(1, 10).size == whole
    assert log.read(1, 10, min_one_batch=False).size == 0
    assert log.read(1, whole + 7).size == whole + 7
    log.close()


def test_roll_starts_the_next_segment_at_the_log_end_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 7)
    before = log.segments
    while log.append_as_leader(batch(), 0, NOW) and len(log.segments) == 1:
        before = log.segments
    assert log.segments[-1].base_offset == log.log_end_offset - 1
    assert log.segments[:-1] == before
    snapshot = log.directory / f"{log.log_end_offset - 1:020d}.snapshot"
    assert not snapshot.exists(), "it takes a while with many producers, and the appender waits"
    log.write_pending()
    assert snapshot.exists()
    log.close()


def test_time_rolls_a_segment_by_its_records_timestamps(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_ms=1000))
    log.append_as_leader(batch(timestamp=NOW), 0, NOW)
    log.append_as_leader(batch(timestamp=NOW + 1000), 0, NOW + 5000)
    assert [segment.base_offset for segment in log.segments] == [0]
    log.append_as_leader(batch(timestamp=NOW + 1001), 0, NOW)
    assert len(log.segments) == 2
    log.close()


def test_a_full_index_rolls_a_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(index_interval_bytes=1, segment_index_bytes=24 * 2))
    fill(log, 12)
    assert len(log.segments) > 1
    log.close()


def test_a_set_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(size=2000), 0, NOW)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    log.close()


def test_a_follower_gets_the_leaders_very_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    leader, follower = new_log(tmp_path / "a", SMALL), new_log(tmp_path / "b", SMALL)
    fill(leader, 40, count=2, epoch=3)
    while follower.log_end_offset < leader.log_end_offset:
        fetched = leader.read(follower.log_end_offset, 700).read()
        follower.append_as_follower(fetched)
    assert b"".join(s.file.read(s.size, 0) for s in leader.segments) == b"".join(
        s.file.read(s.size, 0) for s in follower.segments
    )
    assert follower.leader_epochs.entries == ((3, 0),)
    leader.close()
    follower.close()


def test_a_long_fetch_is_indexed_as_the_leader_has_indexed_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    config = LogConfig(index_interval_bytes=300)
    leader, follower = new_log(tmp_path / "a", config), new_log(tmp_path / "b", config)
    fill(leader, 50, count=2)
    follower.append_as_follower(leader.read(0, 1 << 20).read())
    assert follower.active_segment.index.count > 10
    for log in (leader, follower):
        log.close()
    for suffix in ("log", "index", "timeindex"):
        files = [next(log.directory.glob(f"*.{suffix}")).read_bytes() for log in (leader, follower)]
        assert files[0] == files[1]


def test_a_follower_refuses_what_does_not_continue_its_log(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    data = log.read(1, 1000).read()
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(data)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.close()


def test_an_empty_follower_restarts_at_a_batch_that_spans_its_start(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    leader, follower = new_log(tmp_path / "a"), new_log(tmp_path / "b")
    fill(leader, 2, count=10)
    follower.truncate_fully_and_start_at(5)
    follower.append_as_follower(leader.read(5, 10_000).read())
    assert (follower.log_start_offset, follower.log_end_offset) == (0, 20)
    leader.close()
    follower.close()


def test_truncation_drops_segments_epochs_and_offsets_above(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 30, epoch=1)
    fill(log, 30, epoch=2)
    assert log.truncate_to(25)
    assert (log.log_end_offset, log.high_watermark, log.latest_epoch) == (25, 25, 1)
    assert not log.truncate_to(25)
    fill(log, 5, epoch=3)
    assert offsets_from(log, 0) == list(range(30))
    assert log.offset_for_leader_epoch(1) == (1, 25)
    assert log.offset_for_leader_epoch(2) == (1, 25)
    assert log.offset_for_leader_epoch(3) == (3, 30)
    assert log.offset_for_leader_epoch(4) == (-1, -1)
    log.close()


def test_delete_records_moves_the_start_and_retention_frees_the_segments(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=1000, retention_ms=-1))
    fill(log, 40)
    assert log.delete_records(33) == 33
    with pytest.raises(KafkaError) as caught:
        log.read(32, 1000)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.retention(NOW) > 0
    assert 0 < log.segments[0].base_offset <= 33
    assert log.delete_records(-1) == 40
    with pytest.raises(KafkaError) as caught:
        log.delete_records(41)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.close()


def test_a_start_that_moves_sets_no_high_watermark_back_that_moves_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log(tmp_path, LogConfig(retention_ms=-1))
    fill(log, 40)
    log.update_high_watermark(20)
    with monkeypatch.context() as patched:
        patched.setattr(Log, "update_high_watermark", lambda *_: pytest.fail("another thread may have moved it on"))
        assert log.update_log_start_offset(10)
    assert log.update_log_start_offset(30), "a follower's, by its leader"
    assert (log.log_start_offset, log.high_watermark) == (30, 30)
    log.close()


def test_delete_records_needs_the_delete_policy(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(cleanup_policy=("compact",)))
    with pytest.raises(KafkaError) as caught:
        log.delete_records(0)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    log.close()


def test_a_slice_can_be_read_after_its_segment_was_removed(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 30)
    records = log.read(0, 300)
    descriptor = records.fileno()
    log.truncate_fully_and_start_at(100)
    assert len(os.pread(descriptor, records.size, records.position)) == records.size
    records.release()
    with pytest.raises(FileNotFoundError):
        records.fileno()
    log.close()


def test_flush_moves_the_recovery_point(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 20)
    log.flush(7)
    assert (log.recovery_point, log.log_end_offset) == (7, 20)
    log.flush()
    assert log.recovery_point == 20
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    log.close()


def test_a_flush_that_overlaps_a_truncation_proves_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 20)
    begun = log.begin_flush()
    assert begun is not None
    log.truncate_to(5)
    fill(log, 30)
    assert not log.end_flush(begun)
    assert log.recovery_point == 0
    log.close()


def test_flushes_and_retention_in_other_threads_do_not_disturb_appends(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=1000, index_interval_bytes=50, retention_bytes=3000))
    stop = threading.Event()
    errors: list[BaseException] = []

    def disturb() -> None:
        try:
            while not stop.is_set():
                log.flush()
                log.retention(NOW)
                log.write_pending()
        except BaseException as error:
            errors.append(error)

    worker = threading.Thread(target=disturb)
    worker.start()
    fill(log, 500)
    stop.set()
    worker.join(30)
    assert not errors
    assert offsets_from(log, log.log_start_offset) == list(range(log.log_start_offset, 500))
    log.close()


def test_a_repeated_batch_is_answered_with_its_first_offsets(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for sequence in range(0, 12, 2):
        log.append_as_leader(batch(2, producer_id=5, producer_epoch=0, base_sequence=sequence), 0, NOW)
    again = log.append_as_leader(batch(2, producer_id=5, producer_epoch=0, base_sequence=4), 0, NOW)
    assert (again.base_offset, again.last_offset, again.duplicate) == (4, 5, True)
    assert again.log_append_time_ms > 0
    assert log.log_end_offset == 12
    log.close()


def test_a_transaction_holds_the_last_stable_offset_back_until_its_marker_is_replicated(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 2)
    log.append_as_leader(
        batch(3, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True), 0, NOW, AppendOrigin.CLIENT
    )
    fill(log, 1)
    assert (log.high_watermark, log.last_stable_offset) == (6, 2)
    marker = control_batch(ControlType.ABORT, 9, 0, 1, NOW)
    log.append_as_leader(marker, 0, NOW, AppendOrigin.COORDINATOR)
    assert log.last_stable_offset == 2
    log.update_high_watermark(7)
    assert log.last_stable_offset == 7
    (aborted,) = log.aborted_transactions(log.read(3, 10_000))
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (9, 2, 6)
    assert (log.directory / f"{0:020d}.txnindex").stat().st_size == 34
    log.close()
    again = reopen(tmp_path)
    assert again.aborted_transactions(again.read(3, 10_000)) == [aborted]
    again.close()


def test_a_flipped_bit_is_never_served(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 10)
    size = read_header(log.read(0, 1).read()).size
    log.close()
    path = log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[4 * size + HEADER_SIZE + 10] ^= 1
    path.write_bytes(data)
    again = reopen(tmp_path, clean=True)
    assert again.read(0, 10_000).size == 4 * size
    with pytest.raises(KafkaError) as caught:
        again.read(4, 10_000)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert f"orders-0/{0:020d}.log, position {4 * size}" in caught.value.message
    assert again.read(5, 10_000).size == 5 * size
    again.close()


def test_a_bit_flipped_while_the_log_is_open_is_not_served_either(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    assert log.read(0, 10_000).size
    path = log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[HEADER_SIZE + 10] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(2**62, 2**62))  # the clock of small files' systems may be too coarse to tell
    with pytest.raises(KafkaError):
        log.read(0, 10_000)
    log.close()


def test_a_warm_reader_checks_each_range_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(tmp_path)
    fill(log, 50)
    log.close()
    again = reopen(tmp_path, clean=True)
    for offset in (20, 30, 0, 10):
        again.read(offset, 1000)
    again.read(0, 1 << 20)
    segment = again.active_segment
    assert segment.trusted_from == 0
    monkeypatch.setattr(type(segment), "_check", lambda *_: pytest.fail("checked twice"))
    assert again.read(0, 1 << 20).size == segment.size
    again.close()


def test_a_closed_log_refuses_everything(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 1)
    log.close()
    for call in (lambda: log.append_as_leader(batch(), 0, NOW), lambda: log.read(0, 10), log.flush):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_another_topic_id_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.set_topic_id(TOPIC_ID)
    with pytest.raises(KafkaError) as caught:
        log.set_topic_id(bytes(15) + b"x")
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    log.close()
