"""`make simulate`: plays seeds, each in a process of its own; one that fails prints itself and the end of its trace.

python -m tests.simulation --seconds 60 --seed 7 [--seeds 200] [--jobs 2] [--within 20] [--folder build/simulation]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import shutil
import signal
import sys
import time
from math import isfinite
from pathlib import Path

LAST_LINES = 40
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG: one that hangs ends with this process


def main() -> int:
    """Play what is asked for; the exit status is 1 when a seed failed."""
    options = arguments()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of names comes from it
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    first = time.time_ns() // 1_000_000 % 1_000_000_000 if options.seed is None else options.seed
    latest = time.monotonic() + options.within
    load()
    failed, running = 0, set[int]()
    for seed in range(first, first + options.seeds):
        if len(running) == options.jobs:
            failed += one_ended(running)
        if seed > first and (real_monotonic() > latest or (failed and options.until_found)):
            break
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
            gc.disable()  # what is collected when depends on what was there before
            os._exit(play_one(seed, options.seconds, options.folder.resolve() / str(seed)))
        running.add(child)
    while running:
        failed += one_ended(running)
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Play whole clusters from seeds.")
    parser.add_argument("--seconds", type=seconds, default=60.0, help="of virtual time in which things break")
    parser.add_argument("--seed", type=int, help="the first seed; a new one by default")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--jobs", type=int, default=1, help="how many at the same time")
    parser.add_argument("--within", type=seconds, default=1e9, help="begin no seed after so many real seconds")
    parser.add_argument("--until-found", action="store_true", help="end with the first seed that fails")
    parser.add_argument("--folder", type=Path, default=Path("build/simulation"), help="for disks, histories, traces")
    return parser.parse_args()


def seconds(text: str) -> float:
    """Read a time."""
    found = float(text)
    if not isfinite(found) or found < 0:
        raise argparse.ArgumentTypeError(f"{text} is no time")
    return found


real_monotonic = time.monotonic


def load() -> None:
    """Load everything once for all seeds, clocks first."""
    from tests.simulation import outside

    outside.take_over()
    from kbroker import handlers
    from kbroker.aio import Admin, Consumer, Producer  # noqa: F401
    from tests.simulation import world  # noqa: F401

    handlers.load_all()
    import numpy.ma  # noqa: F401  (numpy does it in the first call of `unique`)

    gc.collect()
    gc.freeze()


def play_one(seed: int, seconds: float, folder: Path) -> int:
    """Play a seed and say how it ended."""
    from tests.simulation.world import TRACE_FILE, play

    shutil.rmtree(folder, ignore_errors=True)
    began = time.process_time()
    verdict = play(seed, seconds, folder)
    took = time.process_time() - began
    pace = f"{verdict.virtual_s:.0f} s in {took:.1f} s of CPU, {verdict.faults} faults, {verdict.turns} turns"
    print(f"seed {seed}: {verdict.reason or 'all promises held'} ({pace})")
    if verdict.reason:
        print("\n".join((folder / TRACE_FILE).read_text().splitlines()[-LAST_LINES:]))
        print(f"again: make simulate SECONDS={seconds:g} SEED={seed}; its history and trace are in {folder}")
    sys.stdout.flush()
    return 1 if verdict.reason else 0


def one_ended(running: set[int]) -> int:
    """Wait for one of the processes; 1 when its seed failed."""
    child, status = os.wait()
    running.discard(child)
    return int(status != 0)


if __name__ == "__main__":
    sys.exit(main())
