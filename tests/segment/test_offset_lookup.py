"""Offsets by timestamp."""

from pathlib import Path

import pytest

from kbroker.protocol.records.compression import CompressionType
from kbroker.segment.log import TimestampOffset
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, batch, fill, new_log, old_messages, put_segment, reopen


def test_every_timestamp_leads_to_its_first_record(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=1000, index_interval_bytes=100))
    for number in range(40):
        log.append_as_leader(batch(2, timestamp=NOW + 10 * number), 3, NOW)
    for number in range(40):
        assert log.offset_for_timestamp(NOW + 10 * number) == TimestampOffset(NOW + 10 * number, 2 * number, 3)
        assert log.offset_for_timestamp(NOW + 10 * number + 1) == TimestampOffset(
            NOW + 10 * number + 1, 2 * number + 1, 3
        )
    assert log.offset_for_timestamp(NOW + 10_000) is None
    log.close()


def test_special_times_stand_for_the_ends_and_the_largest(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    assert log.offset_for_timestamp(-3) is None
    fill(log, 3, epoch=1)
    log.append_as_leader(batch(timestamp=NOW - 50), 2, NOW)
    assert log.offset_for_timestamp(-1) == TimestampOffset(-1, 4, 2)
    assert log.offset_for_timestamp(-2) == TimestampOffset(-1, 0, 1)
    assert log.offset_for_timestamp(-3) == TimestampOffset(NOW + 2, 2, 1)
    log.close()


@pytest.mark.parametrize("codec", list(CompressionType))
def test_records_are_found_in_batches_of_every_compression(tmp_path: Path, codec: CompressionType) -> None:
    log = new_log(tmp_path)
    for number in range(3):
        log.append_as_leader(batch(50, timestamp=NOW + 50 * number, compression=codec), 0, NOW)
    for offset in (0, 49, 50, 77, 149):
        assert log.offset_for_timestamp(NOW + offset) == TimestampOffset(NOW + offset, offset, 0)
    log.update_high_watermark(150)
    log.delete_records(60)
    assert log.offset_for_timestamp(NOW) == TimestampOffset(NOW + 60, 60, 0)
    log.close()


def test_records_are_found_in_batches_that_unpack_to_much(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append_as_leader(batch(90, size=60_000, compression=CompressionType.ZSTD), 0, NOW)
    assert log.offset_for_timestamp(NOW + 89) == TimestampOffset(NOW + 89, 89, 0)
    log.close()


def test_the_time_of_appending_is_that_of_the_first_record(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    log.append_as_leader(batch(5, timestamp=1), 0, NOW)
    assert log.offset_for_timestamp(NOW - 10) == TimestampOffset(NOW, 0, 0)
    log.close()


def test_times_lead_to_messages_of_magic_1_and_those_without_are_passed_over(tmp_path: Path) -> None:
    put_segment(tmp_path, 0, old_messages(20, magic=0))
    put_segment(tmp_path, 20, old_messages(40, magic=1, first=20))
    log = reopen(tmp_path, LogConfig(index_interval_bytes=100))
    log.append_as_leader(batch(timestamp=NOW + 60), 7, NOW)
    for offset in range(20, 60):
        assert log.offset_for_timestamp(NOW + offset) == TimestampOffset(NOW + offset, offset, -1)
    assert log.offset_for_timestamp(0) == TimestampOffset(NOW + 20, 20, -1)
    assert log.offset_for_timestamp(-3) == TimestampOffset(NOW + 60, 60, 7)
    log.close()
