"""Offset -> position."""

from pathlib import Path

from kbroker.segment.files import FilePool, Folder
from kbroker.segment.offset_index import OffsetIndex


def index_of(path: Path, entries: int) -> OffsetIndex:
    index = OffsetIndex(FilePool(capacity=16), Folder(str(path)), 100, 8 * 1000)
    for number in range(entries):
        index.append(100 + 10 * (number + 1), 50 * (number + 1))
    return index


def test_look_ups_find_the_greatest_entry_at_or_below(tmp_path: Path) -> None:
    for entries in (0, 1, 63, 64, 65, 200):
        index = index_of(tmp_path, entries)
        for offset in (100, 109, 110, 111, 100 + 10 * entries, 99_999):
            number = min((offset - 100) // 10, entries)
            assert index.lookup(offset) == (100 + 10 * number, 50 * number)
        index.cut(0)
        index.close()


def test_entries_reach_the_file_in_kafkas_form(tmp_path: Path) -> None:
    index = index_of(tmp_path, 2)
    index.close()
    data = (tmp_path / f"{100:020d}.index").read_bytes()
    assert data == bytes.fromhex("0000000a000000320000001400000064")
    assert index_of(tmp_path, 0).last_offset == 120


def test_truncation_drops_entries_in_the_file_and_in_memory(tmp_path: Path) -> None:
    for cut in (195, 95, 5):
        index = index_of(tmp_path, 200)
        index.lookup(300)
        index.truncate_to(100 + 10 * cut)
        assert (index.count, index.last_offset) == (cut - 1, 100 + 10 * (cut - 1))
        index.append(100 + 10 * cut, 50 * cut)
        assert index.lookup(10**6) == (100 + 10 * cut, 50 * cut)
        index.cut(0)
        index.close()


def test_the_first_entry_at_or_behind_a_position(tmp_path: Path) -> None:
    index = index_of(tmp_path, 100)
    assert index.position_at_or_after(0, 10_000) == 50
    assert index.position_at_or_after(51, 10_000) == 100
    assert index.position_at_or_after(5001, 10_000) is None
    assert index.position_at_or_after(51, 100) is None
    index.close()


def test_damage_is_noticed(tmp_path: Path) -> None:
    index = index_of(tmp_path, 10)
    assert index.damage(10_000) is None
    assert index.damage(100) is not None
    index.close()
    with (tmp_path / f"{100:020d}.index").open("ab") as file:
        file.write(bytes(80))
    again = index_of(tmp_path, 0)
    assert "zeros" in str(again.damage(10_000))
    again.close()
