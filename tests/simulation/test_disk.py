"""Disks that forget what was not synced, fail, and flip bits."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.segment.files import CREATE
from tests.simulation import disk as disk_module
from tests.simulation.disk import Disk, Disks
from tests.simulation.disk_faults import flip
from tests.simulation.test_inspectors import batches


@pytest.fixture
def disks() -> Disks:
    return Disks()


@pytest.fixture
def disk(disks: Disks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(disk_module, "KEPT", 0.0)
    return disks.add(tmp_path / "disk")


def write(disks: Disks, path: str, data: bytes, position: int = 0, sync: bool = False) -> None:
    descriptor = disks.open(path, CREATE)
    disks.pwrite(descriptor, data, position)
    if sync:
        disks.fdatasync(descriptor)
    disks.close(descriptor)


def sync_folder(disks: Disks, path: str) -> None:
    descriptor = disks.open(path, os.O_RDONLY | os.O_DIRECTORY)
    disks.fsync(descriptor)
    disks.close(descriptor)


def test_what_was_not_synced_is_gone_and_what_was_stays(disks: Disks, disk: Disk) -> None:
    path = f"{disk.folder}/log"
    write(disks, path, b"first", sync=True)
    sync_folder(disks, disk.folder)
    write(disks, path, b"SECOND", 3)
    assert Path(path).read_bytes() == b"firSECOND"
    assert disk.forget(random.Random(1)) == 1
    assert Path(path).read_bytes() == b"first"


def test_a_cut_that_was_not_synced_comes_back_with_what_was_cut_off(disks: Disks, disk: Disk) -> None:
    path = f"{disk.folder}/log"
    write(disks, path, b"0123456789", sync=True)
    sync_folder(disks, disk.folder)
    descriptor = disks.open(path, CREATE)
    disks.ftruncate(descriptor, 4)
    disks.pwrite(descriptor, b"xx", 4)
    disks.close(descriptor)
    disk.forget(random.Random(1))
    assert Path(path).read_bytes() == b"0123456789"


def test_what_was_appended_to_a_log_last_may_be_there_in_part_only(
    disks: Disks, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "KEPT", 1.0)
    monkeypatch.setattr(disk_module, "TORN", 1.0)
    path = f"{disk.folder}/0.log"
    write(disks, path, b"first", sync=True)
    sync_folder(disks, disk.folder)
    found = set()
    for seed in range(40):
        write(disks, path, b"SECOND", 5)
        disk.forget(random.Random(seed))
        found.add(Path(path).read_bytes())
        os.truncate(path, 5)
    whole = b"firstSECOND"
    assert found == {b"first", *(whole[:kept] + bytes(len(whole) - kept) for kept in range(5, len(whole)))}


def test_names_are_as_they_were_when_their_folder_was_synced(disks: Disks, disk: Disk) -> None:
    for name in ("kept", "replaced"):
        write(disks, f"{disk.folder}/{name}", name.encode(), sync=True)
    sync_folder(disks, disk.folder)
    write(disks, f"{disk.folder}/new", b"new", sync=True)
    disks.replace(f"{disk.folder}/new", f"{disk.folder}/replaced")
    disks.unlink(f"{disk.folder}/kept")
    assert os.listdir(disk.folder) == ["replaced"]
    disk.forget(random.Random(1))
    assert {path.name: path.read_bytes() for path in Path(disk.folder).iterdir()} == {
        "kept": b"kept",
        "replaced": b"replaced",
    }


def test_now_and_then_a_first_part_of_the_changes_is_there(
    disks: Disks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "KEPT", 1.0)
    found = set()
    for seed in range(20):
        disk = disks.add(tmp_path / str(seed))
        write(disks, f"{disk.folder}/log", b"", sync=True)
        sync_folder(disks, disk.folder)
        for place, letter in enumerate(b"abc"):
            write(disks, f"{disk.folder}/log", bytes([letter]), place)
        disk.forget(random.Random(seed))
        found.add(Path(f"{disk.folder}/log").read_bytes())
    assert found == {b"", b"a", b"ab", b"abc"}


def test_a_disk_that_fails_answers_every_call_with_its_error(disks: Disks, disk: Disk) -> None:
    path = f"{disk.folder}/log"
    write(disks, path, b"first", sync=True)
    descriptor = disks.open(path, CREATE)
    disk.fails = errno.ENOSPC
    for call in (
        lambda: disks.pwrite(descriptor, b"x", 0),
        lambda: disks.fdatasync(descriptor),
        lambda: disks.ftruncate(descriptor, 0),
        lambda: disks.pread(descriptor, 1, 0),
        lambda: disks.open(path, CREATE),
        lambda: disks.replace(path, path + "2"),
        lambda: disks.unlink(path),
    ):
        with pytest.raises(OSError, match="No space left") as failure:
            call()
        assert failure.value.errno == errno.ENOSPC
    disk.fails = 0
    assert disks.pread(descriptor, 9, 0) == b"first"
    disks.close(descriptor)


def test_a_bit_flips_and_flips_back_unless_it_was_written_over(disks: Disks, disk: Disk) -> None:
    path = Path(disk.folder) / "log"
    path.write_bytes(b"0123456789")
    turn_back = disk.flip(random.Random(1), path, 9)
    assert sum(bin(one ^ other).count("1") for one, other in zip(path.read_bytes(), b"0123456789", strict=True)) == 1
    turn_back()
    assert path.read_bytes() == b"0123456789"
    turn_back = disk.flip(random.Random(2), path, 4)
    path.write_bytes(b"other")
    turn_back()
    assert path.read_bytes() == b"other"


def test_who_looks_at_a_file_is_told_of_a_flip_where_that_is_to_be_shown(disks: Disks, disk: Disk) -> None:
    path = Path(disk.folder) / "log"
    path.write_bytes(b"0123456789")
    disk.flip(random.Random(1), path, 9)
    assert disks.changed_ns(str(path)) == disk_module.MADE_AT_NS
    turn_back = disk.flip(random.Random(1), path, 9, is_shown=True)
    flipped = disks.changed_ns(str(path))
    assert flipped > disk_module.MADE_AT_NS
    turn_back()
    assert disks.changed_ns(str(path)) > flipped
    assert disk.flips == 2


def test_a_bit_that_no_checksum_covers_flips_only_where_the_file_shows_it(disk: Disk) -> None:
    folder = Path(disk.folder, "things-0")
    folder.mkdir()
    closed, data, begins = folder / "0.log", batches(3), (0, len(batches(1)), len(batches(2)))
    Path(folder, "3.log").touch()
    in_offsets, shown = set[bool](), list[object]()
    for seed in range(400):
        closed.write_bytes(data)
        world: Any = SimpleNamespace(
            weak=1,
            is_calm=True,
            rng=random.Random(seed),
            zookeeper=SimpleNamespace(isr=lambda *of: ()),
            brokers={1: SimpleNamespace(disks=[disk], is_serving=True)},
            inspect=shown.append,
        )
        shown.clear()
        flip(world)
        position = next(at for at, value in enumerate(closed.read_bytes()) if value != data[at])
        is_in_offset = any(position in range(start, start + 8) for start in begins)
        assert shown or not is_in_offset, f"seed {seed} flips byte {position}, and nobody can know"
        if not shown or is_in_offset:
            in_offsets.add(is_in_offset)
    assert in_offsets == {True, False}, "offsets flip where that shows, and others where nothing does"


def test_only_what_was_synced_outlives_a_loss_of_power(disks: Disks, disk: Disk) -> None:
    path = f"{disk.folder}/log"
    write(disks, path, b"first", sync=True)
    write(disks, path, b"second", 5)
    assert [disk.has_synced(path, size) for size in (4, 5, 6, 11)] == [True, True, False, False]


def test_a_disk_that_syncs_nothing_takes_what_is_written(disks: Disks, disk: Disk) -> None:
    path = f"{disk.folder}/log"
    disk.fails, disk.fails_syncs_only = errno.EIO, True
    with pytest.raises(OSError, match="Input/output error"):
        write(disks, path, b"first", sync=True)
    assert Path(path).read_bytes() == b"first"
    assert not disk.has_synced(path, 1)
