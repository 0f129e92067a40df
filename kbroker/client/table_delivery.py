"""The future of a table that was sent: done when each of its batches is, one outcome for all rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from kbroker.client.callbacks import callback_raised
from kbroker.client.delivery import Batch, done_future, wait_for
from kbroker.client.errors import BrokerError
from kbroker.protocol.errors import ErrorCode, KafkaError


class RowRange(NamedTuple):
    """`rows` of the rows `first` to `last` of the table, those that belong to `partition` (None: all of them)."""

    partition: int | None
    first: int
    last: int
    rows: int


class PartitionOffsets(NamedTuple):
    """Where a partition's rows are: offsets `first` to `last` (-1 with acks=0); other producers' may lie between."""

    first: int
    last: int
    rows: int


class TableMetadata(NamedTuple):
    """What became of a table."""

    topic: str
    rows: int
    partitions: dict[int, PartitionOffsets]


class TableNotWritten(BrokerError):
    """Some rows of a table were not written (or not for certain).

    `failures` says which and why; `partitions` says where the others are.
    """

    def __init__(self, metadata: TableMetadata, failures: list[tuple[RowRange, Exception]]) -> None:
        self.failures = failures
        self.partitions = metadata.partitions
        self.failed_rows = sum(part.rows for part, _ in failures)
        part, error = failures[0]
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        place = f"rows {part.first}..{part.last}" + (
            f" of partition {part.partition}" if part.partition is not None else ""
        )
        total = self.failed_rows + metadata.rows
        text = f"{self.failed_rows} of {total} rows were not written; first {place}: {error}"
        super().__init__(code, text, topic=metadata.topic)

    def __reduce__(self) -> tuple[Any, ...]:
        metadata = TableMetadata(self.topic or "", sum(p.rows for p in self.partitions.values()), self.partitions)
        return TableNotWritten, (metadata, self.failures)


class TableDelivery:
    """`result(timeout)`, `exception(timeout)`, `done()`, `add_done_callback`, and `await` on asyncio."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._parts: list[tuple[Batch, RowRange]] = []
        self._failures: list[tuple[RowRange, Exception]] = []
        self._lock = threading.Lock()
        self._outstanding = 1  # one for `seal`
        self._listeners: list[Callable[[], None]] = []

    def add(self, batch: Batch, rows: RowRange) -> None:
        """Wait for this batch too."""
        with self._lock:
            self._outstanding += 1
        self._parts.append((batch, rows))
        batch.when_done(self._one_done)

    def fail(self, rows: RowRange, error: Exception) -> None:
        """Note rows that were never sent."""
        self._failures.append((rows, error))

    def seal(self) -> None:
        """Say that no more is added."""
        self._one_done()

    def _one_done(self) -> None:
        with self._lock:
            self._outstanding -= 1
            if self._outstanding:
                return
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            _call(listener)

    def _when_done(self, listener: Callable[[], None]) -> None:
        with self._lock:
            if self._outstanding:
                self._listeners.append(listener)
                return
        _call(listener)

    def done(self) -> bool:
        """Whether the outcome of all rows is known."""
        return self._outstanding == 0

    def exception(self, timeout: float | None = None) -> TableNotWritten | None:
        """Wait and return the error, None when all rows were written; TimeoutError after `timeout` s."""
        if not self.done():
            thread = self._parts[-1][0].thread if self._parts else 0
            wait_for(self._when_done, thread, timeout)
        return self._outcome()[1]

    def result(self, timeout: float | None = None) -> TableMetadata:
        """Wait and return where the rows were written, or raise TableNotWritten."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._outcome()[0]

    def add_done_callback(self, callback: Callable[[TableDelivery], None]) -> None:
        """Call back with this handle once the outcome is known, on the client's own thread."""
        self._when_done(lambda: callback(self))

    def __await__(self) -> Generator[Any, None, TableMetadata]:
        if not self.done():
            yield from done_future(self._when_done)
        return self.result(0)

    def _outcome(self) -> tuple[TableMetadata, TableNotWritten | None]:
        failures = list(self._failures)
        places: dict[int, PartitionOffsets] = {}
        rows = 0
        for batch, part in self._leaves():
            if batch.error is not None:
                failures.append((part, batch.error))
                continue
            rows += batch.count
            first = batch.base_offset
            last = first + batch.count - 1 if first >= 0 else -1
            known = places.get(batch.partition)
            if known is not None:
                first, last = min(known.first, first), max(known.last, last)
            places[batch.partition] = PartitionOffsets(first, last, batch.count + (known.rows if known else 0))
        metadata = TableMetadata(self.topic, rows, places)
        return metadata, TableNotWritten(metadata, failures) if failures else None

    def _leaves(self) -> Iterator[tuple[Batch, RowRange]]:
        """Yield what was sent in the end with its rows, as narrow as a batch's share of them allows."""
        for sent, part in self._parts:
            before = 0
            for leaf in sent.leaves():
                behind = part.rows - before - leaf.count
                yield leaf, RowRange(part.partition, part.first + before, part.last - behind, leaf.count)
                before += leaf.count


def _call(listener: Callable[[], None]) -> None:
    try:
        listener()
    except BaseException as error:
        callback_raised(error, "a delivery callback")
