"""confluent-kafka (librdkafka) as the client of workloads: one that we did not write."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import admin as confluent_admin

from kbroker.verify.clients import (
    UNDER_FAULTS,
    ClientProblem,
    Incoming,
    Limits,
    Outcome,
    Outgoing,
    Reader,
    Sender,
    split_key,
)

DEFINITE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._INVALID_ARG})
"""Errors of a record that is certainly not written: all others may come of a request that was."""
MOST_RECORDS = 500


def _silent(*_: object) -> None:
    """Errors come where calls fail; librdkafka would print them too."""


class ConfluentSender:
    """A producer."""

    def __init__(
        self, settings: Mapping[str, Any], transactional_id: str | None, limits: Limits = UNDER_FAULTS
    ) -> None:
        self._limits = limits
        own: dict[str, Any] = {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": int(limits.delivery * 1000),
            "error_cb": _silent,
            **settings,
        }
        if transactional_id is not None:
            own["transactional.id"] = transactional_id
            own["transaction.timeout.ms"] = int(limits.transaction * 1000)
            own["message.timeout.ms"] = int(limits.transaction * 900)
        self._producer = Producer(own, logger=_Mute())
        if transactional_id is not None:
            self._until_done(self._producer.init_transactions)

    def send(self, records: Sequence[Outgoing]) -> list[Outcome]:
        """Send records in their order, and wait for what becomes of each."""
        outcomes: list[Outcome | None] = [None] * len(records)
        for number, record in enumerate(records):
            topic, partition = split_key(record.key)
            record_key = None if record.record_key is None else str(record.record_key)

            def delivered(error: Any, message: Any, number: int = number) -> None:
                outcomes[number] = _outcome(error, message)

            try:
                self._producer.produce(topic, str(record.value), record_key, partition=partition, on_delivery=delivered)
            except (BufferError, KafkaException) as error:
                outcomes[number] = Outcome(error=str(error), is_definite=True)
        deadline = time.monotonic() + self._limits.delivery + self._limits.request
        while None in outcomes and time.monotonic() < deadline:
            try:
                self._producer.poll(0.05)
            except KafkaException as error:  # it has given up, and says nothing more of the others
                return [each or Outcome(error=str(error)) for each in outcomes]
        return [each or Outcome(error="no word about it") for each in outcomes]

    def begin(self) -> None:
        """Begin a transaction."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise _problem(error, is_definite=True) from error

    def commit(self) -> None:
        """Commit it; a cluster that says that it must be aborted has not committed it."""
        try:
            self._until_done(self._producer.commit_transaction)
        except ClientProblem as problem:
            if problem.is_definite:
                self.abort()
                problem.ends_process = False
            raise

    def abort(self) -> None:
        """Abort it."""
        self._until_done(self._producer.abort_transaction)

    def crash(self) -> None:
        """Forget what was not sent, and go."""
        self._producer.purge(blocking=False)

    def _until_done(self, call: Any) -> None:
        deadline = time.monotonic() + self._limits.transaction
        while True:
            try:
                call(self._limits.request)
            except KafkaException as error:
                found = error.args[0]
                if found.retriable() and time.monotonic() < deadline:
                    continue
                raise _problem(error, is_definite=found.txn_requires_abort()) from error
            return


class ConfluentReader:
    """A consumer."""

    def __init__(self, settings: Mapping[str, Any], group: str | None, limits: Limits) -> None:
        own: dict[str, Any] = {
            "group.id": group or "kbroker-verify",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "session.timeout.ms": 6000,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 5000,
            "error_cb": _silent,
            **settings,
        }
        self._consumer = Consumer(own, logger=_Mute())
        self._settings, self._limits = own, limits
        self._changed: set[str] = set()
        self._reached: dict[str, int] = {}

    def assign(self, positions: Mapping[str, int | None]) -> None:
        """Read these keys, each from an offset, or from its beginning."""
        self._reached = {}
        wanted = [
            TopicPartition(*split_key(key), OFFSET_BEGINNING if offset is None else offset)
            for key, offset in positions.items()
        ]
        self._call(self._consumer.assign, wanted)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read what the group gives out."""

        def changed(_: object, partitions: list[TopicPartition]) -> None:
            self._changed.update(f"{each.topic}:{each.partition}" for each in partitions)

        self._consumer.subscribe(list(topics), on_assign=changed, on_revoke=changed, on_lost=changed)

    def poll(self, seconds: float) -> list[Incoming]:
        """Records, in the order of each key."""
        found: list[Incoming] = []
        for message in self._call(self._consumer.consume, MOST_RECORDS, seconds):
            error = message.error()
            if error is None:
                key = f"{message.topic()}:{message.partition()}"
                self._reached[key] = message.offset() + 1
                found.append(Incoming(key, message.offset(), message.value(), message.key()))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reached[f"{message.topic()}:{message.partition()}"] = message.offset()
            elif error.fatal():
                raise ClientProblem(str(error))
        return found

    def rebalances(self) -> list[str]:
        """Keys that were given or taken since the last call."""
        found = sorted(self._changed)
        self._changed.clear()
        return found

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit offsets, and wait for the answer."""
        wanted = [TopicPartition(*split_key(key), offset) for key, offset in offsets.items()]
        try:
            answers = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            refused = error.args[0].code() in (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID)
            raise _problem(error, is_definite=refused, ends_process=not refused) from error
        for answer in answers or ():
            if answer.error is not None:
                raise ClientProblem(str(answer.error))

    def committed(self, keys: Sequence[str]) -> dict[str, int]:
        """The group's committed offsets."""
        found = self._call(
            self._consumer.committed, [TopicPartition(*split_key(key)) for key in keys], self._limits.request
        )
        for each in found:
            if each.error is not None:
                raise ClientProblem(str(each.error))
        return {f"{each.topic}:{each.partition}": max(each.offset, -1) for each in found}

    def ends(self, keys: Sequence[str]) -> dict[str, int]:
        """High watermarks, asked for by a consumer that would read all."""
        other = Consumer({**self._settings, "isolation.level": "read_uncommitted"}, logger=_Mute())
        try:
            return {
                key: self._call(other.get_watermark_offsets, TopicPartition(*split_key(key)), self._limits.request)[1]
                for key in keys
            }
        finally:
            other.close()

    def stable_ends(self, keys: Sequence[str]) -> dict[str, int]:
        """Where each key ends for readers of committed records."""
        return {
            key: self._call(
                self._consumer.get_watermark_offsets, TopicPartition(*split_key(key)), self._limits.request
            )[1]
            for key in keys
        }

    def reached(self) -> Mapping[str, int]:
        """Up to which offset each key has been read."""
        return self._reached

    def crash(self) -> None:
        """librdkafka cannot but leave the group politely; an assigned consumer has nothing to say."""
        self._consumer.close()

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except KafkaException as error:
            raise _problem(error) from error
        except RuntimeError as error:
            raise ClientProblem(str(error)) from error


class ConfluentLibrary:
    """confluent-kafka."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str], limits: Limits = UNDER_FAULTS) -> None:
        self._limits = limits
        self._settings: dict[str, Any] = {"bootstrap.servers": bootstrap, **settings}
        self._admin = confluent_admin.AdminClient(_silenced(self._settings), logger=_Mute())

    def sender(self, transactional_id: str | None = None) -> Sender:
        """A new producer."""
        return ConfluentSender(self._settings, transactional_id, self._limits)

    def reader(self, group: str | None = None) -> Reader:
        """A new consumer."""
        return ConfluentReader(self._settings, group, self._limits)

    def create_topic(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        """Create a topic."""
        topic = confluent_admin.NewTopic(name, partitions, replicas, config=dict(config))
        self._wait(self._admin.create_topics([topic], request_timeout=self._limits.request))

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics."""
        self._wait(self._admin.delete_topics(list(names), request_timeout=self._limits.request))

    def topics(self) -> dict[str, int]:
        """All topics and their number of partitions."""
        return {name: len(topic.partitions) for name, topic in self._metadata().topics.items() if topic.error is None}

    def brokers(self) -> int:
        """How many brokers there are."""
        return len(self._metadata().brokers)

    def _metadata(self) -> Any:
        try:
            return self._admin.list_topics(timeout=self._limits.request)
        except KafkaException as error:
            raise _problem(error) from error

    def _wait(self, futures: Mapping[str, Any]) -> None:
        for future in futures.values():
            try:
                future.result(2 * self._limits.request)
            except KafkaException as error:
                raise _problem(error, ends_process=False) from error
            except TimeoutError as error:
                raise ClientProblem("nobody answered in time", ends_process=False) from error


class _Mute:
    """A logger that says nothing."""

    def log(self, *_: object) -> None:
        """Say nothing."""


def _silenced(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, "error_cb": _silent}


def _outcome(error: Any, message: Any) -> Outcome:
    if error is not None:
        return Outcome(error=str(error), is_definite=error.code() in DEFINITE)
    offset = message.offset()
    return Outcome(offset if offset is not None and offset >= 0 else None)


def _problem(error: KafkaException, *, is_definite: bool = False, ends_process: bool = True) -> ClientProblem:
    return ClientProblem(str(error.args[0]), is_definite=is_definite, ends_process=ends_process)
