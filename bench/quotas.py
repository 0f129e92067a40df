"""One greedy client beside ten modest ones: what the modest wait, without and with a limit for the greedy one.

The greedy one is a process of its own that produces as fast as it can. Each of the modest sends a record of 100 bytes
twenty times a second and notes how long its acknowledgement takes.

    python -m bench quotas --scale 0.3      # shorter
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.broker import Figures
from bench.systems import System
from kbroker import Admin

TOPIC, GREEDY_TOPIC = "modest", "greedy"
GREEDY = "greedy"
MODEST = 10
PERIOD_S = 0.05
RUN_S = 15.0
LIMIT = 2_000_000
"""Bytes per second."""
PATIENCE_S = 60.0
KEYS = ("producer_byte_rate", "request_percentage")


class ModestClients:
    """All in this process; each has a connection and an id of its own."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 0, "log_level": 0}
        self._clients = [Producer({**settings, "client.id": f"modest-{number}"}) for number in range(MODEST)]
        self._waits_ms: list[float] = []

    def run(self, seconds: float) -> Figures:
        """Send for so long, and return what the acknowledgements took."""
        self._waits_ms.clear()
        ends_at = time.monotonic() + seconds
        due = [time.monotonic() + PERIOD_S * number / MODEST for number in range(MODEST)]
        while (now := time.monotonic()) < ends_at:
            for number, client in enumerate(self._clients):
                if now >= due[number]:
                    due[number] = now + PERIOD_S
                    client.produce(TOPIC, bytes(100), on_delivery=self._noting(now))
                client.poll(0)
            time.sleep(0.0005)
        for client in self._clients:
            client.flush(PATIENCE_S)
        waits = sorted(self._waits_ms)
        return {
            "modest: median wait, ms": statistics.median(waits),
            "modest: 99 %, ms": waits[int(len(waits) * 0.99)],
            "modest: longest, ms": waits[-1],
        }

    def _noting(self, began: float):  # type: ignore[no-untyped-def]  # librdkafka's callback
        def note(error: object, message: object) -> None:
            if error is not None:
                raise RuntimeError(f"a record of a modest client is lost: {error}")
            self._waits_ms.append((time.monotonic() - began) * 1e3)

        return note


@contextmanager
def greedy_client(bootstrap: str) -> Iterator[subprocess.Popen[str]]:
    """Run one until the end."""
    command = [sys.executable, "-m", "bench.quotas", bootstrap]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


def bytes_in(admin: Admin) -> int:
    """What the greedy client has written so far."""
    ((_, found),) = admin.list_offsets({(GREEDY_TOPIC, 0): -1}).items()
    return int(found.offset) * 1000


def measure(kind: type[System], scale: float) -> dict[str, Figures]:
    """Measure one system."""
    seconds = max(3.0, RUN_S * scale)
    rows: dict[str, Figures] = {}
    with kind() as system, Admin(system.bootstrap) as admin:
        librdkafka = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
        for future in librdkafka.create_topics([NewTopic(TOPIC, 1, 1), NewTopic(GREEDY_TOPIC, 1, 1)]).values():
            future.result(PATIENCE_S)
        modest = ModestClients(system.bootstrap)
        modest.run(2.0)
        rows["ten modest clients alone"] = modest.run(seconds)
        for name, limits in (
            ("beside a greedy one without a limit", dict.fromkeys(KEYS)),
            (f"beside a greedy one with {LIMIT / 1e6:g} MB/s", {KEYS[0]: float(LIMIT)}),
            ("beside a greedy one with 10 % of the request time", {KEYS[0]: None, KEYS[1]: 10.0}),
        ):
            admin.alter_client_quotas({"client-id": GREEDY}, limits)
            with greedy_client(system.bootstrap):
                modest.run(2.0)  # until the limit has its effect
                before, began = bytes_in(admin), time.monotonic()
                rows[name] = modest.run(seconds)
                rows[name]["greedy: MB/s"] = (bytes_in(admin) - before) / (time.monotonic() - began) / 1e6
    return rows


def be_greedy(bootstrap: str) -> None:
    """Produce records of 1 KB until this process is ended."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": GREEDY,
            "acks": "1",
            "linger.ms": 5,
            "batch.size": 100_000,
            "queue.buffering.max.kbytes": 16_384,
            "message.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    value = bytes(1000 - 70)
    print("begun", flush=True)
    while True:
        try:
            producer.produce(GREEDY_TOPIC, value)
        except BufferError:
            producer.poll(0.01)


if __name__ == "__main__":
    be_greedy(sys.argv[1])
