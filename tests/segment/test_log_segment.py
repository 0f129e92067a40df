"""One segment: its index entries, and which of its bytes are trusted."""

from pathlib import Path

from segment.log_config import LogConfig
from segment.log_segment import check_batches
from tests.segment.batches import fill, new_log

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


def test_good_batches_end_where_the_first_bad_byte_is(tmp_path: Path) -> None:
    log = new_log(tmp_path, CONFIG)
    fill(log, 5)
    data = bytearray(log.active_segment.file.read(log.size, 0))
    log.close()
    size = len(data) // 5
    assert check_batches(data, 0) == (5 * size, "")
    assert check_batches(data[:-3], 0) == (4 * size, "")
    data[3 * size + 70] ^= 1
    good, why = check_batches(data, 0)
    assert good == 3 * size
    assert "offset 3" in why
    assert check_batches(data, 1)[0] == 0
