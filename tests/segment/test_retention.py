"""Which segments may go."""

from pathlib import Path

from kbroker.segment.log_config import LogConfig
from kbroker.segment.retention import deletable_count
from tests.segment.batches import NOW, fill, new_log

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def count(path: Path, now_ms: int = NOW, watermark: int = 40, start: int = 0, **settings: object) -> tuple[int, int]:
    log = new_log(path, SMALL)
    fill(log, 40)
    config = LogConfig(**{"retention_ms": -1, **settings})  # type: ignore[arg-type]
    found = deletable_count(log.segments, start, log.log_end_offset, watermark, config, now_ms)
    segments = len(log.segments)
    log.close()
    return found, segments


def test_nothing_goes_without_limits(tmp_path: Path) -> None:
    assert count(tmp_path)[0] == 0


def test_old_segments_go_all_of_them_if_need_be(tmp_path: Path) -> None:
    found, segments = count(tmp_path, NOW + 5000, retention_ms=1000)
    assert found == segments


def test_bytes_beyond_the_limit_go(tmp_path: Path) -> None:
    found, segments = count(tmp_path, retention_bytes=2000)
    assert 0 < found < segments


def test_what_goes_for_another_reason_is_not_counted_as_bytes_too_many(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 1, size=800, timestamp=NOW - 5000)
    fill(log, 4, size=500)
    sizes = [segment.size for segment in log.segments]
    assert len(sizes) == 5
    limit = sum(sizes) - sizes[1] - 100
    assert sizes[0] > sizes[1] + 100
    by_age = LogConfig(retention_ms=1000, retention_bytes=limit)
    assert deletable_count(log.segments, 0, 5, 5, by_age, NOW) == 1
    below_start = LogConfig(retention_ms=-1, retention_bytes=limit)
    assert deletable_count(log.segments, 1, 5, 5, below_start, NOW) == 1
    log.close()


def test_nothing_goes_beyond_the_high_watermark(tmp_path: Path) -> None:
    assert count(tmp_path, NOW + 5000, watermark=9, retention_ms=1000)[0] == 1


def test_segments_below_the_log_start_go_even_from_compacted_logs(tmp_path: Path) -> None:
    found, _ = count(tmp_path, NOW + 5000, start=17, retention_ms=1000, cleanup_policy=("compact",))
    assert found > 0
