"""Entries in the file and in memory."""

from inspect import isfunction
from itertools import chain, repeat
from pathlib import Path

import pytest

from kbroker.segment.files import FilePool, Folder
from kbroker.segment.index_file import IndexFile
from kbroker.segment.offset_index import OffsetIndex
from tests.segment.interleaving import at_each_line


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


def test_a_look_up_is_right_at_every_moment_of_a_write_out(tmp_path: Path) -> None:
    index = OffsetIndex(FilePool(capacity=8), Folder(str(tmp_path)), 0, 8000)
    found = []
    for number in range(1, 41):
        index.append(number, number)
        if number % 20 == 0:
            at_each_line(
                index.write_out,
                IndexFile.write_out.__code__,
                repeat(lambda: found.append((index.lookup(10), index.lookup(15), index.position_at_or_after(16, 99)))),
            )
    assert set(found) == {((10, 10), (15, 15), 16)}
    assert len(found) > 4
    index.close()


@pytest.mark.parametrize("line", range(12))
def test_a_write_out_at_any_moment_of_a_look_up_changes_nothing(tmp_path: Path, line: int) -> None:
    index = OffsetIndex(FilePool(capacity=8), Folder(str(tmp_path)), 0, 8000)
    for number in range(1, 21):
        index.append(number, number)
    index.write_out()
    for number in range(21, 41):
        index.append(number, number)
    codes = {
        each.__code__ for owner in (IndexFile, OffsetIndex) for each in vars(owner).values() if isfunction(each)
    } - {IndexFile.write_out.__code__}
    for code in codes:
        for look_up, expected in (
            (lambda: index.lookup(35), (35, 35)),
            (lambda: index.lookup(20), (20, 20)),
            (lambda: index.position_at_or_after(36, 99), 36),
            (lambda: index.position_at_or_after(21, 99), 21),
        ):
            found: list[object] = []
            others = chain(repeat(lambda: None, line), [index.write_out])
            at_each_line(lambda: found.append(look_up()), code, others)  # noqa: B023
            assert found == [expected], (code.co_name, line)
            index.write_out()
            index.cut(20)
            for number in range(21, 41):
                index.append(number, number)
    index.close()


@pytest.mark.parametrize("line", range(8))
def test_a_look_up_is_right_while_the_file_is_cut(tmp_path: Path, line: int) -> None:
    index = OffsetIndex(FilePool(capacity=8), Folder(str(tmp_path)), 0, 8000)
    for number in range(1, 1001):
        index.append(number, number)
    index.write_out()
    found: list[object] = []
    others = chain(repeat(lambda: None, line), [lambda: index.cut(5)])
    at_each_line(lambda: found.append(index.lookup(990)), IndexFile._look.__code__, others)
    assert found in ([(990, 990)], [(5, 5)])
    index.close()
