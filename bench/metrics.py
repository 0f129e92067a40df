"""What metrics cost: a scrape of very many partitions, how long the event loop waits beside it, and a Produce.

python bench/metrics.py [--partitions 10000] [--seconds 2]
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.broker_path import Bench, batch_of, call, measure, produce_frame
from kbroker.metrics.gathering import gather
from kbroker.metrics.sources import Sources
from kbroker.protocol.distribution import Distribution
from kbroker.protocol.errors import ErrorCode

TICK_S = 0.001


def sources_of(bench: Bench) -> Sources:
    """The parts of a broker that has nothing but replicas."""
    state = SimpleNamespace(assignments={}, topics_to_delete=(), leaderless=(), leadership={}, brokers={})
    services: Any = SimpleNamespace(
        config=bench.dispatch.services.config,
        broker_id=1,
        cluster_id="bench",
        replicas=bench.replicas,
        metadata=bench.metadata,
        logs=bench.logs,
        workers=bench.replicas.workers,
        controller=SimpleNamespace(is_active=True, unclean_elections=0, state=state),
        groups=SimpleNamespace(groups=lambda: ([], ErrorCode.NONE), commits=0),
        transactions=SimpleNamespace(transactions=list),
        zookeeper=SimpleNamespace(latency=Distribution(), events=Counter(), is_connected=True),
    )
    server: Any = SimpleNamespace(
        connections=set(),
        ports={},
        accepted=Counter(),
        bytes_in_flight=0,
        buffers=SimpleNamespace(kept_bytes=0),
        loop=asyncio.get_running_loop(),
    )
    return Sources(services, server, bench.dispatch, None, lambda: 3)


async def longest_wait(until: asyncio.Future[Any]) -> list[float]:
    """Sleep again and again until it is done; return in order by how much that took too long."""
    late = []
    while not until.done():
        began = time.perf_counter()
        await asyncio.sleep(TICK_S)
        late.append(time.perf_counter() - began - TICK_S)
    return sorted(late)


async def scrapes(sources: Sources, seconds: float) -> None:
    """Gather again and again in a thread; tell how long that takes, and how long the loop waits for the interpreter."""
    loop = asyncio.get_running_loop()
    idle = await longest_wait(asyncio.ensure_future(asyncio.sleep(seconds / 2)))
    times, late, size, lines = [], [], 0, 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        gathering = loop.run_in_executor(None, gather, sources)
        late += await longest_wait(gathering)
        pieces = await gathering
        times.append(time.perf_counter() - began)
        size = sum(map(len, pieces))
        lines = sum(piece.count(b"\n") for piece in pieces)
    times.sort()
    late.sort()
    print(f"one scrape: {lines:,} lines, {size / 1e6:.1f} MB, median {times[len(times) // 2] * 1000:.0f} ms")
    for name, waits in (("without", idle), ("during", late)):
        print(
            f"{name + ' a scrape the loop wakes up late by':45} median {waits[len(waits) // 2] * 1000:.2f} ms, "
            f"p99 {waits[len(waits) * 99 // 100] * 1000:.2f} ms, worst {waits[-1] * 1000:.1f} ms"
        )


async def run(partitions: int, seconds: float) -> None:
    """All figures."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(Path(place))
        took = await bench.create(partitions)
        print(f"{partitions:,} partitions created and led in {took:.2f} s")
        measure("produce, 1 partition, 1 KB", seconds, call(bench, produce_frame(batch_of(1000), 1)))
        await scrapes(sources_of(bench), seconds)
        bench.logs.abandon()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=2.0, help="per figure")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.partitions, arguments.seconds))
