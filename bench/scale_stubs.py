"""A real broker as the controller of brokers that only answer, with a real ZooKeeper: what each thing costs it.

Of each thing that happens: the seconds until the last broker has heard of it, the CPU of the controller's process, how
long a client of that broker waited at worst, and what was sent. Kafka is measured in the same run, where it is there.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bench.large_cluster import Shape
from bench.peers import ask
from bench.systems import System
from kbroker.controller import znodes
from kbroker.controller.znode_operations import Create, failure
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.dev import embedded_zookeeper
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from kbroker.protocol.messages.replication import ControlledShutdownRequest

CONTROLLER_ID = 1000
"""It has no replicas: what it costs to lead and to follow is not measured here."""
QUIET_S = 5.0
POLL_S = 0.25
NODES_AT_ONCE = 1000
PING_S = 0.025
PING = struct.pack("!ihhihs", 11, 18, 0, 1, 1, b"b")  # ApiVersions v0, correlation id 1, client id "b"
SETTINGS = {
    "zookeeper.session.timeout.ms": "18000",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
}


@dataclass(frozen=True, slots=True)
class Story:
    """What one thing that happened cost."""

    name: str
    seconds: float
    cpu_s: float
    longest_wait_ms: float
    requests: dict[str, int]
    most_to_one: int
    megabytes: float
    resident_mb: float
    has_ended: bool = True
    """Else it had not when there was no more time, and the figures are those until then."""


class Pinger:
    """A client that asks for little again and again; how long it waited at worst."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_over = False
        self._longest_s = 0.0
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as connection:
            while not self._is_over:
                began = time.monotonic()
                connection.sendall(PING)
                size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
                connection.recv(size, socket.MSG_WAITALL)
                self._longest_s = max(self._longest_s, time.monotonic() - began)
                time.sleep(PING_S)

    def take_longest_ms(self) -> float:
        """Return the longest wait since the last call."""
        found, self._longest_s = self._longest_s, 0.0
        return found * 1000

    def end(self) -> None:
        """Ask no more."""
        self._is_over = True
        self._thread.join()


class StubbedCluster:
    """ZooKeeper, the stubs in their process, and the system under measurement. A context manager."""

    def __init__(self, kind: type[System], shape: Shape, limit_s: float) -> None:
        self._limit_s = limit_s
        """How long each thing may take."""
        self._flags = embedded_zookeeper.JVM_FLAGS
        embedded_zookeeper.JVM_FLAGS = tuple(each.replace("-Xmx256m", "-Xmx1g") for each in self._flags)  # type: ignore[assignment]
        self._shape = shape
        self.system = kind(SETTINGS, broker_id=CONTROLLER_ID)
        self.zookeeper: EmbeddedZooKeeper = self.system.zookeeper
        self.connect = ""
        self.stories: list[Story] = []

    def __enter__(self) -> StubbedCluster:
        """Brokers first, then what they lead; the controller last."""
        self.zookeeper.start()
        self.connect = f"{self.zookeeper.connect_string}/bench"
        command = [sys.executable, "-m", "bench.stub_brokers", self.connect, str(self._shape.brokers)]
        self._stubs = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._line() == "ready"
        asyncio.run(self._fill())
        return self

    def __exit__(self, *_: object) -> None:
        """End all."""
        self.system.__exit__()
        assert self._stubs.stdin is not None
        self._stubs.stdin.close()
        self._stubs.wait(30)
        embedded_zookeeper.JVM_FLAGS = self._flags

    # --- ZooKeeper and the stubs ---

    async def _fill(self) -> None:
        zookeeper = ZooKeeper(self.connect)
        await zookeeper.connect()
        nodes = iter(self._shape.znodes())
        while portion := list(islice(nodes, NODES_AT_ONCE)):
            wanted = [Create(path, data) for path, data in portion if await _is_wanted(zookeeper, path)]
            failed = failure(await zookeeper.multi(wanted))
            assert failed is None, failed
        await zookeeper.close()

    def delete_controller(self) -> None:
        """Let the controller run for office anew, as an administrator does."""

        async def delete() -> None:
            zookeeper = ZooKeeper(self.connect)
            await zookeeper.connect()
            await zookeeper.delete(znodes.CONTROLLER)
            await zookeeper.close()

        asyncio.run(delete())

    def _line(self) -> str:
        assert self._stubs.stdout is not None
        return self._stubs.stdout.readline().strip()

    def order(self, text: str) -> str:
        """Let the stubs do something; what they say to it."""
        assert self._stubs.stdin is not None
        self._stubs.stdin.write(text + "\n")
        self._stubs.stdin.flush()
        return self._line()

    def stop_in_order(self, broker_id: int) -> None:
        """Ask for a controlled shutdown of a stub."""
        ask(self.system.port, ControlledShutdownRequest(broker_id=broker_id, broker_epoch=-1), 3)

    # --- measuring ---

    def tell(
        self, name: str, happens: Callable[[], object], awaited: Mapping[str, int], *, until_answered: bool = False
    ) -> Story:
        """Let a thing happen, wait until no broker is told of it any more, and note what it cost.

        At least so many requests of the `awaited` kinds come of it, however long that takes.
        `until_answered`: the seconds are those that it takes to happen.
        """
        self.order("reset")
        is_there = self.system.process is not None
        cpu_before = self.system.cpu_seconds() if is_there else 0.0
        pinger = Pinger(self.system.port) if is_there else None
        began = time.time()
        has_ended = True
        try:
            happens()
            answered = time.time()
            self._wait_until_quiet(awaited, began + self._limit_s)
        except (TimeoutError, RuntimeError) as error:
            answered = time.time()
            has_ended = False
            print(f"{self.system.name}, {name}: {error}", file=sys.stderr)
        found = self._report()
        last_at = answered if until_answered or not has_ended else found["last_at"] or answered
        longest_ms = 0.0
        if pinger is not None:
            pinger.end()
            longest_ms = pinger.take_longest_ms()
        story = Story(
            name,
            last_at - began,
            self.system.cpu_seconds() - cpu_before,
            longest_ms,
            {each: found.get(each, 0) for each in ("LeaderAndIsr", "UpdateMetadata", "StopReplica")},
            found["most_to_one"],
            found["bytes"] / 1e6,
            self.system.resident_mb(),
            has_ended,
        )
        self.stories.append(story)
        return story

    def _report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.order("report"))
        return found

    def _wait_until_quiet(self, awaited: Mapping[str, int], latest: float) -> None:
        found: dict[str, Any] = {}
        while time.time() < latest:
            time.sleep(POLL_S)
            found = self._report()
            are_there = all(found.get(kind, 0) >= least for kind, least in awaited.items())
            if are_there and time.time() - found["last_at"] > QUIET_S:
                return
        raise TimeoutError(f"not {dict(awaited)} within {self._limit_s:.0f} s, but {found}")


async def _is_wanted(zookeeper: ZooKeeper, path: str) -> bool:
    """Whether the stubs have not made it yet."""
    return not znodes.BROKER_IDS.startswith(path) or await zookeeper.exists(path) is None


def measure(kind: type[System], shape: Shape, things: Iterable[str] = (), limit_s: float = 300.0) -> list[Story]:
    """A controller's life, with brokers that only answer; `things` chooses of it. It ends with what takes too long."""
    wanted = set(things) or {"start", "take over", "broker", "stop"}
    with StubbedCluster(kind, shape, limit_s) as cluster:
        taken_over = {"LeaderAndIsr": shape.brokers, "UpdateMetadata": 2 * shape.brokers}
        """The brokers, then the partitions: Kafka's controller may be silent for long in between."""

        def tell(thing: str, name: str, happens: Callable[[], object], awaited: Mapping[str, int]) -> None:
            if thing in {"start", *wanted} and (not cluster.stories or cluster.stories[-1].has_ended):
                cluster.tell(name, happens, awaited, until_answered=thing == "stop")

        tell("start", "starts and takes over", lambda: cluster.system.start(limit_s), taken_over)
        tell("take over", "takes over again", cluster.delete_controller, taken_over)
        tell("broker", "a broker dies", lambda: cluster.order("gone 2"), {"UpdateMetadata": shape.brokers - 1})
        tell("broker", "it comes back", lambda: cluster.order("back 2"), {"LeaderAndIsr": 1})
        tell("stop", "controlled shutdown", lambda: cluster.stop_in_order(3), {"LeaderAndIsr": 1})
        return cluster.stories
