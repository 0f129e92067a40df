"""kbroker's own clients as those of workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kbroker.client.blocking import Admin, Consumer, Producer
from kbroker.client.errors import ClientError
from kbroker.client.group.listener import RebalanceListener
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import KafkaError
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

MOST_RECORDS = 500
T = TypeVar("T")
_FAILURES = (ClientError, KafkaError, OSError)


class OwnSender:
    """A producer."""

    def __init__(
        self, bootstrap: str, settings: Mapping[str, Any], transactional_id: str | None, limits: Limits
    ) -> None:
        self._limits = limits
        own: dict[str, Any] = {
            "acks": "all",
            "linger_ms": 2,
            "delivery_timeout_ms": int(limits.delivery * 1000),
            "request_timeout_ms": int(limits.request * 1000),
            "max_block_ms": int(limits.delivery * 1000),
            **settings,
        }
        if transactional_id is not None:
            own["transactional_id"] = transactional_id
            own["transaction_timeout_ms"] = int(limits.transaction * 1000)
        self._producer = Producer(bootstrap, **own)

    def send(self, records: Sequence[Outgoing]) -> list[Outcome]:
        """Send records in their order, and wait for what becomes of each."""
        waiting: list[Any] = []
        for record in records:
            topic, partition = split_key(record.key)
            record_key = None if record.record_key is None else str(record.record_key).encode()
            try:
                waiting.append(self._producer.send(topic, str(record.value).encode(), record_key, partition=partition))
            except _FAILURES as error:
                waiting.append(Outcome(error=str(error), is_definite=True))
        return [each if isinstance(each, Outcome) else self._outcome(each) for each in waiting]

    def begin(self) -> None:
        """Begin a transaction."""
        try:
            self._producer.begin()
        except _FAILURES as error:
            raise ClientProblem(str(error), is_definite=True) from error

    def commit(self) -> None:
        """Commit it."""
        try:
            self._producer.commit()
        except _FAILURES as error:
            raise ClientProblem(str(error)) from error

    def abort(self) -> None:
        """Abort it."""
        try:
            self._producer.abort()
        except _FAILURES as error:
            raise ClientProblem(str(error), is_definite=True) from error

    def crash(self) -> None:
        """Go without waiting for what is not acknowledged."""
        with suppress(*_FAILURES):
            self._producer.close(0)

    def _outcome(self, delivery: Any) -> Outcome:
        try:
            metadata = delivery.result(self._limits.delivery + self._limits.request)
        except _FAILURES as error:
            return Outcome(error=str(error) or type(error).__name__)
        offset = metadata.offset
        return Outcome(offset if offset is not None and offset >= 0 else None)


class OwnReader:
    """A consumer."""

    def __init__(self, bootstrap: str, settings: Mapping[str, Any], group: str | None, limits: Limits) -> None:
        self._bootstrap = bootstrap
        self._settings: dict[str, Any] = {
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "request_timeout_ms": int(2 * limits.request * 1000),
            **settings,
        }
        self._consumer = Consumer(bootstrap, **self._settings, group_id=group)
        self._changed: set[str] = set()

    def assign(self, positions: Mapping[str, int | None]) -> None:
        """Read these keys, each from an offset, or from its beginning."""
        try:
            self._consumer.assign([split_key(key) for key in positions])
            for key, offset in positions.items():
                self._consumer.seek(split_key(key), offset or 0)
        except _FAILURES as error:
            raise ClientProblem(str(error)) from error

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read what the group gives out."""
        try:
            self._consumer.subscribe(topics, listener=_Listener(self._changed))
        except _FAILURES as error:
            raise ClientProblem(str(error)) from error

    def poll(self, seconds: float) -> list[Incoming]:
        """Records, in the order of each key."""
        try:
            records = self._consumer.poll(seconds, MOST_RECORDS)
        except _FAILURES as error:
            raise ClientProblem(str(error)) from error
        return [Incoming(f"{each.topic}:{each.partition}", each.offset, each.value, each.key) for each in records]

    def rebalances(self) -> list[str]:
        """Keys that were given or taken since the last call."""
        found = sorted(self._changed)
        self._changed.clear()
        return found

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit offsets, and wait for the answer."""
        try:
            self._consumer.commit({split_key(key): offset for key, offset in offsets.items()})
        except _FAILURES as error:
            raise ClientProblem(str(error), ends_process=False) from error

    def committed(self, keys: Sequence[str]) -> dict[str, int]:
        """The group's committed offsets."""
        try:
            found = self._consumer.committed([split_key(key) for key in keys])
        except _FAILURES as error:
            raise ClientProblem(str(error)) from error
        return {f"{at.topic}:{at.partition}": -1 if each is None else each.offset for at, each in found.items()}

    def ends(self, keys: Sequence[str]) -> dict[str, int]:
        """High watermarks, asked for by a consumer that would read all."""
        try:
            with Consumer(self._bootstrap, **{**self._settings, "isolation_level": "read_uncommitted"}) as other:
                found = other.end_offsets([TopicPartition(*split_key(key)) for key in keys])
        except _FAILURES as error:
            raise ClientProblem(str(error)) from error
        return {f"{at.topic}:{at.partition}": offset for at, offset in found.items()}

    def stable_ends(self, keys: Sequence[str]) -> dict[str, int]:
        """Where each key ends for readers of committed records."""
        try:
            found = self._consumer.end_offsets([TopicPartition(*split_key(key)) for key in keys])
        except _FAILURES as error:
            raise ClientProblem(str(error)) from error
        return {f"{at.topic}:{at.partition}": offset for at, offset in found.items()}

    def reached(self) -> Mapping[str, int]:
        """Up to which offset each key has been read."""
        return {f"{at.topic}:{at.partition}": offset for at, offset in self._consumer.positions.items()}

    def crash(self) -> None:
        """Go."""
        with suppress(*_FAILURES):
            self._consumer.close()


class _Listener(RebalanceListener):
    """Notes what changes hands."""

    def __init__(self, changed: set[str]) -> None:
        self._changed = changed

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are given."""
        self._changed.update(f"{each.topic}:{each.partition}" for each in partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are taken."""
        self._changed.update(f"{each.topic}:{each.partition}" for each in partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions have been taken."""
        self._changed.update(f"{each.topic}:{each.partition}" for each in partitions)


class OwnLibrary:
    """kbroker.client."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str], limits: Limits = UNDER_FAULTS) -> None:
        self._bootstrap = bootstrap
        self._limits = limits
        self._settings = dict(settings)
        self._admin_settings: dict[str, Any] = {"request_timeout_ms": int(limits.request * 1000), **settings}

    def sender(self, transactional_id: str | None = None) -> Sender:
        """A new producer."""
        return _made(lambda: OwnSender(self._bootstrap, self._settings, transactional_id, self._limits))

    def reader(self, group: str | None = None) -> Reader:
        """A new consumer."""
        return _made(lambda: OwnReader(self._bootstrap, self._settings, group, self._limits))

    def create_topic(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        """Create a topic."""
        self._with_admin(
            lambda admin: admin.create_topic(name, partitions=partitions, replication_factor=replicas, configs=config)
        )

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics."""
        for name in names:
            self._with_admin(lambda admin, name=name: admin.delete_topic(name))

    def topics(self) -> dict[str, int]:
        """All topics and their number of partitions."""
        found = self._with_admin(lambda admin: admin.describe_topics())
        return {name: len(topic.partitions) for name, topic in found.items()}

    def brokers(self) -> int:
        """How many brokers there are."""
        return len(self._with_admin(lambda admin: admin.describe_cluster()).brokers)

    def _with_admin(self, work: Any) -> Any:
        try:
            with Admin(self._bootstrap, **self._admin_settings) as admin:
                return work(admin)
        except _FAILURES as error:
            raise ClientProblem(str(error), ends_process=False) from error


def _made(make: Callable[[], T]) -> T:
    try:
        return make()
    except _FAILURES as error:
        raise ClientProblem(str(error), is_definite=True) from error
