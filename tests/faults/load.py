"""Writers and a reader at work while something breaks; at the end they and all replicas are held to the promises."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from kbroker import Consumer
from tests.faults.checker import Account, Place, check_history
from tests.faults.cluster_view import TIMEOUT, ClusterView
from tests.system.wire import read_all
from tests.system.writers import UNKNOWN_OFFSET, ConfluentWriter, OurWriter, Writer

FINISH_S = 90.0
REQUEST_TIMEOUT_MS = 3000
"""A broker that hangs is given up sooner than by default."""


class OurPatientWriter(OurWriter):
    options: Mapping[str, Any] = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "delivery_timeout_ms": 120_000}


class ConfluentPatientWriter(ConfluentWriter):
    options: Mapping[str, Any] = {
        "request.timeout.ms": REQUEST_TIMEOUT_MS,
        "socket.timeout.ms": REQUEST_TIMEOUT_MS,
        "message.timeout.ms": 120_000,
        "topic.metadata.refresh.interval.ms": 2000,
    }


class Reader:
    """Reads everything as it comes, and remembers: what a consumer has seen must never be gone."""

    def __init__(self, cluster: ClusterView, topic: str, partitions: int) -> None:
        self.seen: dict[Place, bytes] = {}
        self.errors: list[str] = []
        self._cluster = cluster
        self._keys = [(topic, partition) for partition in range(partitions)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def finish(self, acknowledged: Iterable[Place]) -> None:
        """Read on until all that was acknowledged is seen, then no more; what never comes is an error."""
        missing = set(acknowledged)
        deadline = time.monotonic() + TIMEOUT
        while (missing := {place for place in missing if place not in self.seen}) and self._thread.is_alive():
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if missing:
            self.errors.append(f"{len(missing)} acknowledged records were never seen, the first is {min(missing)}")
        self.stop()

    def stop(self) -> None:
        """Read no more."""
        self._stop.set()
        self._thread.join(TIMEOUT)
        if self._thread.is_alive():
            self.errors.append("the reader does not end")

    def _run(self) -> None:
        try:
            options: dict[str, Any] = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "auto_offset_reset": "none"}
            with Consumer(self._cluster.bootstrap, **options) as consumer:
                consumer.assign(self._keys)
                expected = dict.fromkeys(range(len(self._keys)), 0)
                for partition in expected:
                    consumer.seek(self._keys[partition], 0)
                while not self._stop.is_set():
                    for record in consumer.poll(0.2):
                        if record.offset != expected[record.partition]:
                            self.errors.append(
                                f"{record.partition}: {record.offset} after {expected[record.partition]}"
                            )
                        expected[record.partition] = record.offset + 1
                        self.seen[record.partition, record.offset] = bytes(record.value or b"")
        except BaseException as error:
            self.errors.append(repr(error))


class Load:
    """Writers and a reader on one topic of the cluster; a context manager."""

    def __init__(
        self,
        cluster: ClusterView,
        topic: str,
        writers: tuple[type[Writer], ...] = (OurPatientWriter, ConfluentPatientWriter),
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.partitions = len(cluster.partitions(topic))
        self.writers = [kind(cluster, topic, self.partitions) for kind in writers]
        for number, writer in enumerate(self.writers):
            writer.name = f"{writer.name}-{number}"

    def __enter__(self) -> Load:
        self.reader = Reader(self.cluster, self.topic, self.partitions)
        for writer in self.writers:
            writer.__enter__()
        self.until_progress()
        self.cluster.wait_for_traffic = self.until_on_its_way
        return self

    def __exit__(self, *exception: object) -> None:
        self.cluster.wait_for_traffic = lambda: None
        for writer in self.writers:
            writer.finish(FINISH_S if exception[0] is None else 1)
        self.reader.stop()

    def acknowledged(self) -> int:
        """How many records are acknowledged to all writers together."""
        return sum(len(writer.acknowledged) for writer in self.writers)

    def until_progress(self) -> None:
        """Wait until every writer has something acknowledged that it had not before, in every partition."""
        for partition in range(self.partitions):
            self._until_acknowledged(partition)

    def until_on_its_way(self) -> None:
        """Wait until every writer has something on its way, or, where brokers are too quick for that, a moment."""
        deadline = time.monotonic() + 1
        while not all(writer.sent > len(writer.acknowledged) for writer in self.writers):
            if time.monotonic() > deadline:
                break
            time.sleep(0.001)

    def _until_acknowledged(self, partition: int) -> None:
        """Something that is sent after this moment to one partition has arrived."""
        deadline = time.monotonic() + TIMEOUT
        for writer in self.writers:
            first = writer.sent
            while not any(
                number % self.partitions == partition and number in writer.acknowledged
                for number in range(first, writer.sent)
            ):
                assert time.monotonic() < deadline, (writer.name, partition, writer.errors[-5:])
                time.sleep(0.02)

    def finish_and_check(self) -> None:
        """Stop, read everything back, compare the replicas: all promises kept."""
        self.cluster.until_whole(self.topic)
        for writer in self.writers:
            writer.finish(FINISH_S)
            assert not writer.errors, (writer.name, writer.errors[:10])
        places = (place for writer in self.writers for place in writer.acknowledged.values())
        self.reader.finish(place for place in places if place[1] != UNKNOWN_OFFSET)
        assert not self.reader.errors, self.reader.errors[:10]
        stored = {p: read_all(self.cluster.leader(self.topic, p), self.topic, p) for p in range(self.partitions)}
        accounts = [
            Account(
                writer.name,
                {number: number % self.partitions for number in range(writer.sent)},
                dict(writer.acknowledged),
                is_idempotent=writer.is_idempotent,
            )
            for writer in self.writers
        ]
        assert not (problems := check_history(accounts, stored, self.reader.seen)), "\n".join(problems)
        self.cluster.until_identical(self.topic)
        for broker in self.cluster.brokers.values():
            assert "Traceback" not in broker.log_tail(100_000), broker.log_tail(100_000)
