"""What a consumer delivers: waits for what was fetched, decodes it, and hands it over as records or columns.

    poll         up to so many records             what it returned is done when the next call begins
    next_run     records for an iterator           each is done when the next one is taken
    next_batch   columns of one partition          as poll

Columns are decoded on the loop: in a thread beside it, without the interpreter's lock, that took a quarter more CPU and
no less time (measured on two busy processors).

A caller that goes away before it gets what a call had for it (an interrupt, a cancelled task) says `take_back`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kbroker.client.chunk_decoder import decode_columns, decode_records
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.consumer_statistics import Meter, of_partitions, seconds_ago
from kbroker.client.errors import ClientClosed, DeserializationError, IllegalState, MalformedValue, WokenUp
from kbroker.client.fetcher import Fetcher
from kbroker.client.group.group_consumer import GroupConsumer
from kbroker.client.partition_state import PartitionState
from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.buffers import BufferPool
from kbroker.protocol.records.columns import ColumnDecoder
from kbroker.protocol.records.record import Record

if TYPE_CHECKING:
    import pyarrow

    from kbroker.client.tracing import Receiving
    from kbroker.client.typed_values import Malformed, TypedValues, ValueFormat

BATCH_BYTES = 4 << 20
"""Of a record batch, about: what stays in the processor's cache is decoded faster, and memory is used again."""
LONG_S = 3600.0


class Reader:
    """Lives on the loop of its consumer."""

    def __init__(self, config: ConsumerConfig, fetcher: Fetcher, group: GroupConsumer | None, pool: BufferPool) -> None:
        self._records = 0
        """Decoded so far."""
        self._called_at: float | None = None
        self._config = config
        self._fetcher = fetcher
        self._assignment = fetcher.assignment
        self._background = fetcher.background
        self._group = group
        self._pool = pool
        pairs = (("key", config.key_deserializer), ("value", config.value_deserializer))
        self._deserializers = [(part, function) for part, function in pairs if function is not None]
        self._decoder: ColumnDecoder | None = None
        self._wrappers: dict[str, Any] = {}
        self._is_woken = self._is_closing = False
        self._tracing = _tracing(config) if config.tracing else None
        self._loop = asyncio.get_running_loop()
        self._meter = Meter(self._loop.time(), self._totals())

    def _totals(self) -> tuple[int, int, int]:
        return self._records, self._fetcher.fetched_bytes, self._fetcher.fetches

    def statistics(self) -> dict[str, Any]:
        """Return what consumer_statistics.py names."""
        now, totals = self._loop.time(), self._totals()
        names = ("records_consumed", "bytes_consumed", "fetch")
        found: dict[str, Any] = {f"{name}_total": total for name, total in zip(names, totals, strict=True)}
        rates = self._meter.rates(now, totals)
        found |= {f"{name}_rate": rate for name, rate in zip(names, rates, strict=True)}
        found |= {"last_poll_seconds_ago": seconds_ago(self._called_at, now)}
        found |= of_partitions(self._assignment)
        return found if self._group is None else found | self._group.statistics(now)

    def wakeup(self) -> None:
        """Have the call that waits, or else the next, raise WokenUp."""
        self._is_woken = True
        self._background.arrived.set()

    def stop(self) -> None:
        """Whoever waits is told that the consumer is closed."""
        self._is_closing = True
        self._background.arrived.set()

    @property
    def calls(self) -> int:
        """How often records were asked for."""
        return self._assignment.calls

    def take_back(self, since: int = -1) -> None:
        """Deliver again what the last call gave, as it is not done; unless that is the call with the number `since`."""
        if self.calls != since:
            self._assignment.take_back()

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """The application is here: what it was given before is done."""
        self._fetcher.cluster.check_process()
        if self._group is not None and self._group.in_listener:
            raise IllegalState("a rebalance listener gets no records: the call that it is told in goes on behind it")
        self._assignment.begin_call()
        if self._group is not None:
            self._group.polling(True)
        try:
            yield
        finally:
            self._called_at = now = self._loop.time()
            self._meter.note(now, self._totals())
            if self._group is not None:
                self._group.polling(False)

    async def poll(self, timeout: float, limit: int) -> list[Record]:
        """Return up to `limit` records, none after `timeout` s."""
        with self._call():
            await self._fill(self._loop.time() + timeout, limit)
            records = self._assignment.take(limit) if self._may_give else []
        if self._tracing is not None:
            self._tracing.received(records)
        return records

    async def next_run(self) -> Iterator[Record]:
        """Wait for records and give some of one partition: each that is taken is given."""
        assignment = self._assignment
        with self._call():
            while True:
                limit = 1 if assignment.records_ahead else self._config.max_poll_records
                await self._fill(self._loop.time() + LONG_S, limit)
                if self._may_give and (run := assignment.first_run()):
                    if self._tracing is not None:
                        self._tracing.received(run)
                    return self._each(run)

    @property
    def _may_give(self) -> bool:
        return self._group is None or self._group.may_give

    def _each(self, run: deque[Record]) -> Iterator[Record]:
        assignment, background = self._assignment, self._background
        while not background.wants_poll:
            try:
                assignment.taken = record = run.popleft()
            except IndexError:  # not looked at before: the client's thread may forget what is there at any time
                return
            yield record

    async def _fill(self, deadline: float, limit: int) -> None:
        """Decode until `limit` records are ahead, or nothing more is there; wait for the first until the deadline."""
        assignment = self._assignment
        while True:
            state = await self._next(deadline, is_enough=bool(assignment.records_ahead))
            left = limit - assignment.records_ahead
            while state is not None and left > 0:
                try:
                    records = self._decode(state, left)
                except (KafkaError, DeserializationError):
                    if assignment.records_ahead:
                        break  # what is before the bad batch is delivered first
                    raise
                left -= len(records)
                self._records += len(records)
                assignment.put_ahead(state, records)
                state = assignment.next_ready(with_problems=False)
            self._background.wake()
            if assignment.records_ahead or self._loop.time() >= deadline:
                return

    def _decode(self, state: PartitionState, limit: int) -> list[Record]:
        records = decode_records(state, limit, self._config.check_crcs)
        for part, function in self._deserializers:
            for row, record in enumerate(records):
                try:
                    if (data := getattr(record, part)) is not None:
                        setattr(record, part, function(data))
                except Exception as error:
                    state.go_back(record.offset)
                    if row == 0:
                        raise DeserializationError(*state.key, record.offset, part, repr(error)) from error
                    del records[row:]  # what is before it is delivered first
                    break
        return records

    def _check_open(self) -> None:
        if self._is_closing:
            raise ClientClosed("the consumer is closed")

    async def _next(self, deadline: float | None, *, is_enough: bool = False) -> PartitionState | None:
        """Wait for a partition to deliver; raises what went wrong in the background. None when the time is over.

        `is_enough`: something is there already, more is welcome and no problem is told before it.
        """
        while True:
            self._check_open()
            if self._is_woken:
                self._is_woken = False
                raise WokenUp("wakeup() was called")
            may_read = self._group is None or await self._group.attend(deadline)
            self._check_open()  # again: what was told meanwhile is forgotten before it waits
            is_enough = is_enough and bool(self._assignment.records_ahead)
            if not is_enough:
                if self._background.problems:
                    raise self._background.problems.popleft()
                self._fetcher.places.refuse_nowhere()
            if may_read:
                state = self._assignment.next_ready(with_problems=not is_enough)
                if state is not None and not state.chunks:
                    raise state.take_problem()
                if state is not None or is_enough:
                    return state
            self._background.arrived.clear()
            self._background.wake()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._background.arrived.wait()
            except TimeoutError:
                return None

    async def next_batch(
        self, max_rows: int, timeout: float | None, *, headers: bool, values: TypedValues | None
    ) -> pyarrow.RecordBatch | None:
        """Return the next pyarrow.RecordBatch of 1 to max_rows rows, None after `timeout` s without a record."""
        from kbroker.client.arrow import RecordBatches

        decoder = self._decoder
        if decoder is None or decoder.row_limit != max_rows or decoder.with_headers != headers:
            decoder = self._decoder = ColumnDecoder(max_rows, BATCH_BYTES, headers, self._pool)
        deadline = None if timeout is None else self._loop.time() + timeout
        with self._call():
            self._assignment.give_back()
            while (state := await self._next(deadline)) is not None:
                first = state.offset
                decode_columns(state, decoder, self._config.check_crcs)
                self._background.wake()
                if decoder.rows:
                    self._assignment.gives(state, first)
                    self._records += decoder.rows
                    topic = state.key.topic
                    if topic not in self._wrappers:
                        self._wrappers[topic] = RecordBatches(topic)
                    batch = self._wrappers[topic].wrap(decoder.finish())
                    return batch if values is None else _typed(batch, state, values)
        return None


def _tracing(config: ConsumerConfig) -> Receiving:
    from kbroker.client.tracing import Receiving

    return Receiving(config.client_id, config.group_id)


def typed_values(value_format: ValueFormat, schema: Any, malformed: Malformed) -> TypedValues | None:
    """Return what parses the values of batches, None where they stay bytes; ConfigurationError for wrong arguments."""
    import kbroker.client.arrow  # noqa: F401 - first: where pyarrow is missing it says what to install
    from kbroker.client.typed_values import TypedValues

    found = TypedValues(value_format, schema, malformed)
    return None if value_format == "binary" else found


def _typed(batch: Any, state: PartitionState, values: TypedValues) -> Any:
    """Parse a batch's values; what comes before a malformed one is delivered first, and reading goes on at it."""
    first = batch["offset"][0].as_py()
    topic, partition = state.key
    try:
        typed, malformed = values.parse(batch, topic)
    except ValueError as error:
        state.go_back(first)
        raise ValueError(f"{state.key} from offset {first}: {error}") from None
    if not malformed or not values.raises:
        return typed
    row = min(malformed)
    offset = batch["offset"][row].as_py()
    state.go_back(offset)
    if row == 0:
        raise MalformedValue(topic, partition, offset, f"the value is {malformed[0]}")
    return typed.slice(0, row)
