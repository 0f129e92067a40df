"""Compactions and deletions that a broker's end has interrupted."""

from pathlib import Path

import pytest

from kbroker.segment.log_config import LogConfig
from tests.segment.batches import fill, new_log, reopen
from tests.segment.test_recovery import SMALL, contents, crash


def test_leftovers_of_deletions_and_compactions_are_removed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    crash(log)
    for name in (f"{0:020d}.index.deleted", f"{7:020d}.log.cleaned", "leader-epoch-checkpoint.tmp", f"{9:020d}.index"):
        (log.directory / name).write_bytes(b"x")
    again = reopen(tmp_path)
    assert not [path.name for path in log.directory.iterdir() if path.name.endswith((".deleted", ".cleaned", ".tmp"))]
    assert not (log.directory / f"{9:020d}.index").exists()
    again.close()


def test_a_finished_swap_replaces_the_segments_that_it_covers(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40)
    first, second, third = (Path(segment.file.path) for segment in log.segments[:3])
    end = log.segments[2].base_offset
    crash(log)
    merged = first.read_bytes() + second.read_bytes()
    Path(str(first) + ".swap").write_bytes(merged)
    again = reopen(tmp_path, LogConfig(segment_bytes=10_000))
    assert [segment.base_offset for segment in again.segments[:2]] == [0, end]
    assert first.read_bytes() == merged
    assert not second.exists()
    assert third.exists()
    assert again.log_end_offset == 40
    again.close()


def test_a_finished_swap_without_records_replaces_the_segment_of_its_name(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40)
    first, second = (Path(segment.file.path) for segment in log.segments[:2])
    crash(log)
    Path(str(first) + ".swap").write_bytes(b"")
    first.with_suffix(".log.1.deleted").write_bytes(b"left over")
    again = reopen(tmp_path, SMALL)
    assert [segment.base_offset for segment in again.segments[:2]] == [0, int(second.stem)]
    assert (first.read_bytes(), again.log_end_offset) == (b"", 40)
    assert again.read(0, 100).read()[:8] == int(second.stem).to_bytes(8, "big")
    assert not list(first.parent.glob("*.deleted"))
    again.close()


def spoil(data: bytes, how: str) -> bytes:
    """Damage in the third batch of a segment."""
    place = 2 * (12 + int.from_bytes(data[8:12], "big"))
    if how == "noise":
        return b"noise" * 100
    if how == "cut":
        return data[: place + 30]
    at = place + {"length": 9, "offset": 2, "records": 70}[how]
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("how", ["noise", "cut", "length", "offset", "records"])
def test_a_damaged_swap_goes_where_what_it_was_to_replace_is_there(
    tmp_path: Path, number: int, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40)
    log.write_pending()
    before = contents(log)
    file = Path(log.segments[number].file.path)
    crash(log)
    Path(f"{file}.swap").write_bytes(spoil(file.read_bytes(), how))
    Path(f"{file.with_suffix('.index')}.swap").write_bytes(b"")
    again = reopen(tmp_path, SMALL)
    assert (contents(again), again.log_end_offset) == (before, 40)
    assert not list(file.parent.glob("*.swap"))
    assert [record.levelname for record in caplog.records if ".log.swap is damaged" in record.message] == ["ERROR"]
    again.close()


@pytest.mark.parametrize("how", ["noise", "cut", "length", "records"])
def test_of_a_damaged_swap_that_is_all_there_is_the_good_part_is_kept(tmp_path: Path, how: str) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 40)
    log.write_pending()
    before = contents(log)
    file = Path(log.segments[1].file.path)
    first, third = log.segments[1].base_offset, log.segments[2].base_offset
    crash(log)
    file.rename(f"{file}.swap")
    Path(f"{file}.swap").write_bytes(spoil(Path(f"{file}.swap").read_bytes(), how))
    again = reopen(tmp_path, SMALL, recovery_point=39, high_watermark=40)
    assert (again.log_end_offset, again.segments[2].base_offset) == (40, third)
    size = len(before) // 40
    if how != "noise":
        assert again.read(first, 2 * size).read() == before[first * size : (first + 2) * size]
    assert again.read(third, size).read() == before[third * size : (third + 1) * size]
    again.close()
