"""A disk that is full, or fails, at one kind of file of a real broker: it stops, and is back with all it acknowledged.

One broker with one log directory: as Kafka's it ends when its last directory is offline. Clients of every kind go on
meanwhile: idempotent and transactional producers, committed offsets.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pytest

from kbroker import Admin, Consumer, KafkaError, Producer, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.faults.cluster_view import TIMEOUT, until
from tests.faults.forgetful_disk import Failing, PowerSupply
from tests.fixtures.brokers import START_TIMEOUT, MakeBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROPERTIES = {
    "log.segment.bytes": "5000",
    "log.index.interval.bytes": "300",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.flush.interval.messages": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "min.insync.replicas": "1",
}
FULL = 1_000_000
PATIENCE_MS = 60_000


class Clients:
    """Threads that write, until the block ends, and know what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.plain = self.committed = self.group_offset = 0
        """How many there are for certain; the values are 1, 2, 3… in order."""
        self.unknown: set[int] = set()
        """Transactions of which nobody was told how they ended."""
        self.aborted: set[int] = set()
        self._stopped = threading.Event()
        self._problems: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (self._write, self._write_transactions, self._commit_offsets)
        ]

    def __enter__(self) -> Clients:
        for each in self._threads:
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        for each in self._threads:
            each.join(TIMEOUT)
        assert not any(each.is_alive() for each in self._threads)
        assert not self._problems, self._problems

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._problems.append(error)

    def _write(self) -> None:
        with Producer(self.bootstrap, acks="all", delivery_timeout_ms=PATIENCE_MS) as producer:
            while not self._stopped.is_set():
                producer.send(self.topic, b"%d" % (self.plain + 1), partition=0).result(TIMEOUT)
                self.plain += 1

    def _write_transactions(self) -> None:
        number = 0
        while not self._stopped.is_set():
            with (
                contextlib.suppress(KafkaError, OSError, TimeoutError),
                Producer(self.bootstrap, transactional_id=self.topic, delivery_timeout_ms=PATIENCE_MS) as producer,
            ):
                while not self._stopped.is_set():
                    number += 1
                    self.unknown.add(number)
                    with producer.transaction():
                        for partition in (1, 2):
                            producer.send(self.topic, b"%d" % number, partition=partition)
                    self.unknown.discard(number)
                    self.committed += 1

    def _commit_offsets(self) -> None:
        place = TopicPartition(self.topic, 0)
        with Admin(self.bootstrap) as admin:
            while not self._stopped.is_set():
                wanted = self.group_offset + 1
                with contextlib.suppress(KafkaError, OSError, TimeoutError):
                    admin.alter_group_offsets(self.topic, {place: wanted})
                    self.group_offset = wanted

    def counts(self) -> tuple[int, int, int]:
        """What each has achieved."""
        return self.plain, self.committed, self.group_offset

    def until_progress(self) -> None:
        """All three get on."""
        before = self.counts()
        until(lambda: all(now > then + 1 for now, then in zip(self.counts(), before, strict=True)), "progress")


def values(bootstrap: str, topic: str, partition: int) -> list[int]:
    """What a consumer of committed records reads, to the end."""
    place = TopicPartition(topic, partition)
    with Admin(bootstrap) as admin:

        def end_of(read_committed: bool) -> int:
            return admin.list_offsets([place], read_committed=read_committed)[place].offset

        until(lambda: end_of(True) == end_of(False), "every transaction has its marker")
        end = end_of(True)
    found: list[int] = []
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)

        def is_read() -> bool:
            found.extend(int(record.value or b"") for record in consumer.poll(timeout=0.5))
            return consumer.position(place) >= end

        until(is_read, "all is read")
    return found


@pytest.fixture
def broker_on(make_broker: MakeBroker, library: Path, tmp_path: Path) -> Callable[[Failing], BrokerProcess]:
    """A factory of a broker whose calls fail as told."""

    def make(failing: Failing) -> BrokerProcess:
        supply = PowerSupply(library, tmp_path / "disk", tmp_path / "journals")
        properties = {**PROPERTIES, "log.dirs": str(supply.folder)}
        return make_broker(1, properties=properties, launcher=supply.launcher(failing))

    return make


FAULTS = [
    Failing(150, ".log", FULL, errno.ENOSPC),
    Failing(12, ".index", 1, errno.EIO),
    Failing(4, ".snapshot", 1, errno.EIO),
    Failing(60, "replication-offset-checkpoint", FULL, errno.ENOSPC),
    Failing(41, "__transaction_state-0/", FULL, errno.ENOSPC),
    Failing(30, "__consumer_offsets-0/", 1, errno.EIO),
]
MORE_FAULTS = [  # of `make soak`
    Failing(9, ".timeindex", FULL, errno.ENOSPC),
    Failing(8, "recovery-point-offset-checkpoint", 1, errno.EIO),
    Failing(12, "leader-epoch-checkpoint", 1, errno.ENOSPC),
    *(Failing(first, "__transaction_state-0/", 1, errno.EIO) for first in range(30, 45)),
]


@pytest.mark.parametrize(
    "failing",
    FAULTS + (MORE_FAULTS if os.environ.get("KBROKER_SOAK_MINUTES") else []),
    ids=lambda failing: f"{failing.name.strip('/.')} {errno.errorcode[failing.code]} {failing.first}",
)
def test_a_broker_whose_disk_fails_at_a_file_stops_and_comes_back_with_all_that_it_acknowledged(
    broker_on: Callable[[Failing], BrokerProcess], topic_name: str, failing: Failing
) -> None:
    broker = broker_on(failing)
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=3, replication_factor=1)
    with Clients(broker.bootstrap, topic_name) as clients:
        assert broker.wait(TIMEOUT) == 1, clients.counts()
        assert "offline" in broker.log_tail(1000)
        broker.launcher = []
        broker.start()
        broker.wait_until_ready(START_TIMEOUT)
        clients.until_progress()
    assert values(broker.bootstrap, topic_name, 0) == list(range(1, clients.plain + 1))
    both = [values(broker.bootstrap, topic_name, partition) for partition in (1, 2)]
    assert both[0] == both[1] == sorted(set(both[0]))
    assert len(both[0]) >= clients.committed
    assert len(set(both[0]) - clients.unknown) == clients.committed
    with Admin(broker.bootstrap) as admin:
        found = admin.list_group_offsets(topic_name)[TopicPartition(topic_name, 0)].offset
    assert found in (clients.group_offset, clients.group_offset + 1)
    assert "Traceback" not in broker.log_tail(5000)
