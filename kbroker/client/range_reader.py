"""Reads ranges of offsets straight from the leaders into Arrow, without an event loop: what a Spark task runs.

    for batch in RangeReader(bootstrap, "flights", 0, start=0, end=10_000): ...     # pyarrow.RecordBatch

The next answer is under way while the last one is decoded: its request is sent as soon as the offsets of the last are
known. Memory holds two answers of `max_partition_fetch_bytes` and one RecordBatch. `SyncCluster` answers a driver's
questions: which partitions, which offsets.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from kbroker.client.client_config import ConsumerConfig
from kbroker.client.errors import BrokerError, error_for
from kbroker.client.fetcher import NEWEST_FETCH, next_offset
from kbroker.client.metadata import ClusterMetadata, TopicMetadata
from kbroker.client.offset_lookup import by_topic, read_offsets
from kbroker.client.session import Session
from kbroker.client.types import EARLIEST, LATEST, OffsetAndTimestamp, TopicPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.frame import FrameError
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offsets import ListOffsetsRequest
from protocol.records.buffers import BufferPool
from protocol.records.columns import ColumnDecoder
from protocol.records.control import AbortedTransactions
from protocol.schema import Message


class SyncConnection:
    """A blocking socket over the same protocol session as the asyncio connection."""

    def __init__(self, host: str, port: int, config: ConsumerConfig, pool: BufferPool | None = None) -> None:
        self.address = f"{host}:{port}"
        self.session = Session(config.client_id, pool=pool)
        try:
            self._socket = socket.create_connection((host, port), config.connect_timeout_ms / 1000)
        except OSError as error:
            raise ConnectionError(f"no connection to {self.address}: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout((config.request_timeout_ms + config.fetch_max_wait_ms) / 1000)
        try:
            software = ApiVersionsRequest(client_software_name="kbroker", client_software_version="1")
            answer = self.request(software, 3)
            if answer.error_code is not ErrorCode.NONE:
                answer = self.request(software, 0)
        except BaseException:
            self.close()
            raise
        self.session.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def send(self, message: Message, highest: int | None = None) -> int:
        """Send a request; returns its correlation id."""
        version = self.session.version_for(type(message), highest)
        correlation_id, parts = self.session.send(message, version)
        self._socket.sendall(b"".join(parts))  # type: ignore[arg-type]
        return correlation_id

    def receive(self, correlation_id: int) -> Any:
        """Wait for an answer; raises OSError."""
        while True:
            count = self._socket.recv_into(self.session.buffer())
            if count == 0:
                raise ConnectionError(f"{self.address} closed the connection")
            try:
                responses = self.session.received(count)
            except (FrameError, KafkaError) as error:
                raise ConnectionError(f"{self.address} sent what is no answer: {error}") from error
            for response in responses:
                if response.error is not None:
                    raise ConnectionError(f"{self.address}: {response.error}")
                if response.correlation_id == correlation_id:
                    return response.message

    def request(self, message: Message, highest: int | None = None) -> Any:
        """Send and wait."""
        return self.receive(self.send(message, highest))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class SyncCluster:
    """Metadata and offsets, asked blockingly; a context manager. Retries what may succeed, until request_timeout_ms."""

    def __init__(self, bootstrap: str, config: Mapping[str, Any] | None = None) -> None:
        self.config = ConsumerConfig.read({"bootstrap": bootstrap, **(config or {})})
        self.metadata = ClusterMetadata()
        self.pool = BufferPool(max_bytes=64 << 20)
        self._connections: dict[int, SyncConnection] = {}
        self._first: SyncConnection | None = None

    def __enter__(self) -> SyncCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in (*self._connections.values(), *([self._first] if self._first else [])):
            connection.close()
        self._connections.clear()
        self._first = None

    def drop(self, node_id: int) -> None:
        """Close the connection to a broker."""
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()

    def connection(self, node_id: int) -> SyncConnection:
        """Return the connection to a broker."""
        connection = self._connections.get(node_id)
        if connection is None:
            node = self.metadata.nodes.get(node_id)
            if node is None:
                raise ConnectionError(f"broker {node_id} is not known to the cluster")
            connection = self._connections[node_id] = SyncConnection(node.host, node.port, self.config, self.pool)
        return connection

    def _any(self) -> SyncConnection:
        if self._first is None:
            problems = []
            known = [(node.host, node.port) for node in self.metadata.nodes.values()]
            random.shuffle(known)
            for host, port in (*self.config.addresses(), *known):
                try:
                    self._first = SyncConnection(host, port, self.config)
                    return self._first
                except OSError as error:
                    problems.append(str(error))
            raise ConnectionError(f"no bootstrap broker answers: {'; '.join(problems)}")
        return self._first

    def refresh(self, topics: Iterable[str] | None) -> dict[str, TopicMetadata]:
        """Ask for metadata of topics (None: all)."""
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        try:
            answer = self._any().request(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        except OSError:
            if self._first is not None:
                self._first.close()
                self._first = None
            raise
        return self.metadata.update(answer, time.monotonic())

    def retry(self, attempt: Callable[[], Any]) -> Any:
        """Call until it raises nothing that may go away, with growing pauses, at most request_timeout_ms."""
        deadline = time.monotonic() + self.config.request_timeout_ms / 1000
        pause = self.config.retry_backoff_ms / 1000
        while True:
            try:
                return attempt()
            except (OSError, KafkaError) as error:
                if isinstance(error, KafkaError) and not error.code.retriable:
                    raise
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, self.config.retry_backoff_max_ms / 1000)

    def topics(self) -> list[str]:
        """Return the names of all topics that are not internal."""
        found = self.retry(lambda: self.refresh(None))
        return sorted(name for name, topic in found.items() if not topic.is_internal)

    def partitions_for(self, topic: str) -> list[int]:
        """Return a topic's partitions; raises UNKNOWN_TOPIC_OR_PARTITION at once for one that does not exist."""
        answered = self.retry(lambda: self.refresh([topic])).get(topic)
        if answered is None or answered.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic", topic=topic)
        if answered.error is not ErrorCode.NONE:
            raise error_for(answered.error, topic=topic)
        return sorted(answered.partitions)

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the offset at each timestamp (ms, or EARLIEST, LATEST, MAX_TIMESTAMP); offset -1: nothing so young."""
        missing = {TopicPartition(*key): timestamp for key, timestamp in wanted.items()}
        found: dict[TopicPartition, OffsetAndTimestamp] = {}

        def attempt() -> None:
            self.refresh({topic for topic, _ in missing})
            problems: list[Exception] = []
            for leader, some in self._per_leader(missing).items():
                request = _offsets_request(some, self.config.read_committed)
                try:
                    problems += read_offsets(self.connection(leader).request(request), leader, found)
                except OSError as error:
                    self.drop(leader)
                    problems.append(error)
            for key in found:
                missing.pop(key, None)
            if problems:
                raise problems[0]

        self.retry(attempt)
        return found

    def earliest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return {key: item.offset for key, item in self.list_offsets(dict.fromkeys(partitions, EARLIEST)).items()}

    def latest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition."""
        return {key: item.offset for key, item in self.list_offsets(dict.fromkeys(partitions, LATEST)).items()}

    def _per_leader(self, wanted: Mapping[TopicPartition, int]) -> dict[int, dict[TopicPartition, int]]:
        grouped: dict[int, dict[TopicPartition, int]] = {}
        for key, timestamp in wanted.items():
            grouped.setdefault(self.metadata.require(*key).leader, {})[key] = timestamp
        return grouped


def _offsets_request(wanted: Mapping[TopicPartition, int], read_committed: bool) -> ListOffsetsRequest:
    topics = [
        ListOffsetsRequest.ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=index, timestamp=wanted[TopicPartition(topic, index)]
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(wanted).items()
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed), topics=topics)


class RangeReader:
    """The records of one partition with offsets in [start, end), as pyarrow.RecordBatch; iterate once.

    Raises OFFSET_OUT_OF_RANGE when `start` does not exist (any more), CORRUPT_MESSAGE naming the offset.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        max_rows: int = 50_000,
        headers: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.key = TopicPartition(topic, partition)
        self.offset = start
        """Of the next record to deliver."""
        self.end = end
        self._bootstrap = bootstrap
        self._options = config
        self._max_rows = max_rows
        self._headers = headers

    def __iter__(self) -> Iterator[Any]:
        from kbroker.client import arrow

        if self.offset >= self.end:
            return
        with SyncCluster(self._bootstrap, self._options) as cluster:
            decoder = ColumnDecoder(self._max_rows, with_headers=self._headers)
            for item in self._answers(cluster):
                for columns in self._decode(cluster.config, decoder, item):
                    yield arrow.record_batch(columns, self.key.topic)

    def _answers(self, cluster: SyncCluster) -> Iterator[FetchResponse.PartitionData]:
        """Yield answers in order; the next is asked for before the last is handed over."""
        offset = self.offset
        pending: tuple[int, int] | None = None
        while offset < self.end:
            asked = pending
            item, leader = cluster.retry(partial(self._one_answer, cluster, offset, asked))
            following = next_offset(item.records, offset) if item.records is not None else offset
            if following == offset and item.records is not None and len(item.records):
                yield item  # a batch that makes no sense: the decoder names it
                return
            pending = None
            offset = max(offset, following)
            if offset < self.end:
                try:
                    pending = (leader, self._send(cluster, leader, offset))
                except OSError:
                    cluster.drop(leader)  # asked again, of whoever leads then, when the answer is wanted
            yield item

    def _one_answer(
        self, cluster: SyncCluster, offset: int, sent: tuple[int, int] | None
    ) -> tuple[FetchResponse.PartitionData, int]:
        leader = -1
        try:
            if sent is not None and not self._is_spent(sent):
                self._spent = sent
                leader = sent[0]
                answer = cluster.connection(leader).receive(sent[1])
            else:
                cluster.refresh([self.key.topic])
                leader = cluster.metadata.require(*self.key).leader
                answer = cluster.connection(leader).receive(self._send(cluster, leader, offset))
        except OSError:
            cluster.drop(leader)
            raise
        item: FetchResponse.PartitionData = answer.responses[0].partitions[0]
        if item.error_code is not ErrorCode.NONE:
            text = f"offset {offset}" if item.error_code is ErrorCode.OFFSET_OUT_OF_RANGE else ""
            raise error_for(item.error_code, text, topic=self.key.topic, partition=self.key.partition, broker=leader)
        return item, leader

    _spent: tuple[int, int] | None = None

    def _is_spent(self, sent: tuple[int, int]) -> bool:
        """Whether the answer to this request was waited for already, in an attempt that failed."""
        return self._spent == sent

    def _send(self, cluster: SyncCluster, leader: int, offset: int) -> int:
        """Ask for records; returns the correlation id."""
        config = cluster.config
        partition = FetchRequest.FetchPartition(
            partition=self.key.partition, fetch_offset=offset, partition_max_bytes=config.max_partition_fetch_bytes
        )
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=config.fetch_max_bytes,
            isolation_level=int(config.read_committed),
            topics=[FetchRequest.FetchTopic(topic=self.key.topic, partitions=[partition])],
            rack_id=config.client_rack,
        )
        return cluster.connection(leader).send(request, NEWEST_FETCH)

    def _decode(
        self, config: ConsumerConfig, decoder: ColumnDecoder, item: FetchResponse.PartitionData
    ) -> Iterator[Any]:
        """Yield the columns of one answer."""
        if item.records is None or len(item.records) == 0:
            return
        aborted = None
        if config.read_committed:
            aborted = AbortedTransactions(
                (one.producer_id, one.first_offset) for one in item.aborted_transactions or ()
            )
        position = 0
        while True:
            try:
                position = decoder.append(
                    item.records, self.key.partition, self.offset, self.end, position, aborted, config.check_crcs
                )
            except KafkaError as error:
                self.offset = max(self.offset, decoder.next_offset)
                if decoder.rows:
                    yield decoder.finish()
                raise self._unreadable(error) from error
            self.offset = max(self.offset, decoder.next_offset)
            full = decoder.full
            if decoder.rows:
                yield decoder.finish()
            if not full:
                return

    def _unreadable(self, error: KafkaError) -> BrokerError:
        text = f"offset {self.offset} cannot be read: {error.message}"
        return error_for(error.code, text, topic=self.key.topic, partition=self.key.partition)
