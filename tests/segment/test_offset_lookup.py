"""Offsets by timestamp."""

from pathlib import Path

from kbroker.segment.log import TimestampOffset
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, batch, fill, new_log


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


def test_old_clients_get_the_segments_base_offsets(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=1000))
    fill(log, 30)
    bases = [segment.base_offset for segment in log.segments]
    assert log.legacy_segment_offsets(100, -1) == [30, *reversed(bases)]
    assert log.legacy_segment_offsets(1, -2) == [0]
    assert log.legacy_segment_offsets(100, 0) == []
    log.close()
