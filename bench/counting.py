"""What counting for metrics costs on the produce path: a broker as it is beside the same without the lines that count.

The other broker's modules are read from their files without the lines in COUNTING; both are loaded in the same way,
live at the same time, and are sent the same requests in short turns, now the one first and now the other. What stays in
both: the attribute `timing` of a context and an answer. Messages and bytes cost nothing: logs' ends tell them.

python -m bench counting
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from bench.peers import Pump, framed
from bench.scrape import OF_PROCESS
from bench.systems import Kbroker
from kbroker import Admin
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.records.builder import BatchBuilder

ROOT = Path(__file__).parent.parent
COUNTING: dict[str, tuple[tuple[str, str], ...]] = {
    "kbroker.network.dispatch": (
        (
            """        requests = api.requests
        requests.by_version[version] += 1
        if requests.to_skip:
            requests.to_skip -= 1
        else:
            ctx.timing = requests.timing(connection.received or connection.last_active, len(frame))
""",
            "",
        ),
        ("        if ctx.timing is not None:\n            ctx.timing.handled()\n", ""),
        ("            if ctx.timing is not None:\n                ctx.timing.sent()\n", ""),
        ("            connection.timing = ctx.timing\n", ""),
        (
            """        timing = self.ctx.timing
        if timing is not None:
            timing.answered()
            if parts is None:
                timing.sent()
                timing = None
""",
            "        timing = None\n",
        ),
    ),
    "kbroker.network.connection": (
        ("        if self.timing is not None:\n            self.timing.sending()\n", ""),
        ("        if self.timing is not None:\n            self._finish_timing()\n", ""),
        ("        self.state, self.timing = READING, timing\n", "        self.state = READING\n"),
        ("        if held is not None:\n            self.received = self.last_active\n", ""),
        ("            self.received = self.last_active\n", ""),
        ("            self.received = 0.0\n", ""),
        ("        self.received = 0.0\n        if is_served:", "        if is_served:"),
    ),
    "kbroker.handlers.produce": (
        (
            """    traffic = services.replicas.traffic.get(name)
    if traffic is not None:
        traffic.produces += len(partition_data)
""",
            "",
        ),
    ),
}
"""Of each module, the lines that count and what stands in their place."""
PARTITIONS = 8
LOADS = {"1 KB": (1000, 16, 1_000), "128 KB": (128_000, 4, 200)}
"""Bytes of a request's one batch, connections with one request at a time each, and requests in a turn."""
PAIRS = 30
LIVES = 7
"""How often both brokers are started anew."""
TURN_LIMIT_S = 60.0


def without_counting(name: str, source: str) -> str:
    """Return a module's source without the lines that count. Raises ValueError where they are no longer there."""
    for lines, instead in COUNTING[name]:
        if lines not in source:
            raise ValueError(f"{name} counts otherwise by now: it has no\n{lines}")
        source = source.replace(lines, instead)
    return source


class _Loader(SourceFileLoader):
    """Compiles anew what the file says, as it is or without what counts."""

    counts = True

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        return compile(source if self.counts else without_counting(fullname, source), self.path, "exec")


class _Finder:
    """Finds the modules that count."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return how such a module is loaded; of all others nothing."""
        if name not in COUNTING:
            return None
        file = str(ROOT / f"{name.replace('.', '/')}.py")
        return spec_from_file_location(name, file, loader=_Loader(name, file))


class Counting(Kbroker):
    """A broker as it is."""

    way = "with"

    def command(self, properties: Path) -> list[str]:
        """Return the command line that runs the broker."""
        return [sys.executable, "-m", "bench.counting", self.way, str(properties)]

    def cpu_seconds(self) -> float:
        """Return what all its threads have used, to the nanosecond."""
        return time.clock_gettime((~self.broker.pid << 3) | OF_PROCESS)


class NotCounting(Counting):
    """The same, without the lines that count."""

    way = "without"


def requests_of(size: int) -> list[bytes]:
    """Produce requests of one batch with one record each, one for each partition."""
    frames = []
    for partition in range(PARTITIONS):
        builder = BatchBuilder(batch_size=2 * size)
        builder.append(None, bytes(size), (), 1_700_000_000_000)
        data = ProduceRequest.PartitionProduceData(index=partition, records=bytes(builder.build()))
        topic = ProduceRequest.TopicProduceData(name="bench", partition_data=[data])
        frames.append(framed(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9))
    return frames


def turn(broker: Counting, frames: list[bytes], connections: int, requests: int) -> float:
    """Send so many requests; returns the broker's CPU seconds for one."""
    payloads = [frames[number % PARTITIONS] for number in range(connections)]
    pump = Pump(broker.port, payloads, in_flight=1, times=requests)
    before = broker.cpu_seconds()
    pump.run(time.monotonic() + TURN_LIMIT_S)
    if pump.answered < requests:
        raise RuntimeError(f"{pump.answered} of {requests} requests were answered in {TURN_LIMIT_S:g} s")
    return (broker.cpu_seconds() - before) / pump.answered


def pairs_of(brokers: dict[str, Counting], load: str) -> dict[str, list[float]]:
    """Send a load to both in turns, now the one first and now the other; returns what a request cost in each."""
    size, connections, requests = LOADS[load]
    frames = requests_of(size)
    costs: dict[str, list[float]] = {way: [] for way in brokers}
    for number in range(PAIRS + 2):  # the first ones warm up
        for way in list(brokers)[:: 1 if number % 2 else -1]:
            costs[way].append(turn(brokers[way], frames, connections, requests))
    return {way: each[2:] for way, each in costs.items()}


def tell(load: str, lives: list[dict[str, list[float]]]) -> None:
    """Print what a request costs, and the ratio of each life: two processes differ also where they do the same."""
    size, _, requests = LOADS[load]
    for way in lives[0]:
        median = statistics.median(cost for life in lives for cost in life[way])
        print(f"{load} {way:>7} counting: {median * 1e6:7.2f} µs a request, {median / size * 1e9:6.3f} CPU-s/GB")
    ratios = sorted(
        statistics.median(counting / bare for counting, bare in zip(life["with"], life["without"], strict=True))
        for life in lives
    )
    print(
        f"{load} with / without: median {statistics.median(ratios):.4f} of {LIVES} pairs of processes"
        f" ({', '.join(f'{each:.3f}' for each in ratios)}), {PAIRS} pairs of {requests:,} requests each",
        flush=True,
    )


def main() -> None:
    """All figures."""
    settings = {"log.retention.bytes": str(64 << 20), "log.segment.bytes": str(32 << 20)}
    settings |= {"log.retention.check.interval.ms": "5000", "log.segment.delete.delay.ms": "0"}
    first = Counting(settings)
    second = NotCounting(settings, zookeeper=EmbeddedZooKeeper(first.folder / "zookeeper-of-the-other"))
    lives: dict[str, list[dict[str, list[float]]]] = {load: [] for load in LOADS}
    with first, second:
        brokers: dict[str, Counting] = {"with": first, "without": second}
        for broker in brokers.values():
            with Admin(broker.bootstrap) as admin:
                admin.create_topic("bench", PARTITIONS, 1)
        for number in range(LIVES):
            for load in LOADS:
                lives[load].append(pairs_of(brokers, load))
            for broker in (first, second)[:: 1 if number % 2 else -1]:
                broker.stop()
                broker.start()
    for load in LOADS:
        tell(load, lives[load])


def be_a_broker(way: str, properties: str) -> int:
    """Run the broker in this process; `way`: with, or without."""
    _Loader.counts = way == "with"
    sys.meta_path.insert(0, _Finder)
    for name in COUNTING:
        sys.modules.pop(name, None)
    sys.argv = ["kbroker.process", properties]
    from kbroker.process import main as live

    return live()


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(be_a_broker(*sys.argv[1:]))
    main()
