"""Who leads which partition and what it holds, asked without an event loop; connections are kept for the next one.

    cluster = BlockingCluster("127.0.0.1:9092")
    cluster.partitions(["flights"])                     {("flights", 0), …}
    cluster.offsets([("flights", 0)], EARLIEST)         {("flights", 0): 17}

Not for several threads at once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any

from kbroker.client.blocking_connection import BlockingConnection
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import NEW_TOPIC_S
from kbroker.client.errors import error_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offsets import ListOffsetsRequest
from protocol.records.buffers import BufferPool

LATEST = -1
EARLIEST = -2
NO_DEBUG_REPLICA = -1
BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 1.0

TopicPartition = tuple[str, int]


class BlockingCluster:
    """Addresses of the brokers, leaders of the partitions, a connection to each broker that was asked."""

    def __init__(
        self, bootstrap: str, options: Mapping[str, Any] | None = None, *, retry_for: float | None = None
    ) -> None:
        """`options` are a Consumer's, by snake_case or Kafka's dotted names; raises ConfigurationError."""
        self.config = ConsumerConfig.read({"bootstrap": bootstrap, **(options or {})})
        self.retry_for = self.config.request_timeout_ms / 1000 if retry_for is None else retry_for
        """Seconds that a question is asked again after errors that pass: no leader, a broker that is away."""
        self.pool = BufferPool(128 << 20)
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._connections: dict[tuple[str, int], BlockingConnection] = {}

    def __enter__(self) -> BlockingCluster:
        """Nothing is opened before it is needed."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the next question opens new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def topics(self) -> list[str]:
        """Return the names of all topics that are not Kafka's own."""
        return [t.name for t in self._metadata(None).topics if t.name and not t.is_internal]

    def partitions(self, topics: Iterable[str]) -> set[TopicPartition]:
        """Return the topics' partitions and learn their leaders; raises UnknownTopicOrPartitionError by name."""
        names = list(topics)
        for topic in self._retry(lambda: self._checked(names)):
            for partition in topic.partitions:
                self._leaders[topic.name, partition.partition_index] = partition.leader_id
        return {place for place in self._leaders if place[0] in names}

    def offsets(self, partitions: Collection[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return each partition's offset at EARLIEST, at LATEST, or of the first record at or after a time in ms."""
        found: dict[TopicPartition, int] = {}

        def ask() -> None:
            self.partitions({topic for topic, _ in partitions})
            by_leader: dict[int, list[TopicPartition]] = {}
            for place in partitions:
                if place not in found:
                    by_leader.setdefault(self._leader(place), []).append(place)
            for leader, places in by_leader.items():
                answer = self.connection(leader).request(_list_offsets(places, timestamp))
                for topic in answer.topics:
                    for result in topic.partitions:
                        self._raise_for(result.error_code, topic.name, result.partition_index)
                        found[topic.name, result.partition_index] = result.offset

        self._retry(ask)
        return found

    def leader_connection(self, place: TopicPartition) -> BlockingConnection:
        """Return the connection to a partition's leader, as far as known; raises LeaderNotAvailableError."""
        if place not in self._leaders:
            self.partitions([place[0]])
        return self.connection(self._leader(place))

    def forget(self, place: TopicPartition) -> None:
        """Ask anew who leads the partition, over a new connection: its leader moved or went away."""
        leader = self._leaders.pop(place, None)
        address = self._brokers.get(-1 if leader is None else leader)
        if address in self._connections:
            self._connections.pop(address).close()

    def connection(self, broker_id: int) -> BlockingConnection:
        """Return the connection to a broker, made if there is none."""
        return self._connect(self._brokers[broker_id])

    def _connect(self, address: tuple[str, int]) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None:
            timeout = self.config.request_timeout_ms / 1000
            connection = BlockingConnection(*address, client_id=self.config.client_id, timeout=timeout, pool=self.pool)
            self._connections[address] = connection
        return connection

    def _leader(self, place: TopicPartition) -> int:
        leader = self._leaders.get(place, None)
        if leader is None:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=place[0], partition=place[1])
        if leader < 0:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, "no leader", topic=place[0], partition=place[1])
        return leader

    def _checked(self, names: list[str]) -> list[Any]:
        answer = self._metadata(names)
        for topic in answer.topics:
            self._raise_for(topic.error_code, topic.name)
        return list(answer.topics)

    def _metadata(self, names: list[str] | None) -> Any:
        """Ask any broker that can be reached; raises ConnectionError naming all that were tried."""
        topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        failures = []
        for address in dict.fromkeys([*self._brokers.values(), *self.config.addresses()]):
            try:
                answer = self._connect(address).request(request)
            except OSError as error:
                failures.append(str(error))
                if address in self._connections:
                    self._connections.pop(address).close()
                continue
            self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            return answer
        raise ConnectionError("no broker answers: " + "; ".join(failures))

    def _retry(self, ask: Any) -> Any:
        """Call `ask` until it returns, an error is final or `retry_for` seconds are over."""
        began, pause = time.monotonic(), BACKOFF_S
        while True:
            try:
                return ask()
            except (KafkaError, OSError) as error:
                if time.monotonic() + pause > began + self._patience(error):
                    raise
                if isinstance(error, OSError):
                    self.close()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_BACKOFF_S)

    def _patience(self, error: KafkaError | OSError) -> float:
        """Return the seconds that it is worth asking again after this error."""
        if isinstance(error, OSError):
            return self.retry_for
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return min(NEW_TOPIC_S, self.retry_for)
        return self.retry_for if error.code.retriable else 0.0

    @staticmethod
    def _raise_for(code: ErrorCode, topic: str, partition: int | None = None) -> None:
        if code is not ErrorCode.NONE:
            raise error_for(code, topic=topic, partition=partition)


def _list_offsets(places: list[TopicPartition], timestamp: int) -> ListOffsetsRequest:
    topics: dict[str, list[Any]] = {}
    for topic, partition in places:
        entry = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        topics.setdefault(topic, []).append(entry)
    return ListOffsetsRequest(
        replica_id=NO_DEBUG_REPLICA,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=entries) for name, entries in topics.items()],
    )
