"""Whole clusters in virtual time, each in a process of its own: the same for the same seed, and true to their promises.

make simulate SECONDS=60 SEED=7     one seed, or a new one
make soak                           new ones
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 4
SPARE_S = 240
WITHIN_S = 16
"""Of real time: so long new seeds are begun. How many that are depends on the machine, what each does does not."""


def simulate(folder: Path, *arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    """Play seeds as `make simulate` does."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--folder", str(folder), *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=SPARE_S,
        check=False,
    )


@pytest.mark.slow
def test_the_same_seed_is_the_same_trace_byte_for_byte(tmp_path: Path) -> None:
    for name in ("one", "other"):
        done = simulate(tmp_path / name, "--seconds", "5", "--seed", "17")
        assert done.returncode == 0, done.stdout + done.stderr
    for file in ("trace.txt", "history.jsonl"):
        assert (tmp_path / "one/17" / file).read_bytes() == (tmp_path / "other/17" / file).read_bytes()
    assert (tmp_path / "one/17/trace.txt").stat().st_size > 1000
    for beside in (tmp_path / "one/17").glob("disk-?-?/*"):  # what belongs to a log directory, and no log
        if beside.is_file() and beside.name != "kbroker-session":  # where the lock's file lies is the machine's
            assert beside.read_bytes() == (tmp_path / "other" / beside.relative_to(tmp_path / "one")).read_bytes(), (
                beside
            )


@pytest.mark.slow
def test_known_seeds_keep_all_promises(tmp_path: Path) -> None:
    done = simulate(tmp_path, "--seconds", str(SECONDS), "--seed", "1", "--seeds", "60", "--within", str(WITHIN_S))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"seed 1: all promises held \(.* faults", done.stdout), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("seconds", ["-1", "nan", "many"])
def test_a_time_that_is_none_is_refused(tmp_path: Path, seconds: str) -> None:
    done = simulate(tmp_path, "--seconds", seconds)
    assert done.returncode == 2
    assert "--seconds" in done.stderr
