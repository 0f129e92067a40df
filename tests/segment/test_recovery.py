"""Opening a log after a stop or a crash."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import split_batches
from kbroker.protocol.records.message_set import to_batches
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.files import Buffer, Files
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, TOPIC_ID, batch, fill, new_log, old_messages, put_segment, reopen

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def crash(log: Log) -> None:
    log.discard()


def contents(log: Log) -> bytes:
    return b"".join(segment.file.read(segment.size, 0) for segment in log.segments)


def test_a_clean_stop_is_found_as_it_was_left(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40, count=2, epoch=4)
    before = contents(log)
    log.close()
    again = reopen(tmp_path, SMALL, clean=True, high_watermark=33)
    assert (again.log_start_offset, again.log_end_offset, again.high_watermark) == (0, 80, 33)
    assert (again.recovery_point, again.latest_epoch, again.topic_id) == (80, 4, TOPIC_ID)
    assert contents(again) == before
    fill(again, 1, epoch=4)
    again.close()


def test_a_crash_loses_nothing_that_was_written(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40, count=2, epoch=4)
    before = contents(log)
    crash(log)
    again = reopen(tmp_path, SMALL)
    assert (again.log_end_offset, again.latest_epoch, again.recovery_point) == (80, 4, 0)
    assert contents(again) == before
    again.close()


def test_indexes_rebuilt_after_a_crash_lead_to_every_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40)
    crash(log)
    for path in log.directory.glob("*.index"):
        path.write_bytes(b"\0" * 80)
    again = reopen(tmp_path, SMALL)
    for offset in range(40):
        ((position, size),) = split_batches(again.read(offset, 1).read())
        assert (position, size > 0) == (0, True)
    found = again.offset_for_timestamp(NOW + 17)
    assert found is not None
    assert found.offset == 17
    again.close()


class CountingFiles(Files):
    """Counts what changes a file, and what looks into one."""

    __slots__ = ("changes", "opened", "reads")

    def __init__(self) -> None:
        self.changes, self.reads, self.opened = 0, 0, list[str]()

    def open(self, path: str, flags: int) -> int:
        self.opened.append(Path(path).suffix)
        return super().open(path, flags)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        self.reads += 1
        return os.pread(descriptor, size, position)

    def pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        self.changes += 1
        return os.pwrite(descriptor, data, position)

    def truncate(self, descriptor: int, size: int) -> None:
        self.changes += 1
        os.ftruncate(descriptor, size)


def test_indexes_that_hold_what_the_batches_say_are_left_as_they_are(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40)
    crash(log)
    crash(reopen(tmp_path, SMALL))
    files = CountingFiles()
    again = reopen(tmp_path, SMALL, files=files)
    assert len(again.segments) > 2
    assert files.changes == 0
    again.close()


def test_the_batches_of_a_log_are_read_once_after_a_crash_and_what_is_empty_is_not_opened(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 1)
    log.flush()
    crash(log)
    crash(reopen(tmp_path))  # makes the indexes
    files = CountingFiles()
    again = reopen(tmp_path, files=files)
    assert again.log_end_offset == 1
    assert sorted(files.opened) == [".log", ".timeindex"]
    assert files.reads == 2
    assert [path.stat().st_size for path in sorted(log.directory.glob("*index"))] == [0, 12]
    again.close()


@pytest.mark.parametrize("kept", [0, 3, 8, 12, 20, None])
@pytest.mark.parametrize("behind", [b"", b"\0" * 5, b"\1" * 240])
def test_indexes_are_what_the_batches_say_whatever_a_crash_has_left(
    tmp_path: Path, kept: int | None, behind: bytes
) -> None:
    config = LogConfig(index_interval_bytes=100)
    log = new_log(tmp_path, config)
    fill(log, 40)
    crash(log)
    crash(reopen(tmp_path, config))
    right = {path: path.read_bytes() for path in log.directory.glob("*index")}
    assert min(map(len, right.values())) > 24
    for path, data in right.items():
        path.write_bytes(data[:kept] + behind)
    again = reopen(tmp_path, config)
    assert {path: path.read_bytes() for path in right} == right
    for offset in range(40):
        assert split_batches(again.read(offset, 1).read())[0][0] == 0
    assert again.offset_for_timestamp(NOW + 39).offset == 39  # type: ignore[union-attr]
    again.close()


@pytest.mark.parametrize("lost", [1, 30, 61, 100])
def test_a_torn_tail_is_cut(tmp_path: Path, lost: int, caplog: pytest.LogCaptureFixture) -> None:
    log = new_log(tmp_path)
    fill(log, 10)
    log.flush(5)
    path = Path(log.active_segment.file.path)
    crash(log)
    path.write_bytes(path.read_bytes()[:-lost])
    again = reopen(tmp_path, recovery_point=5)
    assert again.log_end_offset == 9
    assert again.append_as_leader(batch(), 1, NOW).base_offset == 9
    assert "cut" in caplog.text
    again.close()


def test_zeros_at_the_end_are_cut(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    path = Path(log.active_segment.file.path)
    crash(log)
    path.write_bytes(path.read_bytes() + bytes(4096))
    again = reopen(tmp_path)
    assert again.log_end_offset == 3
    again.close()


def test_damage_in_the_middle_ends_the_log_and_drops_later_segments(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    segment = log.segments[2]
    path = Path(segment.file.path)
    crash(log)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    again = reopen(tmp_path, SMALL)
    assert segment.base_offset < again.log_end_offset < log.segments[3].base_offset
    assert len(again.segments) == 3
    again.close()
    assert reopen_end(tmp_path) == again.log_end_offset


@pytest.mark.parametrize(("number", "says", "end"), [(5, 9, 5), (5, 2, 5), (9, 12, 13), (0, 3, 0)])
def test_an_offset_that_flipped_ends_the_log_before_it(tmp_path: Path, number: int, says: int, end: int) -> None:
    """Checksums do not cover base offsets. That of the last batch cannot be told from a gap."""
    log = new_log(tmp_path)
    fill(log, 10)
    path = Path(log.active_segment.file.path)
    size = log.size // 10
    crash(log)
    data = bytearray(path.read_bytes())
    data[number * size + 7] = says
    path.write_bytes(data)
    again = reopen(tmp_path)
    assert again.log_end_offset == end
    assert again.size == (number if number < 9 else 10) * size
    again.close()


@pytest.mark.parametrize(("number", "byte"), [(0, 7), (1, 7), (3, 7), (0, 2), (3, 2)])
def test_an_offset_that_flipped_beyond_the_segment_leaves_no_hole(tmp_path: Path, number: int, byte: int) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    path, batches = Path(log.segments[0].file.path), log.segments[1].base_offset
    size = log.segments[0].size // batches
    assert batches > 3
    crash(log)
    data = bytearray(path.read_bytes())
    data[number * size + byte] |= 1 << 5
    path.write_bytes(data)
    again = reopen(tmp_path, SMALL, high_watermark=60)
    assert (again.log_end_offset, len(again.segments), again.is_short) == (number, 1, True)
    again.close()


def reopen_end(path: Path) -> int:
    log = reopen(path, SMALL)
    end = log.log_end_offset
    log.close()
    return end


def test_a_damaged_tail_after_a_clean_stop_is_cut_too(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 10)
    path = Path(log.active_segment.file.path)
    log.close()
    path.write_bytes(path.read_bytes()[:-5])
    again = reopen(tmp_path, clean=True)
    assert again.log_end_offset == 9
    again.close()


def test_a_log_that_ends_below_its_start_begins_anew_there(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    crash(log)
    again = reopen(tmp_path, log_start_offset=50, high_watermark=50)
    assert (again.log_start_offset, again.log_end_offset, again.size) == (50, 50, 0)
    again.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("first_base", [0, 20])
def test_a_log_start_beyond_all_that_a_log_ever_had_is_damage_and_costs_no_record(
    tmp_path: Path, clean: bool, first_base: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(tmp_path, SMALL)
    log.truncate_fully_and_start_at(first_base)
    fill(log, 30, epoch=4)
    before, end = contents(log), first_base + 30
    log.close()
    again = reopen(
        tmp_path, SMALL, clean=clean, log_start_offset=5000, high_watermark=end, recovery_point=end if clean else 0
    )
    assert (again.log_start_offset, again.log_end_offset, again.is_short) == (first_base, end, False)
    assert (contents(again), again.leader_epochs.entries) == (before, ((4, first_base),))
    assert caplog.text.count("log-start-offset-checkpoint") == 1
    again.close()


def test_a_log_start_beyond_what_damage_has_left_is_believed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 10)
    data = contents(log)
    path = Path(log.active_segment.file.path)
    crash(log)
    place = len(data) // 2 + 70
    path.write_bytes(data[:place] + b"damage" + data[place + 6 :])
    again = reopen(tmp_path, log_start_offset=8, high_watermark=8)
    assert (again.log_start_offset, again.log_end_offset, again.promised_offset) == (8, 8, 10)
    again.close()


@pytest.mark.parametrize("text", ["", "0\n2\n0 0\n", "nonsense"])
def test_lost_leader_epochs_are_read_from_the_batches(tmp_path: Path, text: str) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 20, epoch=2)
    fill(log, 20, epoch=5)
    log.close()
    (log.directory / "leader-epoch-checkpoint").write_text(text)
    again = reopen(tmp_path, SMALL, clean=True)
    assert again.leader_epochs.entries == ((2, 0), (5, 20))
    again.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("spoil", [False, True])
def test_producers_continue_where_they_were(tmp_path: Path, clean: bool, spoil: bool) -> None:
    log = new_log(tmp_path, SMALL)
    for sequence in range(0, 60, 2):
        log.append_as_leader(batch(2, producer_id=5, producer_epoch=1, base_sequence=sequence), 0, NOW)
    if clean:
        log.close()
    else:
        crash(log)
    if spoil:
        for path in log.directory.glob("*.snapshot"):
            path.write_bytes(b"\0\1damaged")
    again = reopen(tmp_path, SMALL, clean=clean)
    assert again.append_as_leader(batch(2, producer_id=5, producer_epoch=1, base_sequence=58), 0, NOW).duplicate
    with pytest.raises(KafkaError):
        again.append_as_leader(batch(2, producer_id=5, producer_epoch=1, base_sequence=70), 0, NOW)
    assert again.append_as_leader(batch(2, producer_id=5, producer_epoch=1, base_sequence=60), 0, NOW).base_offset == 60
    again.close()


@pytest.mark.parametrize("clean", [True, False])
def test_each_of_a_producers_last_five_batches_is_recognised_after_a_restart(tmp_path: Path, clean: bool) -> None:
    """A snapshot keeps only the last one; segments are so small that the others lie before it after a crash, too."""
    log = new_log(tmp_path, SMALL)
    for sequence in range(0, 40, 2):
        for producer in (5, 6):
            log.append_as_leader(batch(2, producer_id=producer, producer_epoch=1, base_sequence=sequence), 0, NOW)
    assert len(log.segments) > 3
    if clean:
        log.close()
    else:
        crash(log)
    again = reopen(tmp_path, SMALL, clean=clean)
    for producer in (6, 5):
        for sequence in range(30, 40, 2):
            sent = batch(2, producer_id=producer, producer_epoch=1, base_sequence=sequence)
            repeated = again.append_as_leader(sent, 0, NOW)
            assert (repeated.duplicate, repeated.base_offset) == (True, 2 * sequence + 2 * (producer - 5))
        for sequence in (28, 42):
            sent = batch(2, producer_id=producer, producer_epoch=1, base_sequence=sequence)
            with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
                again.append_as_leader(sent, 0, NOW)
    assert again.append_as_leader(batch(2, producer_id=5, producer_epoch=1, base_sequence=40), 0, NOW).base_offset == 80
    again.close()


def test_a_copied_folder_opens_elsewhere(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 5)
    log.close()
    (tmp_path / "other").mkdir()
    shutil.copytree(log.directory, tmp_path / "other" / "orders-0")
    again = reopen(tmp_path / "other", clean=True)
    assert again.log_end_offset == 5
    again.close()


@pytest.mark.parametrize("known", [{"high_watermark": 8}, {"recovery_point": 8}, {"high_watermark": 8, "clean": True}])
def test_a_log_that_lost_what_it_had_promised_is_short_until_it_is_filled(
    tmp_path: Path, known: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(tmp_path)
    fill(log, 10)
    data = contents(log)
    path = Path(log.active_segment.file.path)
    crash(log)
    path.write_bytes(data[: len(data) // 2])
    again = reopen(tmp_path, **known)
    assert (again.log_end_offset, again.is_short, again.offset_to_checkpoint) == (5, True, 8)
    assert "ends at 5, but had records up to at least offset 7" in caplog.text
    size = len(data) // 10
    for number in (5, 6, 7):
        assert again.is_short
        again.append_as_follower(data[number * size : (number + 1) * size], NOW)
    again.update_high_watermark(6)
    assert (again.is_short, again.offset_to_checkpoint) == (False, 6)
    again.truncate_to(7)
    assert not again.is_short
    again.close()


def test_a_log_cut_above_what_it_had_promised_is_not_short(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 10)
    path = Path(log.active_segment.file.path)
    crash(log)
    path.write_bytes(path.read_bytes()[:-1])
    again = reopen(tmp_path, high_watermark=9, recovery_point=9)
    assert (again.log_end_offset, again.is_short, again.offset_to_checkpoint) == (9, False, 9)
    again.truncate_to(4)
    assert (again.is_short, again.offset_to_checkpoint) == (False, 4)
    again.close()


def test_a_log_that_begins_to_lead_says_what_it_lost_and_is_short_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(tmp_path)
    fill(log, 5)
    crash(log)
    again = reopen(tmp_path, high_watermark=8)
    caplog.clear()
    again.assign_leader_epoch(3)
    assert "offsets 5 to 7 are lost" in caplog.text
    assert (again.is_short, again.offset_to_checkpoint) == (False, 5)
    again.close()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("clean", [True, False])
def test_segments_of_old_messages_are_kept_and_served_as_they_are(tmp_path: Path, magic: int, clean: bool) -> None:
    first, second = old_messages(40, magic), old_messages(40, magic, 40)
    put_segment(tmp_path, 0, first)
    put_segment(tmp_path, 40, second)
    log = reopen(tmp_path, SMALL, clean=clean)
    log.update_high_watermark(80)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (0, 80, -1)
    assert contents(log) == first + second
    assert all(segment.index.count > 3 for segment in log.segments)
    for offset in range(80):
        served = to_batches(log.read(offset, 1 << 20).read())
        found = [record for at, size in split_batches(served) for record in decode_batch(served, at, size)]
        (record,) = [each for each in found if each.offset == offset]
        assert record.value == b"%d" % offset
    assert log.append_as_leader(batch(2), 3, NOW).base_offset == 80
    log.close()
    again = reopen(tmp_path, SMALL, clean=True)
    assert (again.log_end_offset, again.latest_epoch) == (82, 3)
    assert contents(again)[: len(first + second)] == first + second
    again.close()


@pytest.mark.parametrize(("lost", "end"), [(1, 40), (10, 40), (36, 40), (40, 37)])
def test_a_torn_tail_of_old_messages_is_cut_and_a_flipped_bit_ends_the_log(tmp_path: Path, lost: int, end: int) -> None:
    data = old_messages(41)
    file = put_segment(tmp_path, 0, data[:-lost])
    log = reopen(tmp_path)
    assert log.log_end_offset == end
    log.close()
    assert data.startswith(file.read_bytes())
    damaged = bytearray(old_messages(41))
    damaged[len(old_messages(20)) - 1] ^= 1
    file.write_bytes(damaged)
    again = reopen(tmp_path)
    assert again.log_end_offset == 17
    again.close()


def test_a_bit_that_flipped_in_an_old_message_is_never_served(tmp_path: Path) -> None:
    file = put_segment(tmp_path, 0, old_messages(40))
    reopen(tmp_path).close()
    data = bytearray(file.read_bytes())
    data[len(old_messages(20)) - 1] ^= 1
    file.write_bytes(data)
    log = reopen(tmp_path, clean=True)
    assert log.read(0, 1 << 20).read() == old_messages(17)
    for offset in (17, 18, 19):
        with pytest.raises(KafkaError, match="offset 19 does not match its checksum"):
            log.read(offset, 1 << 20)
    assert log.read(20, 1 << 20).read() == bytes(data[len(old_messages(20)) :])
    log.close()
