"""Metrics seen from outside: a scrape by HTTP of a broker with very many partitions, and what being scraped costs.

python -m bench scrape
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import Awaitable

from kbroker import Admin, Producer
from kbroker.client.connection import Connection
from kbroker.dev.free_ports import free_ports
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.testing import Cluster

TOPICS, PARTITIONS = 100, 100
SCRAPES = 15
EVERY_S = 1.0
ROUNDS = 12
RECORDS = 100_000
VALUE = os.urandom(1000)
OF_PROCESS = 2
"""The kind of clock, as in clock_getcpuclockid(3)."""


class Scraped:
    """A broker that serves metrics, or does not."""

    def __init__(self, serves: bool) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}/metrics"
        self.cluster = Cluster(properties={"metrics.listeners": f"HTTP://127.0.0.1:{port}"} if serves else {})
        self.cluster.start()
        self.bootstrap = self.cluster.bootstrap
        self._pid = self.cluster.brokers[0].pid

    def cpu_seconds(self) -> float:
        """Return what all its threads have used, those that have ended too: the clock of another process's CPU time."""
        return time.clock_gettime((~self._pid << 3) | OF_PROCESS)

    def scrape(self) -> tuple[float, float, int]:
        """Return how long a scrape took, the broker's CPU seconds, and its bytes."""
        before, began = self.cpu_seconds(), time.perf_counter()
        with urllib.request.urlopen(self.url) as answer:
            size = len(answer.read())
        return time.perf_counter() - began, self.cpu_seconds() - before, size

    def produce(self) -> float:
        """Send records in small batches; returns the broker's CPU seconds."""
        with Producer(self.bootstrap, batch_size=16_384, linger_ms=0) as producer:
            before = self.cpu_seconds()
            for number in range(RECORDS):
                producer.send("small", VALUE, partition=number % PARTITIONS)
            producer.flush()
            return self.cpu_seconds() - before


async def answers_while(work: Awaitable[None], bootstrap: str) -> list[float]:
    """Ask the broker for next to nothing, again and again; returns in order how long each answer took."""
    host, _, port = bootstrap.rpartition(":")
    connection = await Connection.open(host, int(port))
    took, working = [], asyncio.ensure_future(work)
    while not working.done():
        began = time.perf_counter()
        await connection.request(ApiVersionsRequest(), 0)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.002)
    await connection.close()
    return sorted(took)


async def scrapes(broker: Scraped) -> None:
    """Scrape once a second; tell what that takes, and how long the broker leaves others waiting meanwhile."""
    seen: list[tuple[float, float, int]] = []

    async def again_and_again() -> None:
        for _ in range(SCRAPES):
            seen.append(await asyncio.to_thread(broker.scrape))
            await asyncio.sleep(EVERY_S)

    idle = await answers_while(asyncio.sleep(SCRAPES * EVERY_S / 2), broker.bootstrap)
    busy = await answers_while(again_and_again(), broker.bootstrap)
    walls, cpus = (sorted(each[at] for each in seen) for at in (0, 1))
    print(
        f"a scrape of {TOPICS * PARTITIONS:,} partitions, {seen[0][2] / 1e6:.1f} MB: wall best {walls[0] * 1000:.0f},"
        f" median {walls[SCRAPES // 2] * 1000:.0f} ms; CPU best {cpus[0] * 1000:.0f},"
        f" median {cpus[SCRAPES // 2] * 1000:.0f} ms"
    )
    for name, took in (("without", idle), ("with", busy)):
        print(
            f"answers to another client {name} scrapes: median {took[len(took) // 2] * 1000:.2f} ms,"
            f" p99 {took[len(took) * 99 // 100] * 1000:.1f} ms, longest {took[-1] * 1000:.0f} ms"
        )


def cost_of_being_served() -> None:
    """Produce to a broker that serves metrics and to one that does not, in turns."""
    brokers = {"without metrics": Scraped(serves=False), "with metrics": Scraped(serves=True)}
    try:
        for broker in brokers.values():
            with Admin(broker.bootstrap) as admin:
                admin.create_topic("small", PARTITIONS, 1)
            broker.produce()
        pairs = []
        for number in range(ROUNDS):
            order = list(brokers)[:: 1 if number % 2 else -1]
            cost = {name: brokers[name].produce() for name in order}
            pairs.append(cost)
        for name in brokers:
            print(f"producing {RECORDS / 1e3:.0f} MB {name}: {statistics.mean(each[name] for each in pairs):.3f} CPU-s")
        ratio = statistics.median(each["with metrics"] / each["without metrics"] for each in pairs)
        print(f"median ratio of {ROUNDS} pairs: {ratio:.3f}")
    finally:
        for broker in brokers.values():
            broker.cluster.stop()


def main() -> None:
    """All figures."""
    broker = Scraped(serves=True)
    try:
        with Admin(broker.bootstrap) as admin:
            for number in range(TOPICS):
                admin.create_topic(f"topic-{number:03d}", PARTITIONS, 1)
        asyncio.run(scrapes(broker))
    finally:
        broker.cluster.stop()
    sys.stdout.flush()
    cost_of_being_served()


if __name__ == "__main__":
    main()
