"""Files beside the batches that are gone or damaged: what the batches say holds, whatever these say."""

from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import read_header
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.files import Files
from kbroker.segment.log import AppendOrigin
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_dir import LogDir
from kbroker.segment.log_manager import LogDirError, LogManager
from kbroker.segment.producer_state import snapshot_bytes
from tests.segment.batches import NOW, fill, new_log, reopen, write_in_transaction

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=-1)


@pytest.mark.parametrize("with_snapshots", [True, False])
def test_an_old_segment_that_is_recovered_after_a_clean_stop_does_not_set_producers_back(
    tmp_path: Path, with_snapshots: bool
) -> None:
    log = new_log(tmp_path, SMALL)
    for sequence in range(30):
        write_in_transaction(log, sequence)
    log.append_as_leader(control_batch(ControlType.COMMIT, 5, 0, 0, NOW), 0, NOW, AppendOrigin.COORDINATOR)
    fill(log, 9)
    end = log.log_end_offset
    log.close()
    for snapshot in [] if with_snapshots else log.directory.glob("*.snapshot"):
        snapshot.unlink()
    (log.directory / f"{0:020d}.index").unlink()
    again = reopen(tmp_path, SMALL, clean=True, high_watermark=end)
    assert again.last_stable_offset == end
    entry = again.producers.state.producers[5]
    assert [each.last_sequence for each in entry.batches][-1] == 29
    assert (log.directory / f"{end:020d}.snapshot").exists() == with_snapshots
    write_in_transaction(again, 30)
    again.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("position", [-(1 << 31), -1, 1 << 20, (1 << 31) - 1])
def test_an_index_entry_that_points_outside_of_its_log_costs_no_record(
    tmp_path: Path, clean: bool, position: int
) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40)
    count = len(log.segments)
    log.close()
    for index in sorted(log.directory.glob("*.index")):
        data = bytearray(index.read_bytes())
        data[4::8], data[5::8] = (bytes([byte]) * (len(data) // 8) for byte in position.to_bytes(4, signed=True)[:2])
        data[6::8], data[7::8] = (bytes([byte]) * (len(data) // 8) for byte in position.to_bytes(4, signed=True)[2:])
        index.write_bytes(data)
    again = reopen(tmp_path, SMALL, clean=clean, recovery_point=40, high_watermark=40)
    assert (len(again.segments), again.log_end_offset) == (count, 40)
    for offset in range(40):
        assert read_header(again.read(offset, 1).read()).base_offset == offset
    again.close()


def test_an_index_entry_that_says_a_negative_offset_hides_no_record(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=100_000, index_interval_bytes=100))
    fill(log, 40)
    log.close()
    (index,) = log.directory.glob("*.index")
    data = bytearray(index.read_bytes())
    data[8 * (len(data) // 16)] = 0x80
    index.write_bytes(data)
    again = reopen(tmp_path, clean=True, high_watermark=40)
    for offset in range(40):
        assert read_header(again.read(offset, 1).read()).base_offset == offset
    again.close()


def test_an_index_entry_that_says_too_low_an_offset_hides_no_aborted_transaction(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=100_000, index_interval_bytes=100))
    fill(log, 5)
    write_in_transaction(log, 0)
    log.append_as_leader(control_batch(ControlType.ABORT, 5, 0, 0, NOW), 0, NOW, AppendOrigin.COORDINATOR)
    fill(log, 20)
    log.close()
    (index,) = log.directory.glob("*.index")
    data = bytearray(index.read_bytes())
    data[3::8] = bytes(len(data) // 8)
    index.write_bytes(data)
    again = reopen(tmp_path, clean=True, high_watermark=27)
    (aborted,) = again.aborted_transactions(again.read(0, 1000))
    assert (aborted.first_offset, aborted.last_offset) == (5, 6)
    again.close()


@pytest.mark.parametrize("says", [0, 1 << 40])
def test_a_batch_behind_a_slice_that_says_another_offset_hides_no_aborted_transaction(
    tmp_path: Path, says: int
) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=100_000, index_interval_bytes=100))
    fill(log, 5)
    write_in_transaction(log, 0)
    log.append_as_leader(control_batch(ControlType.ABORT, 5, 0, 0, NOW), 0, NOW, AppendOrigin.COORDINATOR)
    fill(log, 20)
    slice_of_it = log.read(0, 1000)
    segment = log.segments[0]
    position = segment.index.position_at_or_after(slice_of_it.position + slice_of_it.size, segment.size)
    assert position is not None
    with Path(segment.file.path).open("r+b") as file:
        file.seek(position)
        file.write(says.to_bytes(8, "big"))
    (aborted,) = log.aborted_transactions(slice_of_it)
    assert (aborted.first_offset, aborted.last_offset) == (5, 6)
    log.close()


@pytest.mark.parametrize("byte", [0, 3, 7])
def test_the_last_batch_of_a_segment_that_says_a_higher_offset_is_not_served(tmp_path: Path, byte: int) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40)
    first, second, *_ = log.segments
    last = second.base_offset - 1
    position = first.find(last)
    log.close()
    data = bytearray((log.directory / f"{0:020d}.log").read_bytes())
    data[position + byte] ^= 0x10
    (log.directory / f"{0:020d}.log").write_bytes(data)
    again = reopen(tmp_path, SMALL, clean=True, high_watermark=40)
    assert len(again.read(0, 10_000).read()) == position
    with pytest.raises(KafkaError, match="belongs into the next segment") as refused:
        again.read(last, 10_000)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert read_header(again.read(last + 1, 10_000).read()).base_offset == last + 1
    again.close()


def test_a_time_index_that_is_gone_hides_no_record_from_a_search_by_time(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40)
    log.close()
    (log.directory / f"{0:020d}.timeindex").unlink()
    again = reopen(tmp_path, SMALL, clean=True, high_watermark=40)
    found = again.offset_for_timestamp(NOW + 3)
    assert found is not None
    assert found.offset == 3
    again.close()


@pytest.mark.parametrize("byte", [2, 10, 18, 34 + 18])
def test_an_aborted_transaction_that_cannot_be_is_looked_up_anew(tmp_path: Path, byte: int) -> None:
    log = new_log(tmp_path, SMALL)
    for sequence in range(2):
        write_in_transaction(log, sequence)
        log.append_as_leader(control_batch(ControlType.ABORT, 5, 0, 0, NOW), 0, NOW, AppendOrigin.COORDINATOR)
    fill(log, 30)
    log.close()
    index = log.directory / f"{0:020d}.txnindex"
    whole = index.read_bytes()
    data = bytearray(whole)
    data[byte] ^= 0x80
    index.write_bytes(data)
    again = reopen(tmp_path, SMALL, clean=True, high_watermark=34)
    found = again.aborted_transactions(again.read(0, 10_000))
    assert [(each.first_offset, each.last_offset) for each in found] == [(0, 1), (2, 3)]
    assert index.read_bytes() == whole
    again.close()


def test_a_snapshot_beyond_the_recovery_point_is_made_again_after_a_crash(tmp_path: Path) -> None:
    """A truncation may have dropped what it tells of, and its removal did not reach the disk."""
    log = new_log(tmp_path, SMALL)
    fill(log, 40)
    base = log.segments[3].base_offset
    log.close()
    (log.directory / f"{base:020d}.snapshot").write_bytes(snapshot_bytes([]))
    again = reopen(tmp_path, SMALL, recovery_point=log.segments[2].base_offset)
    assert not (log.directory / f"{base:020d}.snapshot").exists()
    again.close()


def test_a_broker_id_that_is_no_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1x\n")
    with pytest.raises(LogDirError, match="which is no number"):
        LogManager([tmp_path]).stored_broker_id()


def test_a_session_that_is_no_number_is_nobodys(tmp_path: Path) -> None:
    directory = LogDir(str(tmp_path), Files())
    directory.open()
    directory.note_session(123)
    noted = tmp_path / "kbroker-session"
    noted.write_bytes(noted.read_bytes().replace(b"123", b"1s3"))
    assert directory.former_session() is None
    directory.unlock()
