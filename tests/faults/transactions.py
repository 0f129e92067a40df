"""Transactional producers that write while a test breaks things, and what must be true of it in the end.

Each transaction writes one record to every partition. Committed: all of them are read under read_committed, once;
aborted: none is; if the producer could not learn which: all or none.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from types import TracebackType

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

import kbroker
from kbroker import Admin
from tests.faults.cluster_view import TIMEOUT, until

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
CALL_S = 5.0
SHARE_ABORTED = 0.3


class TransactionalWriter:
    """librdkafka's producer in a thread, one transaction after the other; a new one takes over when it is fenced."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str, seed: int) -> None:
        self.name = name
        self.outcomes: dict[str, str] = {}
        self.errors: list[str] = []
        """What went wrong and may."""
        self.unexpected: list[Exception] = []
        self._number = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> TransactionalWriter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.finish()

    def finish(self) -> None:
        """Begin no more transactions, and end the one under way."""
        self._stopped.set()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), f"{self.name} hangs: {self.errors[-3:]}"
        assert not self.unexpected, f"{self.name}: {self.unexpected}"

    def committed(self) -> int:
        """How many commits were acknowledged."""
        return sum(outcome is COMMITTED for outcome in self.outcomes.values())

    def until_progress(self, commits: int = 3) -> None:
        """Wait for some more transactions to be committed."""
        before = self.committed()
        until(lambda: self.committed() >= before + commits, lambda: f"{self.name} does not go on: {self.errors[-3:]}")

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            producer = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": self.name,
                    "socket.timeout.ms": 5_000,
                    "transaction.timeout.ms": 20_000,
                    "log_level": 0,
                }
            )
            try:
                self._patiently(producer.init_transactions)
                while not self._stopped.is_set():
                    number += 1
                    self._one(producer, f"{self.name}-{number}")
            except KafkaException:
                continue  # told in `errors`; the next producer ends what this one left

    def _one(self, producer: Producer, transaction: str) -> None:
        self.outcomes[transaction] = UNKNOWN
        try:
            producer.begin_transaction()
            for partition in range(self._partitions):
                producer.produce(self._topic, transaction, partition=partition)
            if self._random.random() < SHARE_ABORTED:
                producer.flush(self._random.choice((0, CALL_S)))
                self._patiently(producer.abort_transaction)
                self.outcomes[transaction] = ABORTED
                return
            self._patiently(producer.commit_transaction)
            self.outcomes[transaction] = COMMITTED
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._patiently(producer.abort_transaction)
            self.outcomes[transaction] = ABORTED

    def _patiently(self, call: Callable[[float], object]) -> None:
        """Call again until it is done, or cannot be."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                call(CALL_S)
                return
            except KafkaException as error:
                self.errors.append(f"{call}: {error}")
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise


class OurTransactionalWriter(TransactionalWriter):
    """The same with our own producer."""

    def _run(self) -> None:
        while not self._stopped.is_set():
            settings = {"request_timeout_ms": 5_000, "delivery_timeout_ms": 30_000, "transaction_timeout_ms": 20_000}
            with kbroker.Producer(self._bootstrap, transactional_id=self.name, **settings) as producer:
                try:
                    while not self._stopped.is_set():
                        self._number += 1
                        self._one_of_ours(producer, f"{self.name}-{self._number}")
                except kbroker.FencedError as error:
                    self.errors.append(repr(error))
                except Exception as error:
                    self.unexpected.append(error)
                    raise

    def _one_of_ours(self, producer: kbroker.Producer, transaction: str) -> None:
        self._asked_again(producer.begin)
        self.outcomes[transaction] = UNKNOWN
        try:
            for partition in range(self._partitions):
                producer.send(self._topic, transaction.encode(), partition=partition)
            if self._random.random() >= SHARE_ABORTED:
                self._asked_again(producer.commit)
                self.outcomes[transaction] = COMMITTED
                return
            if self._random.random() < 0.5:
                producer.flush()
        except kbroker.AbortableError as error:
            self.errors.append(repr(error))
        self._asked_again(producer.abort)
        self.outcomes[transaction] = ABORTED

    def _asked_again(self, call: Callable[[], object]) -> None:
        """Call again as long as no coordinator answers."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                call()
                return
            except (OSError, kbroker.BrokerError) as error:
                if isinstance(error, kbroker.FencedError | kbroker.AbortableError) or time.monotonic() > deadline:
                    raise
                self.errors.append(repr(error))


class LiveReader:
    """Our own consumer, which reads what is committed while it is being written."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.found: list[tuple[str, int]] = []
        self._bootstrap = bootstrap
        self._keys = [(topic, partition) for partition in range(partitions)]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")

    def __enter__(self) -> LiveReader:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join(TIMEOUT)

    def until_seen(self, expected: list[tuple[str, int]]) -> None:
        """Wait for so many records; they must be the same, in the same order in each partition."""
        until(
            lambda: len(self.found) >= len(expected),
            lambda: f"{len(self.found)} of {len(expected)} records were seen live",
        )
        assert by_partition(self.found) == by_partition(expected)

    def _run(self) -> None:
        settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "request_timeout_ms": 5_000}
        with kbroker.Consumer(self._bootstrap, **settings) as consumer:
            consumer.assign(self._keys)
            while not self._stopped.is_set():
                self.found += [((record.value or b"").decode(), record.partition) for record in consumer.poll(0.2)]


def by_partition(read: Iterable[tuple[str, int]]) -> dict[int, list[str]]:
    """The transactions in each partition, in order."""
    found: dict[int, list[str]] = defaultdict(list)
    for transaction, partition in read:
        found[partition].append(transaction)
    return found


def out_of_order(read: Iterable[tuple[str, int]]) -> list[str]:
    """Where a writer's transactions do not follow each other as it began them."""
    found = []
    for partition, transactions in by_partition(read).items():
        last: dict[str, int] = defaultdict(int)
        for transaction in transactions:
            writer, _, number = transaction.rpartition("-")
            if int(number) <= last[writer]:
                found.append(f"{transaction} comes behind {writer}-{last[writer]} in partition {partition}")
            last[writer] = int(number)
    return found


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[tuple[str, int]]:
    """(transaction, partition) of all records that count, once all is decided."""
    with Admin(bootstrap) as admin:
        keys = [(topic, partition) for partition in range(partitions)]

        def all_decided() -> bool:
            stable, ends = admin.list_offsets(keys, read_committed=True), admin.list_offsets(keys)
            return [each.offset for each in stable.values()] == [each.offset for each in ends.values()]

        until(all_decided, "the last stable offset stands still")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    found: list[tuple[str, int]] = []
    ended: set[int] = set()
    deadline = time.monotonic() + TIMEOUT
    try:
        while len(ended) < partitions:
            assert time.monotonic() < deadline, ended
            message = consumer.poll(0.5)
            if message is None:
                continue
            error, partition = message.error(), message.partition()
            if partition is None:
                continue
            if error is None:
                found.append(((message.value() or b"").decode(), partition))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
    finally:
        consumer.close()
    return found


def problems(outcomes: dict[str, str], read: Iterable[tuple[str, int]], partitions: int) -> list[str]:
    """What is not as it must be."""
    found: list[str] = []
    counts = Counter(read)
    found += [
        f"{transaction} is {count} times in partition {p}" for (transaction, p), count in counts.items() if count > 1
    ]
    by_transaction: dict[str, set[int]] = defaultdict(set)
    for transaction, partition in counts:
        by_transaction[transaction].add(partition)
    for transaction, outcome in outcomes.items():
        there = len(by_transaction.pop(transaction, ()))
        if outcome is COMMITTED and there != partitions:
            found.append(f"{transaction} was committed and is in {there} of {partitions} partitions")
        elif outcome is ABORTED and there:
            found.append(f"{transaction} was aborted and is in {there} partitions")
        elif outcome is UNKNOWN and there not in (0, partitions):
            found.append(f"{transaction} is torn: in {there} of {partitions} partitions")
    found += [f"{transaction} was never written" for transaction in by_transaction]
    return found
