"""How long the checker takes, and how much memory: a history of ten million operations, judged from its file.

    python -m bench verify [--scale 0.1]

Half of the operations send a record, half read some; 16 processes, 64 partitions. Written first, then judged in a
process of its own, so that the peak of memory is the checker's alone.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from kbroker.verify.history import HISTORY_FILE

OPERATIONS = 10_000_000
PROCESSES = 16
PARTITIONS = 64
GOAL_SECONDS, GOAL_BYTES = 60, 4 << 30
JUDGE = """\
import json, resource, sys, time
from pathlib import Path
from kbroker.verify.checker import Settings, judge
from kbroker.verify.reading import read_columns
begun = time.monotonic()
columns = read_columns(Path(sys.argv[1]))
read = time.monotonic()
judgement = judge(columns, Settings())
ended = time.monotonic()
cpu = time.process_time()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
figures = {"verdict": judgement.verdict, "operations": len(columns.operations), "sent": len(columns.sends)}
figures |= {"read": len(columns.reads), "read_s": read - begun, "judge_s": ended - read}
figures |= {"cpu_s": cpu, "peak_bytes": peak}
print(json.dumps(figures))
"""


def lines(operations: int) -> Iterator[str]:
    """A healthy history: in turns, each process sends a record, or reads what a partition has more."""
    rng = random.Random(1)
    ends = [0] * PARTITIONS
    values: list[list[int]] = [[] for _ in range(PARTITIONS)]
    positions = [[0] * PARTITIONS for _ in range(PROCESSES)]
    index = now = value = 0
    for number in range(operations):
        process = number % PROCESSES
        partition = rng.randrange(PARTITIONS)
        now += 1000
        if process % 2 == 0:
            value += 1
            wanted = f'[["send","t:{partition}",{value}]]'
            done = f'[["send","t:{partition}",[{ends[partition]},{value}]]]'
            ends[partition] += 1
            values[partition].append(value)
            f = "send"
        else:
            at = positions[process][partition]
            upto = ends[partition] if process == 1 else min(at + 1, ends[partition])
            places = ",".join(f"[{offset},{values[partition][offset]}]" for offset in range(at, upto))
            positions[process][partition] = upto
            wanted, done, f = '[["poll"]]', f'[["poll",{{"t:{partition}":[{places}]}}]]', "poll"
        for type, what, moment in (("invoke", wanted, now), ("ok", done, now + 900)):
            head = f'{{"index":{index},"process":{process},"type":"{type}","f":"{f}"'
            yield f'{head},"operations":{what},"time":{moment}}}\n'
            index += 1
    for partition, found in enumerate(values):
        for first in range(0, len(found), 500):
            part = enumerate(found[first : first + 500], first)
            places = ",".join(f"[{offset},{each}]" for offset, each in part)
            for type, what in (("invoke", '[["poll"]]'), ("ok", f'[["poll",{{"t:{partition}":[{places}]}}]]')):
                head = f'{{"index":{index},"process":99,"type":"{type}","f":"poll"'
                yield f'{head},"operations":{what},"time":{now + index},"final":true}}\n'
                index += 1


def main(arguments: Sequence[str] = ()) -> None:
    """Judge a long history, and print what that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the history")
    scale = parser.parse_args(arguments).scale
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / HISTORY_FILE
        begun = time.monotonic()
        with path.open("w") as file:
            file.writelines(lines(int(OPERATIONS * scale)))
        size = path.stat().st_size
        console.print(f"{size / 1e9:.2f} GB of history written in {time.monotonic() - begun:.0f} s")
        done = subprocess.run([sys.executable, "-c", JUDGE, str(path)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    seconds = found["read_s"] + found["judge_s"]
    console.print(
        f"{found['operations']:,} operations ({found['sent']:,} records sent, {found['read']:,} read):"
        f" {found['verdict']} after {seconds:.1f} s, {found['cpu_s']:.1f} s of CPU (goal: {GOAL_SECONDS * scale:g} s),"
        f" {found['read_s']:.1f} s of them for the file; {found['peak_bytes'] / 2**30:.2f} GiB at the peak"
        f" (goal: {GOAL_BYTES / 2**30:g} GiB)"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
