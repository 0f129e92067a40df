"""One request, one client, one disk never hold up the others: how long an honest client waits under each load.

An honest client in a process of its own asks ApiVersions every few milliseconds; its longest wait in a run is what
counts. Each load runs several times: the median of the runs should be below 50 ms, the worst below 250 ms. Beside it
stands by how much the broker's resident memory grew at most.

    python -m bench stalls --scale 0.1      # smaller loads, shorter runs
    python -m bench.stalls 'Metadata' …     # only the loads whose names hold one of these words, ours only
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.broker import Figures
from bench.honest_client import HonestClient
from bench.stall_loads import LOADS, PLAIN, SLOW_READS, SLOW_SYNCS, Load
from bench.systems import Kafka, Kbroker, System

SOURCE = Path(__file__).with_name("slow_disk.c")
RUNS = 3
RUN_S = 5.0
CALM_MS = 20.0
CALM_LIMIT_S = 60.0
SETTINGS = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000", "log.retention.hours": "-1"}
ENVIRONMENTS = {
    SLOW_SYNCS: {"SLOW_SYNC_MS": "200", "SLOW_SYNC_EVERY": "20"},
    SLOW_READS: {"SLOW_SYNC_MS": "0", "SLOW_READ_MS": "20"},
}


class MemoryWatch(threading.Thread):
    """Notes the most memory a process has while it runs."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self._process = process
        self.before = process.memory_info().rss
        self.most = self.before
        self._ended = threading.Event()

    def run(self) -> None:
        """Look again and again."""
        while not self._ended.wait(0.02):
            self.most = max(self.most, self._process.memory_info().rss)

    def grown_mb(self) -> float:
        """End, and return by how much it grew."""
        self._ended.set()
        self.join()
        return (self.most - self.before) / 1e6


@contextmanager
def slow_disk(disk: str) -> Iterator[dict[str, str]]:
    """Give the environment of a broker on such a disk."""
    if disk == PLAIN:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "slow_disk.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True, timeout=60)
        yield {"LD_PRELOAD": str(library), **ENVIRONMENTS[disk]}


def calm_down(client: HonestClient) -> None:
    """Wait until the last load is over for the broker too."""
    deadline = time.monotonic() + CALM_LIMIT_S
    while client.span()["longest"] > CALM_MS and time.monotonic() < deadline:
        time.sleep(0.5)


def bear(system: System, load: Load, scale: float, client: HonestClient) -> Figures:
    """Let the broker bear a load several times."""
    longest, medians, grown = [], [], []
    for _ in range(RUNS):
        calm_down(client)
        memory = MemoryWatch(system.broker)
        memory.start()
        load.run(system, scale, time.monotonic() + max(1.0, RUN_S * scale))
        waits = client.span()
        longest.append(waits["longest"])
        medians.append(waits["median"])
        grown.append(memory.grown_mb())
    return {
        "longest wait, median of runs, ms": statistics.median(longest),
        "longest wait, worst run, ms": max(longest),
        "median wait, ms": statistics.median(medians),
        "memory grew by, MB": max(grown),
    }


def measure(kind: type[System], scale: float, wanted: tuple[str, ...] = ("",)) -> dict[str, Figures]:
    """Measure the loads on one system; `scale` shrinks them, `wanted` holds parts of their names."""
    allow_descriptors()
    rows = {}
    for disk in (PLAIN, SLOW_SYNCS, SLOW_READS):
        loads = [each for each in LOADS if each.disk == disk and any(part in each.name for part in wanted)]
        if kind is Kafka:
            loads = [each for each in loads if each.on_kafka]
        if not loads or (disk and not shutil.which("cc")):
            continue
        loads[:0] = [each for each in LOADS[:1] if each not in loads]
        with slow_disk(disk) as environment, kind(SETTINGS, environment) as system, HonestClient(system.port) as client:
            for load in loads:
                name = f"{load.name} ({disk})" if disk else load.name
                load.prepare(system, scale)
                rows[name] = bear(system, load, scale, client)
                print(f"{name:70}", *(f"{figure:10.1f}" for figure in rows[name].values()), file=sys.stderr)
    return rows


def allow_descriptors() -> None:
    """Take as many descriptors as the system lets us have; brokers inherit them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Measure the loads named on the command line, on ours only: their figures come as they are known."""
    *names, scale = [*sys.argv[1:], "1"] if not sys.argv[-1].startswith("--scale=") else sys.argv[1:]
    measure(Kbroker, float(scale.removeprefix("--scale=")), tuple(names) or ("",))


if __name__ == "__main__":
    main()
