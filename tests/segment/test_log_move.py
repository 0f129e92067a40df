"""A log copied into another directory while it is in use."""

from __future__ import annotations

import dataclasses
import errno
import threading
from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.files import Files
from kbroker.segment.log import AppendOrigin, Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_move import FINAL_BYTES, align, copy_portion, finish_copy, is_part_of
from kbroker.segment.names import marked_folder_name, parse_folder_name
from kbroker.segment.recovery import create_log
from tests.crash.faults import FaultyFiles
from tests.segment.batches import NOW, TOPIC_ID, batch, fill, reopen, setup

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=100)


class Move:
    """A log in `a`, and its copy on the way to `b`."""

    def __init__(self, path: Path, config: LogConfig = SMALL, files: Files | None = None) -> None:
        self.path = path
        for name in ("a", "b"):
            (path / name).mkdir()
        self.current = create_log(setup(), str(path / "a" / "orders-0"), "orders", 0, config, TOPIC_ID)
        folder = str(path / "b" / marked_folder_name("orders", 0, "future"))
        self.future = create_log(setup(files), folder, "orders", 0, config, TOPIC_ID)

    def copy(self, max_bytes: int = 500) -> None:
        while copy_portion(self.current, self.future, max_bytes):
            pass

    def finish(self) -> None:
        assert finish_copy(self.current, self.future)

    def folders(self, name: str) -> list[str]:
        """What kinds of folders there are: "" for one in use."""
        found = (parse_folder_name(each.name) for each in (self.path / name).iterdir())
        return [each.mark for each in found if each is not None]


def content(log: Log) -> bytes:
    """All batches from the log start on."""
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        for segment in log.segments:
            if segment.base_offset <= offset and segment.size:
                records = segment.slice(offset, segment.size, 1 << 30, True)
                if records is not None:
                    data += records.read()
                    break
        offset = next((each.base_offset for each in log.segments if each.base_offset > offset), log.log_end_offset)
    return data


def test_the_copy_takes_the_place_of_the_log(tmp_path: Path) -> None:
    move = Move(tmp_path)
    fill(move.current, 60, count=3)
    before = content(move.current)
    move.copy()
    assert content(move.future) == before
    assert move.folders("b") == ["future"]
    move.finish()
    assert (move.folders("a"), move.folders("b")) == (["delete"], [""])
    assert move.current.log_dir == str(tmp_path / "b")
    assert content(move.current) == before
    fill(move.current, 5)
    assert (move.current.log_start_offset, move.current.high_watermark, move.current.log_end_offset) == (0, 185, 185)
    move.current.close()
    opened = reopen(tmp_path / "b", SMALL, clean=True)
    assert (opened.log_end_offset, opened.topic_id) == (185, TOPIC_ID)
    opened.close()


def test_what_is_appended_meanwhile_comes_along(tmp_path: Path) -> None:
    move = Move(tmp_path)
    fill(move.current, 20)
    move.copy()
    fill(move.current, 3)
    move.finish()
    fill(move.current, 4)
    assert move.current.log_end_offset == 27
    assert len(move.current.read(22, 1 << 20).read()) > 0
    move.current.close()


def test_a_copy_that_lacks_too_much_does_not_take_the_place(tmp_path: Path) -> None:
    move = Move(tmp_path, LogConfig())
    fill(move.current, 4, size=FINAL_BYTES // 2)
    assert not finish_copy(move.current, move.future)
    assert (move.folders("a"), move.folders("b")) == ([""], ["future"])
    move.copy(FINAL_BYTES)
    move.finish()
    move.current.close()


def test_appends_go_on_in_another_thread_and_none_is_lost(tmp_path: Path) -> None:
    move = Move(tmp_path, LogConfig(segment_bytes=100_000))
    fill(move.current, 500)
    stop = threading.Event()
    appended = []

    def produce() -> None:
        while not stop.is_set():
            appended.append(move.current.append_as_leader(batch(), 0, NOW).base_offset)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        while not finish_copy(move.current, move.future):
            copy_portion(move.current, move.future, 100_000)
        reached = len(appended)
        while len(appended) < reached + 100:
            assert producer.is_alive()
    finally:
        stop.set()
        producer.join()
    assert appended == list(range(500, 500 + len(appended)))
    assert content(move.current).count(b"v" * 50) == 500 + len(appended)
    move.current.close()


def test_a_slice_taken_before_the_move_is_read_after_it(tmp_path: Path) -> None:
    move = Move(tmp_path)
    fill(move.current, 30)
    slices = [move.current.read(offset, 300) for offset in (0, 10, 29)]
    expected = [each.read() for each in slices]
    move.finish()
    move.future.discard()
    assert [each.read() for each in slices] == expected
    move.current.close()


def test_what_the_log_lost_by_truncation_is_cut_from_the_copy(tmp_path: Path) -> None:
    move = Move(tmp_path)
    fill(move.current, 20, epoch=1)
    fill(move.current, 20, epoch=2)
    move.copy()
    move.current.truncate_to(25)
    fill(move.current, 30, epoch=4, size=70)
    move.copy()
    assert content(move.future) == content(move.current)
    assert move.future.leader_epochs.entries == ((1, 0), (2, 20), (4, 25))
    move.current.truncate_to(10)
    fill(move.current, 3, epoch=5)
    move.finish()
    assert move.current.leader_epochs.entries == ((1, 0), (5, 10))
    assert move.current.log_end_offset == 13
    move.current.close()


def test_a_copy_of_another_history_begins_anew(tmp_path: Path) -> None:
    move = Move(tmp_path)
    fill(move.current, 20, epoch=3)
    move.copy()
    move.current.truncate_fully_and_start_at(0)
    fill(move.current, 5, epoch=1, size=99)
    align(move.current, move.future)
    assert (move.future.log_end_offset, move.future.leader_epochs.entries) == (0, ())
    move.finish()
    assert move.current.log_end_offset == 5
    move.current.close()


def test_a_copy_of_an_empty_log_is_empty(tmp_path: Path) -> None:
    move = Move(tmp_path)
    fill(move.future, 7)
    move.finish()
    assert (move.current.log_end_offset, content(move.current)) == (0, b"")
    move.current.close()


def test_records_deleted_before_and_while_copying_stay_deleted(tmp_path: Path) -> None:
    move = Move(tmp_path)
    fill(move.current, 30, count=3)
    move.current.delete_records(40)
    copy_portion(move.current, move.future, 500)
    assert move.future.log_start_offset == 40
    assert move.future.segments[0].base_offset == 39, "the batch that holds the log start"
    move.current.delete_records(70)
    move.copy()
    move.finish()
    assert (move.current.log_start_offset, move.current.log_end_offset) == (70, 90)
    move.current.close()


def test_a_copy_that_fell_behind_the_log_start_begins_there(tmp_path: Path) -> None:
    move = Move(tmp_path)
    fill(move.current, 30)
    copy_portion(move.current, move.future, 300)
    move.current.truncate_fully_and_start_at(1000)
    fill(move.current, 3, epoch=2)
    move.finish()
    assert (move.current.log_start_offset, move.current.log_end_offset) == (1000, 1003)
    move.current.close()


def test_an_epoch_without_a_batch_is_not_forgotten(tmp_path: Path) -> None:
    move = Move(tmp_path)
    fill(move.current, 3, epoch=1)
    move.current.assign_leader_epoch(6)
    move.finish()
    assert move.current.leader_epochs.entries == ((1, 0), (6, 3))
    move.current.close()
    assert (tmp_path / "b" / "orders-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n6 3\n"


def test_producers_and_transactions_are_known_after_the_move(tmp_path: Path) -> None:
    move = Move(tmp_path)
    sent = [
        batch(2, producer_id=7, producer_epoch=0, base_sequence=2 * number, transactional=True) for number in (0, 1)
    ]
    again = bytearray(sent[1])
    for each in sent:
        move.current.append_as_leader(each, 0, NOW)
    marker = control_batch(ControlType.ABORT, 7, 0, 0, NOW)
    move.current.append_as_leader(marker, 0, NOW, AppendOrigin.COORDINATOR)
    move.current.append_as_leader(batch(producer_id=8, producer_epoch=0, base_sequence=0, transactional=True), 0, NOW)
    move.current.update_high_watermark(move.current.log_end_offset)
    move.finish()
    log = move.current
    assert log.append_as_leader(again, 0, NOW).duplicate
    assert log.last_stable_offset == 5
    assert [each.producer_id for each in log.aborted_transactions(log.read(0, 1 << 20))] == [7]
    log.close()


def test_what_was_flushed_is_flushed_after_the_move(tmp_path: Path) -> None:
    move = Move(tmp_path, dataclasses.replace(SMALL, flush_messages=1))
    fill(move.current, 30)
    move.copy()
    fill(move.current, 5)
    move.current.flush()
    move.finish()
    assert move.current.recovery_point == 35
    move.current.close()


def test_a_flush_that_overlaps_the_move_proves_nothing(tmp_path: Path) -> None:
    move = Move(tmp_path)
    fill(move.current, 30)
    begun = move.current.begin_flush()
    assert begun is not None
    move.finish()
    fill(move.current, 5)
    assert not move.current.end_flush(begun)
    move.current.flush()
    assert move.current.recovery_point == 35
    move.current.close()


def test_a_destination_that_fails_leaves_the_log_where_it_is(tmp_path: Path) -> None:
    files = FaultyFiles(code=errno.EIO)
    move = Move(tmp_path, files=files)
    fill(move.current, 30)
    before = content(move.current)
    move.copy()
    files.fail_at = files.calls + 1
    with pytest.raises(KafkaError) as raised:
        finish_copy(move.current, move.future)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert move.future.failure is not None
    assert (move.current.failure, move.folders("a")) == (None, [""])
    fill(move.current, 1)
    assert content(move.current).startswith(before)
    move.current.close()


def test_a_damaged_batch_is_never_copied(tmp_path: Path) -> None:
    move = Move(tmp_path)
    fill(move.current, 30)
    path = move.current.directory / move.current.segments[1].file.name
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(KafkaError) as raised:
        move.copy()
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert move.current.failure is None
    move.current.close()
    move.future.close()


def test_a_log_is_a_part_of_another_by_epochs_and_ends(tmp_path: Path) -> None:
    move = Move(tmp_path)
    one, other = move.future, move.current
    fill(other, 3, epoch=1)
    assert (is_part_of(one, other), is_part_of(other, one)) == (True, False)  # it is empty
    move.copy()
    assert (is_part_of(one, other), is_part_of(other, one)) == (True, True)
    fill(other, 2, epoch=2)
    assert (is_part_of(one, other), is_part_of(other, one)) == (True, False)
    fill(one, 1, epoch=3)
    assert (is_part_of(one, other), is_part_of(other, one)) == (False, False)
    other.close()
    one.close()


@pytest.mark.parametrize(("topic_id", "is_part"), [(bytes(16), True), (bytes(15) + b"n", False)])
def test_a_log_of_another_topic_is_no_part_and_one_without_an_id_may_be(
    tmp_path: Path, topic_id: bytes, is_part: bool
) -> None:
    move = Move(tmp_path)
    fill(move.current, 3)
    move.copy()
    move.future.topic_id = topic_id
    assert is_part_of(move.future, move.current) is is_part
    move.current.close()
    move.future.close()
