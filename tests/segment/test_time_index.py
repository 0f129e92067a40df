"""Timestamp -> offset."""

from pathlib import Path

from kbroker.segment.files import FilePool, Folder
from kbroker.segment.time_index import TimeIndex


def index_of(path: Path) -> TimeIndex:
    return TimeIndex(FilePool(capacity=16), Folder(str(path)), 50, 12 * 10)


def test_only_growing_timestamps_are_kept(tmp_path: Path) -> None:
    index = index_of(tmp_path)
    for timestamp, offset in ((10, 55), (10, 60), (5, 61), (20, 70)):
        index.maybe_append(timestamp, offset)
    assert (index.count, index.last_entry) == (2, (20, 70))
    assert [index.lookup(timestamp) for timestamp in (9, 10, 19, 20, 99)] == [
        (-1, 50),
        (10, 55),
        (10, 55),
        (20, 70),
        (20, 70),
    ]
    index.close()
    again = index_of(tmp_path)
    assert again.last_entry == (20, 70)
    again.truncate_to(70)
    assert again.last_entry == (10, 55)
    again.maybe_append(11, 71)
    assert again.last_entry == (11, 71)
    again.close()


def test_one_slot_is_kept_for_the_roll(tmp_path: Path) -> None:
    index = index_of(tmp_path)
    for number in range(9):
        assert not index.is_full
        index.maybe_append(number, 50 + number)
    assert index.is_full
    index.close()
