"""Reading and checking files offline."""

from pathlib import Path

import pytest

from kbroker.protocol.records.batch import stamp
from kbroker.segment.inspection import dump, find_files, verify
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import batch, fill, new_log, old_messages, put_segment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = new_log(tmp_path, LogConfig(segment_bytes=1000, index_interval_bytes=100))
    fill(log, 20)
    log.append_as_leader(batch(2, producer_id=8, producer_epoch=0, base_sequence=0), 1, 0)
    log.close()
    return log.directory


def test_every_file_can_be_dumped_and_is_sound(folder: Path) -> None:
    files = find_files(folder.parent)
    assert {file.suffix for file in files} >= {".log", ".index", ".timeindex", ".snapshot", ".metadata"}
    for file in files:
        assert verify(file) == []
        assert file.suffix == ".snapshot" or list(dump(file))
    batches = [row for file in files if file.suffix == ".log" for row in dump(file)]
    assert [row["base_offset"] for row in batches] == list(range(21))
    records = [row for file in files if file.suffix == ".log" for row in dump(file, with_records=True)]
    assert [row["offset"] for row in records] == list(range(22))
    assert records[0]["key"] == "key"


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
def test_a_flipped_bit_is_found_in_every_kind_of_file(folder: Path, suffix: str) -> None:
    file = next(file for file in sorted(folder.glob(f"*{suffix}"), reverse=True) if file.stat().st_size > 20)
    data = bytearray(file.read_bytes())
    data[0 if suffix == ".timeindex" else 7] ^= 0x40
    file.write_bytes(data)
    assert verify(file)


def test_a_torn_log_names_the_position(folder: Path) -> None:
    file = folder / f"{0:020d}.log"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-1])
    (damage,) = verify(file)
    assert 0 < damage.position < size


def test_the_zeros_at_the_end_of_a_running_java_brokers_index_are_no_damage(folder: Path) -> None:
    for suffix in (".index", ".timeindex"):
        file = folder / f"{0:020d}{suffix}"
        file.write_bytes(file.read_bytes() + bytes(1200))
        assert verify(file) == []


def test_messages_of_old_are_dumped_and_verified(tmp_path: Path) -> None:
    first = put_segment(tmp_path, 0, old_messages(8, magic=0))
    newer = batch()
    stamp(newer, 0, 16, 0)
    second = put_segment(tmp_path, 8, old_messages(8, magic=1, first=8) + newer)
    assert verify(first) == verify(second) == []
    rows = [row for file in (first, second) for row in dump(file)]
    assert [(row["magic"], row["base_offset"], row["last_offset"], row["count"]) for row in rows] == [
        *[(0, 0, 0, 1), (0, 1, 3, 3), (0, 4, 4, 1), (0, 5, 7, 3)],
        *[(1, 8, 8, 1), (1, 9, 11, 3), (1, 12, 12, 1), (1, 13, 15, 3)],
        (2, 16, 16, 1),
    ]
    assert [row["timestamp_type"] for row in rows] == ["NoTimestampType"] * 4 + ["CreateTime"] * 5
    assert rows[5]["compression"] == "gzip"
    assert all(row["valid"] for row in rows)
    records = [row for file in (first, second) for row in dump(file, with_records=True)]
    assert [(row["offset"], row["value"]) for row in records[:16]] == [(n, str(n)) for n in range(16)]
    data = bytearray(second.read_bytes())
    data[30] ^= 1
    second.write_bytes(data)
    (damage,) = verify(second)
    assert (damage.position, "checksum" in damage.problem) == (0, True)
