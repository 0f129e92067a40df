"""One range of one partition as Arrow batches, fetched straight from its leader; what each Spark task runs.

The next Fetch is on its way while the last answer is decoded. Memory holds two answers and the batch in the making.
A leader that moves or goes away is looked up again, and reading goes on at the next offset.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kbroker.client.arrow import RecordBatches
from kbroker.client.blocking_cluster import BACKOFF_S, LONGEST_BACKOFF_S, BlockingCluster, TopicPartition
from kbroker.client.errors import error_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchRequest
from protocol.records.batch import read_header, split_batches
from protocol.records.columns import ColumnDecoder
from protocol.records.control import AbortedTransactions
from protocol.records.errors import CorruptBatch, InvalidRecord

if TYPE_CHECKING:
    import pyarrow as pa

NEWEST_WITH_TOPIC_NAMES = 12


class RangeReader:
    """Iterate over it once: pyarrow.RecordBatch objects of at most `max_rows` rows, in order of offsets."""

    def __init__(
        self,
        cluster: BlockingCluster,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        max_rows: int = 50_000,
        max_bytes: int = 16 << 20,
        include_headers: bool = False,
    ) -> None:
        self._cluster = cluster
        self._place: TopicPartition = (topic, partition)
        self._start, self._end = start, end
        self._config = cluster.config
        self._decoder = ColumnDecoder(max_rows, max_bytes, include_headers, cluster.pool)
        self._batches = RecordBatches(topic)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Fetch and decode; raises CorruptMessageError naming the offset, or what outlasted the retries."""
        for records, aborted, offset in self._answers():
            yield from self._decode(records, aborted, offset)
        if self._decoder.rows:
            yield self._batches.wrap(self._decoder.finish())

    def _decode(self, records: memoryview, aborted: AbortedTransactions, offset: int) -> Iterator[pa.RecordBatch]:
        decoder, position = self._decoder, 0
        hidden = aborted if self._config.read_committed else None
        while True:
            try:
                position = decoder.append(
                    records,
                    self._place[1],
                    offset,
                    self._end,
                    position,
                    hidden,
                )
            except (CorruptBatch, InvalidRecord) as error:
                topic, partition = self._place
                raise error_for(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"offset {decoder.next_offset}: {error}",
                    topic=topic,
                    partition=partition,
                ) from error
            offset = decoder.next_offset
            if not decoder.full:
                return
            yield self._batches.wrap(decoder.finish())

    def _answers(self) -> Iterator[tuple[memoryview, AbortedTransactions, int]]:
        """Yield the records of each Fetch with the offset it was asked from, the next Fetch already sent."""
        offset, deadline, pause = self._start, time.monotonic() + self._cluster.retry_for, BACKOFF_S
        in_flight = False
        while offset < self._end:
            try:
                connection = self._cluster.leader_connection(self._place)
                if not in_flight:
                    connection.send(
                        self._request(offset), connection.version_for(FetchRequest, NEWEST_WITH_TOPIC_NAMES)
                    )
                in_flight = False
                answer = self._partition(connection.receive())
                following = _offset_after(answer.records, offset)
                if following > offset:
                    if following < self._end:
                        version = connection.version_for(FetchRequest, NEWEST_WITH_TOPIC_NAMES)
                        connection.send(self._request(following), version)
                        in_flight = True
                    deadline, pause = time.monotonic() + self._cluster.retry_for, BACKOFF_S
            except (KafkaError, OSError) as error:
                in_flight = False
                if not _passes(error) or time.monotonic() + pause > deadline:
                    raise
                self._cluster.forget(self._place)
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_BACKOFF_S)
                continue
            if following > offset:
                aborted = AbortedTransactions(
                    (a.producer_id, a.first_offset) for a in answer.aborted_transactions or ()
                )
                yield answer.records, aborted, offset
                offset = following
            elif time.monotonic() > deadline:
                raise error_for(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"nothing came at offset {offset} for {self._cluster.retry_for:g} s, though {self._end} is the end",
                    topic=self._place[0],
                    partition=self._place[1],
                )

    def _request(self, offset: int) -> FetchRequest:
        partition = FetchRequest.FetchPartition(
            partition=self._place[1], fetch_offset=offset, partition_max_bytes=self._config.max_partition_fetch_bytes
        )
        return FetchRequest(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=self._config.fetch_max_bytes,
            isolation_level=int(self._config.read_committed),
            topics=[FetchRequest.FetchTopic(topic=self._place[0], partitions=[partition])],
            rack_id=self._config.client_rack,
        )

    def _partition(self, answer: Any) -> Any:
        code = answer.error_code
        if code is ErrorCode.NONE:
            result = answer.responses[0].partitions[0]
            if result.error_code is ErrorCode.NONE:
                return result
            code = result.error_code
        raise error_for(code, topic=self._place[0], partition=self._place[1])


def _passes(error: Exception) -> bool:
    """Whether it is worth asking again: the leader moved, the broker is away or still learning of the topic."""
    if isinstance(error, KafkaError):
        return error.code.retriable and error.code is not ErrorCode.CORRUPT_MESSAGE
    return True


def _offset_after(records: memoryview | None, offset: int) -> int:
    """Return the offset after the last whole batch; `offset` itself when there is none."""
    if not records:
        return offset
    batches = split_batches(records)
    if not batches:
        return offset
    return max(offset, read_header(records, batches[-1][0]).next_offset)
