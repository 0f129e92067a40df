"""`make mutants`: breaks each line that keeps a promise, one at a time in a copy, and sees whether its tests turn red.

    python -m tests.promises [WORD…]              only the mutants whose name or promise has one of the words
    python -m tests.promises --judged [WORD…]     does `kbroker verify` find those that clients can see?
    python -m tests.promises --simulated [WORD…]  does the simulated world find them, within so many seeds?

A mutant that no test notices, or that the judge does not find, is a promise that nobody holds: exit status 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

from tests.promises.table import PROMISES, ROOT, Mutant, Promise

COPY = ROOT / "build" / "mutant"
COPIED = ("protocol", "segment", "controller", "kbroker", "spark_connector", "tests", "docs", "bench", "examples")
FILES = ("setup.cfg", "pyproject.toml", "pyspark_kbroker.py", "Makefile", "README.md")
LIMIT_S = 240
TRIAL_S = 25
PLAYED_S = 4
"""Of virtual time, each seed."""
PLAYED_LIMIT_S = 1200
SEEDS = (1, 2, 3)
"""A mutant that shows itself by chance has so many chances."""


def copy() -> None:
    """Lay a fresh copy of the checkout, compiled modules too."""
    shutil.rmtree(COPY, ignore_errors=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, COPY / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, COPY / name)


def plant(mutant: Mutant) -> str:
    """Break the line in the copy; returns the file's former text. A compiled form of the module goes."""
    file = COPY / mutant.file
    text = file.read_text()
    file.write_text(text.replace(mutant.line, mutant.broken))
    for compiled in file.parent.glob(f"{file.stem}.*.so"):
        compiled.unlink()
    return text


def is_noticed(promise: Promise) -> bool | None:
    """Run the promise's tests on the copy, until the first fails; None when they could not be run."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *promise.tests]
    try:
        done = subprocess.run(
            command,
            cwd=COPY,
            env={**os.environ, "PYTHONPATH": str(COPY)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1):
        print(done.stdout[-2_000:], done.stderr[-2_000:], file=sys.stderr)
        return None
    return done.returncode == 1


def is_judged(mutant: Mutant) -> bool | None:
    """Run `kbroker verify` on three brokers of the copy, until it finds something; None when it cannot tell."""
    assert mutant.seen_by is not None
    workload, nemesis, client = mutant.seen_by
    found: bool | None = None
    for seed in SEEDS:
        arguments = (
            "--workload",
            workload,
            "--nemesis",
            nemesis,
            "--client",
            client,
            "--seconds",
            str(TRIAL_S),
            "--seed",
            str(seed),
        )
        done = subprocess.run(
            [sys.executable, "-m", "tests.promises.trial", *arguments],
            cwd=COPY,
            env={**os.environ, "PYTHONPATH": str(COPY)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        print(f"    {workload}, {nemesis}, seed {seed}: {done.stdout.strip() or done.stderr[-500:]}", flush=True)
        if done.returncode == 1 and done.stdout.startswith("anomaly"):
            return True
        found = False if done.returncode == 0 else found
    return found


def is_found_in_simulations(mutant: Mutant) -> bool | None:
    """Play seeds on the copy until one fails; None when they could not be played."""
    seeds = ("--seconds", str(PLAYED_S), "--seed", "1", "--seeds", str(mutant.seeds), "--until-found")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", *seeds, "--folder", str(COPY / "simulation")],
            cwd=COPY,
            env={**os.environ, "PYTHONPATH": str(COPY)},
            capture_output=True,
            text=True,
            timeout=PLAYED_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return None
    told = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    print(f"    {told[-1] if told else done.stderr[-500:]}", flush=True)
    return done.returncode == 1 if told else None


def main(words: list[str]) -> int:
    """Plant each mutant and print what became of it; returns the exit status."""
    judged, simulated = "--judged" in words, "--simulated" in words
    words = [word for word in words if word not in ("--judged", "--simulated")]
    unnoticed = 0
    copy()
    for promise in PROMISES:
        for mutant in promise.mutants:
            if words and not any(word in mutant.name or word in promise.text for word in words):
                continue
            if (judged and mutant.seen_by is None) or (simulated and not mutant.seeds):
                continue
            began = time.monotonic()
            before = plant(mutant)
            if simulated:
                noticed = is_found_in_simulations(mutant)
            else:
                noticed = is_judged(mutant) if judged else is_noticed(promise)
            (COPY / mutant.file).write_text(before)
            unnoticed += noticed is not True
            verdict = {True: "noticed", False: "NOT NOTICED", None: "COULD NOT BE RUN"}[noticed]
            print(f"{verdict:<12} {time.monotonic() - began:5.1f} s  {mutant.name}", flush=True)
    return int(unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
