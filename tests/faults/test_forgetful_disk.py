"""What was not synced is gone after a cut, what was is there; calls fail where they are told to."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests.faults.forgetful_disk import Failing, File, Folder, NotFollowed, PowerSupply


@pytest.fixture
def power(library: Path, tmp_path: Path) -> PowerSupply:
    """An empty folder."""
    return PowerSupply(library, tmp_path / "disk", tmp_path / "journals")


HELPERS = """
import os, sys
from kbroker.segment.files import CREATE, Files
files = Files()
def sync(path):
    files.sync_path(path)
def put(path, data, position=0):
    descriptor = files.open(path, CREATE)
    files.write_all(descriptor, data, position)
    files.close(descriptor)
"""


def run(power: PowerSupply, script: str, failing: Failing | None = None) -> str:
    """Run lines of Python in the folder; returns what they print."""
    command: Sequence[str] = [*power.launcher(failing), sys.executable, "-P", "-c", HELPERS + script]
    done = subprocess.run(command, cwd=power.folder, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def held(power: PowerSupply) -> dict[str, bytes]:
    """The files of the folder."""
    found = (path for path in power.folder.rglob("*") if path.is_file())
    return {str(path.relative_to(power.folder)): path.read_bytes() for path in found}


def test_a_file_holds_what_it_held_at_its_last_sync(power: PowerSupply) -> None:
    run(power, "put('a', b'one'); sync('a'); put('a', b'two', 3); files.sync_folder('.'); put('b', b'three')")
    power.after_a_cut()
    assert held(power) == {"a": b"one"}


def test_the_power_may_fail_at_any_moment_of_what_was_done(power: PowerSupply, tmp_path: Path) -> None:
    script = (
        "import time; put('a', b'one'); sync('a'); files.sync_folder('.'); print(time.monotonic_ns())\n"
        "put('a', b'two'); print(time.monotonic_ns()); sync('a'); print(time.monotonic_ns())"
    )
    for number, moment in enumerate(map(int, run(power, script).split())):
        power.at(moment, tmp_path / str(number))
    assert [(tmp_path / str(number) / "a").read_bytes() for number in range(3)] == [b"one", b"one", b"two"]


def test_a_name_counts_once_its_folder_is_synced(power: PowerSupply) -> None:
    run(
        power,
        "os.mkdir('f'); put('f/a', b'1'); sync('f/a'); put('f/b', b'2'); sync('f/b'); files.sync_folder('f')\n"
        "files.sync_folder('.'); os.unlink('f/a'); files.rename('f/b', 'f/c'); put('f/d', b'3'); sync('f/d')",
    )
    power.after_a_cut()
    assert held(power) == {"f/a": b"1", "f/b": b"2"}


def test_a_file_replaced_whole_is_the_old_or_the_new_one(power: PowerSupply) -> None:
    run(power, "files.replace_file('./a', b'old', True)")
    power.after_a_cut()
    assert held(power) == {"a": b"old"}
    run(power, "files.replace_file('./a', b'new', False)")
    power.after_a_cut()
    assert held(power) == {"a": b"old"}
    run(power, "files.replace_file('./a', b'new', True)")
    power.after_a_cut()
    assert held(power) == {"a": b"new"}


def test_files_cut_removed_and_made_anew_are_followed(power: PowerSupply) -> None:
    run(
        power,
        "put('a', b'0123456789'); d = os.open('a', os.O_RDWR); os.ftruncate(d, 4); os.write(d, b'ab'); os.fsync(d)\n"
        "files.sync_folder('.'); os.unlink('a'); put('a', b'other'); sync('a'); os.pwrite(d, b'late', 0); os.fsync(d)",
    )
    power.after_a_cut()
    assert held(power) == {"a": b"late"}
    run(power, "open('a', 'wb').write(b'x'); sync('a')")
    power.after_a_cut()
    assert held(power) == {"a": b"x"}
    run(power, "import shutil; os.mkdir('f'); put('f/g', b''); shutil.rmtree('f'); files.sync_filesystem('.')")
    power.after_a_cut()
    assert held(power) == {"a": b"x"}


def test_a_sync_of_the_file_system_keeps_all(power: PowerSupply) -> None:
    run(power, "os.mkdir('f'); put('f/a', b'1'); put('b', b'2'); files.sync_filesystem('.'); put('b', b'3')")
    power.after_a_cut()
    assert held(power) == {"f/a": b"1", "b": b"2"}


def test_of_what_was_not_synced_a_seed_draws_what_is_kept(tmp_path: Path) -> None:
    """Any part of it, torn at sectors; zeros where something later arrived. Of names the first part."""
    contents, names = set(), set()
    for seed in range(200):
        folder = Folder()
        file = File(bytearray(b"1" * 600), [(600, b"2" * 1000), (1600, b"3" * 10)])
        for name in "abc":
            folder.set({name: file})
        contents.add(file.after_a_cut(Random(seed)))
        names.add("".join(folder.after_a_cut(Random(seed))))
    whole = b"1" * 600 + b"2" * 1000 + b"3" * 10
    assert {whole, whole[:600], whole[:1600], whole[:1024]} < contents
    assert b"1" * 600 + bytes(1000) + b"3" * 10 in contents
    assert all(len(each) in (600, 1024, 1536, 1600, 1610) for each in contents)
    assert names == {"", "a", "ab", "abc"}


def test_what_is_not_followed_is_refused(power: PowerSupply) -> None:
    run(power, "put('a', b'1'); import mmap; d = os.open('a', os.O_RDWR); mmap.mmap(d, 1)")
    with pytest.raises(NotFollowed, match="writable map"):
        power.after_a_cut()


def test_the_calls_fail_that_are_told_to(power: PowerSupply) -> None:
    script = """
for name in ("a.log", "b.log", "b.index", "c.log", "d.log"):
    try:
        put(name, b"1")
        print("done")
    except OSError as error:
        print(error.errno)
"""
    failing = Failing(first=3, name=".log", count=1, code=errno.ENOSPC)  # each takes two: to make it, to write it
    assert run(power, script, failing).split() == ["done", str(errno.ENOSPC), "done", "done", "done"]
    assert sorted(os.listdir(power.folder)) == ["a.log", "b.index", "c.log", "d.log"]
