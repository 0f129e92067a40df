"""One range of one partition as Arrow batches, fetched straight from its leader; what each Spark task runs.

With `client_rack` the leader may name a replica that is nearer (KIP-392): it is read from until it fails.
The next Fetch is on its way while the last answer is decoded. Memory holds two answers and the batch in the making.
No Fetch asks for much more than the rest of the range takes, by what the offsets of the last answer took.
A leader that moves or goes away is looked up again, and reading goes on at the next offset. With the topic's id given,
a topic that was deleted and made again under the same name is an error (where the broker knows Fetch 13).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kbroker.client.arrow import RecordBatches
from kbroker.client.errors import NotConnected, error_for, error_out_of_order
from kbroker.client.plain_cluster import Patience, PlainCluster
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.offsets import EARLIEST, LATEST
from kbroker.protocol.records.batch import read_header, split_batches
from kbroker.protocol.records.columns import ColumnDecoder
from kbroker.protocol.records.control import AbortedTransactions
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from kbroker.protocol.records.message_set import as_batches
from kbroker.protocol.records.succession import look_through

if TYPE_CHECKING:
    import pyarrow as pa

    from kbroker.client.plain_connection import PlainConnection

log = logging.getLogger(__name__)

NEWEST_WITH_TOPIC_NAMES = 12
FIRST_WITH_TOPIC_IDS = 13
NO_ID = bytes(16)
GUESSED_BYTES = 256
"""That an offset takes, before the first answer: larger ones cost a small range one Fetch more."""
LEAST_BYTES = 64 << 10
MARGIN = 1.25
"""As some offsets take more than others."""


class RangeReader:
    """Iterate over it once: pyarrow.RecordBatch objects of at most `max_rows` rows, in order of offsets."""

    def __init__(
        self,
        cluster: PlainCluster,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        max_rows: int = 50_000,
        max_bytes: int = 4 << 20,
        include_headers: bool = False,
        topic_id: bytes = NO_ID,
        skip_gone: bool = False,
        skip_corrupt: bool = False,
    ) -> None:
        """`skip_gone`: leave out offsets that were deleted; `skip_corrupt`: batches that cannot be decoded."""
        self._cluster = cluster
        self._place: Key = (topic, partition)
        self._start, self._end = start, end
        self._topic_id = topic_id
        self._skip_gone, self._skip_corrupt = skip_gone, skip_corrupt
        self._version = NEWEST_WITH_TOPIC_NAMES if topic_id == NO_ID else FIRST_WITH_TOPIC_IDS
        self._rack = cluster.config.client_rack
        self._replica: int | None = None
        """The follower that the leader wants us to read from."""
        self._asked: PlainConnection | None = None
        """Where a Fetch is on its way."""
        self._config = cluster.config
        self._bytes_per_offset: float = GUESSED_BYTES
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
                bad = decoder.next_offset
                if not self._skip_corrupt:
                    raise self._error(ErrorCode.CORRUPT_MESSAGE, f"offset {bad}: {error}") from error
                position, offset = _after_batch_of(records, bad)
                self._tell_corrupt(bad, offset, error)
                continue
            offset = decoder.next_offset
            if not decoder.full:
                return
            yield self._batches.wrap(decoder.finish())

    def _answers(self) -> Iterator[tuple[memoryview, AbortedTransactions, int]]:
        """Yield the records of each Fetch with the offset it was asked from, the next Fetch already sent."""
        try:
            yield from self._fetches()
        finally:
            if self._asked:  # given up half-way: the answer on its way must not meet the next reader
                self._asked.close()

    def _fetches(self) -> Iterator[tuple[memoryview, AbortedTransactions, int]]:
        offset, patience = self._start, Patience(self._cluster.retry_for)
        while offset < self._end:
            try:
                connection = self._asked or self._ask(offset)
                answer = self._receive(connection, offset)
                if answer.preferred_read_replica >= 0:
                    self._replica = answer.preferred_read_replica
                    continue
                records = memoryview(as_batches(answer.records or b""))
                seen = look_through(records, offset, answer.high_watermark)
                following, records = seen.next_offset, records[seen.start : seen.end]
                if seen.problem and following == offset:
                    if not self._skip_corrupt or self._replica is not None:
                        raise error_out_of_order(*self._place, seen)
                    if seen.resume_at > offset:
                        offset = seen.resume_at
                        self._tell_corrupt(following, offset, seen.problem)
                    else:  # the way on stands in no answer from here
                        offset = self._after_corrupt(offset, seen.problem)
                    continue
                if following > offset:
                    self._bytes_per_offset = len(records) / (following - offset)
                    if following < self._end:
                        self._ask(following, connection)
                    patience.renew()
            except (KafkaError, OSError) as error:
                if self._replica is not None:
                    self._back_to_leader()
                    continue
                if self._skip_gone and _has_code(error, ErrorCode.OFFSET_OUT_OF_RANGE):
                    offset = self._after_gone(offset)
                    continue
                if self._skip_corrupt and _has_code(error, ErrorCode.CORRUPT_MESSAGE):
                    offset = self._after_corrupt(offset)
                    continue
                self._prepare_another_try(error, patience)
                continue
            if following > offset:
                aborted = AbortedTransactions(
                    (a.producer_id, a.first_offset) for a in answer.aborted_transactions or ()
                )
                yield records, aborted, offset
                offset = following
            elif not patience.lasts():
                raise self._error(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"nothing came at offset {offset} for {self._cluster.retry_for:g} s, though {self._end} is the end",
                )

    def _ask(self, offset: int, connection: PlainConnection | None = None) -> PlainConnection:
        """Send a Fetch, to the partition's leader or the replica to read from where no connection is given."""
        if connection is None:
            connection = self._cluster.connection_for(self._place, self._replica)
        connection.send(self._request(offset), version=connection.version_for(FetchRequest, self._version))
        self._asked = connection
        return connection

    def _receive(self, connection: PlainConnection, offset: int) -> Any:
        """Return what the Fetch on its way found in the partition; raises KafkaError.

        To who is over a quota Kafka answers nothing (KIP-219), and keeps the next answer back for as long as it says.
        """
        topic, partition = self._place
        limit_s, held_back_s = self._config.request_timeout_ms / 1000, 0.0
        while True:
            self._asked = None
            answer = connection.receive(limit_s + held_back_s)
            if answer.responses or answer.error_code is not ErrorCode.NONE:
                return self._partition(answer, offset)
            if not answer.throttle_time_ms:
                raise NotConnected(f"{connection.address} says nothing of {topic}-{partition} at offset {offset}")
            held_back_s = answer.throttle_time_ms / 1000
            log.info("%s-%d: a quota of the broker holds reading back for %g s", topic, partition, held_back_s)
            self._ask(offset, connection)

    def _prepare_another_try(self, error: KafkaError | OSError, patience: Patience) -> None:
        """Raise what cannot pass; else wait and ask anew who leads the partition."""
        if not _passes(error) or not patience.pause():
            raise error
        self._cluster.forget(self._place)
        self._check_topic()

    def _back_to_leader(self) -> None:
        """The follower failed, or is behind: what the leader says counts, and it is not asked for another one."""
        assert self._replica is not None
        self._cluster.disconnect(self._replica)
        self._replica, self._rack = None, ""

    def _request(self, offset: int) -> FetchRequest:
        wanted = LEAST_BYTES + int(MARGIN * self._bytes_per_offset * (self._end - offset))
        partition = FetchRequest.FetchPartition(
            partition=self._place[1],
            fetch_offset=offset,
            partition_max_bytes=min(wanted, self._config.max_partition_fetch_bytes),
        )
        return FetchRequest(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=self._config.fetch_max_bytes,
            isolation_level=int(self._config.read_committed),
            topics=[FetchRequest.FetchTopic(topic=self._place[0], topic_id=self._topic_id, partitions=[partition])],
            rack_id=self._rack,
        )

    def _partition(self, answer: Any, offset: int) -> Any:
        code = answer.error_code
        if code is ErrorCode.NONE:
            result = answer.responses[0].partitions[0]
            if result.error_code is ErrorCode.NONE:
                return result
            code = result.error_code
        raise self._error(code, f"offset {offset}")

    def _check_topic(self) -> None:
        """Raise UnknownTopicIdError when the topic's name belongs to another topic now."""
        if self._topic_id == NO_ID:
            return
        try:
            self._cluster.partitions([self._place[0]])
        except (KafkaError, OSError):
            return  # no answer: the next try will say why
        if self._cluster.topic_ids[self._place[0]] not in (self._topic_id, NO_ID):
            raise self._error(ErrorCode.UNKNOWN_TOPIC_ID, "the topic was deleted and made again")

    def _after_gone(self, offset: int) -> int:
        """Return the offset to go on from when the one asked for is not there.

        One behind the end is asked for again before it counts: a leader of before may not know yet that it is none.
        """
        place, patience = [self._place], Patience(self._cluster.retry_for)
        while True:
            self._cluster.forget(self._place)
            earliest = self._cluster.offsets(place, EARLIEST)[self._place]
            latest = self._cluster.offsets(place, LATEST)[self._place]
            if offset < latest or not patience.pause():
                break
        following = earliest if offset < earliest else offset if offset < latest else self._end
        log.warning("%s-%d: offsets [%d, %d) are gone and left out", *self._place, offset, min(following, self._end))
        return following

    def _after_corrupt(self, bad: int, reason: str = "the broker does not serve them") -> int:
        """Probe for the end of a batch whose own word for it is not to be had: corrupt to the broker, or it lies."""
        good, step = bad + 1, 1
        while good < self._end and not self._is_served(good):
            step *= 2
            good = min(self._end, good + step)
        low = max(bad, good - step)
        while good - low > 1:
            middle = (low + good) // 2
            low, good = (low, middle) if self._is_served(middle) else (middle, good)
        self._tell_corrupt(bad, good, reason)
        return good

    def _is_served(self, offset: int) -> bool:
        connection = self._ask(offset)
        try:
            answer = self._receive(connection, offset)
        except KafkaError as error:
            if error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            return False
        seen = look_through(as_batches(answer.records or b""), offset, answer.high_watermark)
        return not seen.problem or seen.next_offset > offset

    def _tell_corrupt(self, first: int, following: int, reason: object) -> None:
        log.warning("%s-%d: offsets [%d, %d) are corrupt and left out: %s", *self._place, first, following, reason)

    def _error(self, code: ErrorCode, message: str = "") -> KafkaError:
        return error_for(code, message, topic=self._place[0], partition=self._place[1])


def _passes(error: Exception) -> bool:
    """Whether it is worth asking again: the leader moved, the broker is away or still learning of the topic."""
    if isinstance(error, KafkaError):
        return error.code.retriable and error.code is not ErrorCode.CORRUPT_MESSAGE
    return True


def _has_code(error: Exception, code: ErrorCode) -> bool:
    return isinstance(error, KafkaError) and error.code is code


def _after_batch_of(records: memoryview, offset: int) -> tuple[int, int]:
    """Return position and offset behind the batch that holds `offset`."""
    for position, size in split_batches(records):
        following = read_header(records, position).next_offset
        if following > offset:
            return position + size, following
    return len(records), offset + 1
