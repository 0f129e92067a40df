"""The two systems under measurement, started alike: a ZooKeeper and one broker on loopback ports, data in a folder.

Kafka 3.9.2 comes from Maven Central, or from the script that $KAFKA_ANCHOR names (tests/fixtures/maven.py); where it
cannot be had only kbroker is measured.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Protocol, Self

import psutil

from kbroker.dev.child_process import ChildProcess, start_child
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from kbroker.dev.free_ports import free_ports
from tests.fixtures.java import QUIET_LOGGING
from tests.fixtures.maven import JarsMissing, kafka_jars

HEAP = os.environ.get("KAFKA_HEAP", "-Xmx1g -Xms1g").split()
"""Of a Java broker; by default what its start script takes."""
START_LIMIT_S = 90
STOP_LIMIT_S = 60
# Kafka's defaults, but for what both must share to be comparable.
SETTINGS = {"num.partitions": "1", "zookeeper.session.timeout.ms": "6000", "offsets.topic.num.partitions": "4"}


_done_with: list[Path] = []


def done_with(folder: Path) -> None:
    """Let a folder be removed by `remove_data`: not at once, for what is measured next would pay.

    For minutes ext4 looks at each inode that was just freed before it makes a new file: after 30,000 files of one
    system are gone, the next one needs six times as long to make its own.
    """
    _done_with.append(folder)


@atexit.register
def remove_data() -> None:
    """Remove all data that is done with: when systems were compared, or at the end."""
    while _done_with:
        shutil.rmtree(_done_with.pop(), ignore_errors=True)


def kafka_is_there() -> bool:
    """Return whether a real Kafka can be started here."""
    try:
        kafka_jars()
    except JarsMissing:
        return False
    return True


def metadata_answers(port: int) -> bool:
    """Return whether a Metadata v1 request (for no topic) is answered with at least one broker."""
    body = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            connection.settimeout(2)
            head = connection.recv(12)
            return len(head) == 12 and struct.unpack(">iii", head)[2] > 0
    except OSError:
        return False


class Unfinished(Exception):
    """Measuring a system ended before all was measured: what there is."""

    def __init__(self, rows: dict[str, dict[str, float]]) -> None:
        super().__init__(f"{len(rows)} rows were measured")
        self.rows = rows


class Measured(Protocol):
    """One broker or several, under load."""

    @property
    def bootstrap(self) -> str:
        """Return the addresses for clients."""

    def cpu_seconds(self) -> float:
        """Return the CPU seconds used so far (user and system)."""


class System:
    """One broker with its ZooKeeper; a context manager."""

    name = ""

    def __init__(
        self,
        settings: dict[str, str] | None = None,
        environment: dict[str, str] | None = None,
        broker_id: int = 1,
        zookeeper: EmbeddedZooKeeper | None = None,
    ) -> None:
        self.settings = SETTINGS | (settings or {})
        self.environment = os.environ | (environment or {})
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        (self.port,) = free_ports(1)
        self.log_dir = self.folder / "data"
        self.process: ChildProcess | None = None
        """It ends with the bench, whatever ends that: a broker that nobody measures may be under load all the same."""
        self.start_seconds = 0.0
        self.broker_id = broker_id
        self.zookeeper = zookeeper or EmbeddedZooKeeper(self.folder / "zookeeper")

    @property
    def bootstrap(self) -> str:
        """Return the broker's address."""
        return f"127.0.0.1:{self.port}"

    @property
    def broker(self) -> psutil.Process:
        """Return the broker's process."""
        assert self.process is not None, f"{self.name} is not running"
        return psutil.Process(self.process.pid)

    def __enter__(self) -> Self:
        """Start ZooKeeper, then the broker; measures the broker's start until it answers Metadata."""
        self.zookeeper.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop both; their data is done with."""
        self.stop()
        self.zookeeper.stop()
        done_with(self.folder)

    def command(self, properties: Path) -> list[str]:
        """Return the command line that runs the broker."""
        raise NotImplementedError

    def start(self, limit_s: float = START_LIMIT_S) -> float:
        """Start the broker; returns (and keeps) the seconds until its first metadata answer."""
        properties = self.folder / "server.properties"
        lines = {
            "broker.id": str(self.broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": f"{self.zookeeper.connect_string}/bench",
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.settings,
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        with (self.folder / "broker.log").open("ab") as log:
            began = time.monotonic()
            self.process = start_child(self.command(properties), output=log, environment=self.environment)
        while not metadata_answers(self.port):
            if self.process.poll() is not None or time.monotonic() - began > limit_s:
                tail = (self.folder / "broker.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} did not start within {limit_s:.0f} s:\n{tail}")
            time.sleep(0.002)
        self.start_seconds = time.monotonic() - began
        return self.start_seconds

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the broker (SIGTERM, or SIGKILL for a crash)."""
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(STOP_LIMIT_S)
        self.process = None

    def cpu_seconds(self) -> float:
        """Return the CPU seconds the broker has used so far (user and system)."""
        times = self.broker.cpu_times()
        return float(times.user + times.system)

    def resident_mb(self) -> float:
        """Return the broker's resident memory in MB."""
        return float(self.broker.memory_info().rss / 1e6)


class Kbroker(System):
    """Our broker, run as users run it."""

    name = "kbroker"

    def command(self, properties: Path) -> list[str]:
        """Return the command line that runs the broker."""
        return [sys.executable, "-m", "kbroker.process", str(properties)]


class Kafka(System):
    """Apache Kafka 3.9.2."""

    name = "kafka"

    def command(self, properties: Path) -> list[str]:
        """Return the command line that runs the broker."""
        return ["java", *HEAP, "-XX:+UseG1GC", quietly(), "-cp", kafka_jars(), "kafka.Kafka", str(properties)]


def quietly() -> str:
    """Return the option by which Kafka's programs say only what goes wrong."""
    file = Path(tempfile.gettempdir()) / "kbroker-bench-log4j.properties"
    file.write_text(QUIET_LOGGING)
    return f"-Dlog4j.configuration={file.as_uri()}"


def run_java(class_name: str, *arguments: str, limit_s: float = 300, heap: str = "-Xmx512m") -> str:
    """Run one of Kafka's classes (or a single-file Java source); returns what it printed."""
    command = ["java", heap, quietly(), "-cp", kafka_jars(), class_name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode:
        raise RuntimeError(f"{class_name} ended with {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout


def systems() -> list[type[System]]:
    """Return what can be measured here: kbroker, and Kafka where it can be started."""
    return [Kafka, Kbroker] if kafka_is_there() else [Kbroker]
