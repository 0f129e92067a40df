"""Clusters whose brokers are Apache Kafka's or ours, each free to become the other, with load from a Java producer."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from kbroker import Admin
from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.protocol.errors import ErrorCode
from tests.faults.cluster_view import BROKERS, TIMEOUT, ClusterView, until
from tests.fixtures.brokers import kill_and_expire
from tests.fixtures.java import compiled
from tests.fixtures.kafka import KAFKA, JavaBroker
from tests.system.writers import Bootstrap, Writer

START_TIMEOUT = 60.0
STOP_TIMEOUT = 60.0
JAVA_WRITER_TIMEOUT = 120.0
PROPERTIES = {
    "zookeeper.session.timeout.ms": "12000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "3000",
    "controlled.shutdown.retry.backoff.ms": "300",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.segment.bytes": "250000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
}


class MixedCluster(ClusterView):
    """Brokers 1 to 3 of either kind; a broker keeps its id, port and directory when it becomes the other kind."""

    def __init__(self, folder: Path, connect_string: str, class_path: str) -> None:
        super().__init__(connect_string)
        self.folder = folder
        self.class_path = class_path
        self.ports = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
        self.properties = {"zookeeper.connect": connect_string, **PROPERTIES}

    def start(self, kinds: Mapping[int, str]) -> MixedCluster:
        """Start the first broker, which is the controller, then the others; returns when all serve."""
        first, *others = kinds
        self.start_broker(first, kinds[first])
        for broker in [self.start_broker(each, kinds[each], wait=False) for each in others]:
            broker.wait_until_ready(START_TIMEOUT)
        self.kazoo.start(timeout=START_TIMEOUT)
        return self

    def start_broker(self, broker_id: int, kind: str, *, wait: bool = True) -> BrokerProcess:
        """Start a broker as one of that kind, on what it has kept, and wait until it serves."""
        assert broker_id not in self.brokers or not self.brokers[broker_id].is_running
        properties = self.properties_of(broker_id)
        arguments = broker_id, self.folder / f"broker-{broker_id}", self.ports[broker_id], properties
        broker = JavaBroker(*arguments, self.class_path) if kind == KAFKA else BrokerProcess(*arguments)
        self.brokers[broker_id] = broker
        broker.start()
        return broker.wait_until_ready(START_TIMEOUT) if wait else broker

    def properties_of(self, broker_id: int) -> Mapping[str, str]:
        """What a broker is set to when it starts next."""
        return self.properties

    def kill(self, broker_id: int) -> None:
        """End a broker at once, and its session."""
        kill_and_expire(self.brokers[broker_id])

    def become(self, broker_id: int, kind: str) -> None:
        """Stop a broker in order, and let one of the other kind take its place."""
        self.brokers[broker_id].stop(STOP_TIMEOUT)
        self.start_broker(broker_id, kind)

    @property
    def running_bootstrap(self) -> str:
        """`host:port,…` of the brokers that run."""
        return ",".join(broker.bootstrap for broker in self.brokers.values() if broker.is_running)

    def balance(self, topic: str) -> None:
        """Let the preferred replicas lead."""
        with Admin(self.running_bootstrap) as admin:
            errors = admin.elect_leaders([(topic, partition) for partition in self.partitions(topic)])
        needed = {key: error for key, error in errors.items() if error and error.code != ErrorCode.ELECTION_NOT_NEEDED}
        assert not needed, needed

    def until_controller(self, broker_id: int) -> None:
        """Make a broker the controller: the node is taken from others until the wanted one has it."""

        def holds() -> bool:
            holder = self.controller()
            if holder not in (broker_id, -1):
                self.kazoo.delete("/controller")
            return holder == broker_id

        until(holds, f"broker {broker_id} does not become controller", 2 * TIMEOUT)

    def close(self) -> None:
        """End everything at once."""
        for broker in self.brokers.values():
            broker.kill()
        self.kazoo.stop()
        self.kazoo.close()


class JavaWriter(Writer):
    """Kafka's own producer, idempotent, with acks=all: Load.java in a JVM of its own."""

    name = "java"
    class_path: ClassVar[str] = ""
    """Set by the fixture that knows where Kafka's jars are."""

    def __init__(self, broker: Bootstrap, topic: str, partitions: int) -> None:
        super().__init__(broker, topic, partitions)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> JavaWriter:
        """Return once it writes: on a busy machine a JVM takes its time to compile and start."""
        super().__enter__()
        until(lambda: self.acknowledged or self.errors, "the Java producer does not write", JAVA_WRITER_TIMEOUT)
        return self

    def finish(self, timeout: float) -> None:
        """Send no more, and wait for what is on its way."""
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        self._thread.join(timeout)
        if self._thread.is_alive() and process is not None:
            process.kill()
            self._thread.join(TIMEOUT)

    def _write(self) -> None:
        program = compiled(Path(__file__).with_name("Load.java"), self.class_path)
        command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *program]
        command += [self.broker.bootstrap, self.topic, str(self.partitions), self.name]
        command += [str(int(self.pause_s * 1000))]
        log4j = Path(self.class_path).parent / "log4j.properties"
        command.insert(1, f"-Dlog4j.configuration={log4j.as_uri()}")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            self._process = process
            assert process.stdout is not None
            for line in process.stdout:
                self._take(line.split())
        if process.returncode:
            self.errors.append(f"the Java producer ended with {process.returncode}")

    def _take(self, words: list[str]) -> None:
        what, number = words[0], int(words[1])
        if what == "sent":
            self.sent = number + 1
        elif what == "acknowledged":
            self.acknowledged[number] = int(words[2]), int(words[3])
        else:
            self.errors.append(" ".join(words[1:]))
