"""Entries in the file and in memory."""

from pathlib import Path

from kbroker.segment.files import FilePool, Folder
from kbroker.segment.offset_index import OffsetIndex


def test_entries_wait_in_memory_and_are_written_by_the_lot(tmp_path: Path) -> None:
    index = OffsetIndex(FilePool(capacity=8), Folder(str(tmp_path)), 0, 8000)
    for number in range(70):
        index.append(number + 1, number + 1)
    assert (index.count, index.file_size(), index.has_pending) == (70, 64 * 8, True)
    assert [index.entry(number)[0] for number in (0, 63, 64, 69)] == [1, 64, 65, 70]
    index.write_out()
    assert (index.file_size(), index.has_pending) == (70 * 8, False)
    index.append(100, 100)
    index.forget_pending()
    assert index.count == 70
    index.close()


def test_the_map_grows_with_the_file_and_counts_as_an_open_file(tmp_path: Path) -> None:
    pool = FilePool(capacity=2)
    indexes = [OffsetIndex(pool, Folder(str(tmp_path)), number, 8000) for number in range(6)]
    for turn in range(1, 300):
        for index in indexes:
            index.append(index.base_offset + turn, turn)
    for index in indexes:
        assert index.lookup(index.base_offset + 200) == (index.base_offset + 200, 200)
    assert sum(index.map is not None for index in indexes) <= 2
    for index in indexes:
        index.close()
