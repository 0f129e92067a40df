"""Sends a table: slices of rows through the column encoder into the producer's queues, while there is room.

job = TableJob(accumulator, config, topic, rows)
for _ in job.steps():         # after each step: wait until the buffer has room, pause where it is far ahead
    ...
job.delivery                  # one future for the whole table
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.client.accumulator import Accumulator, Batch
from kbroker.client.client_config import ProducerConfig
from kbroker.client.table_delivery import RowRange, TableDelivery
from kbroker.protocol.records.buffers import Buffer
from kbroker.protocol.records.column_writer import ColumnEncoder, EncodedBatch
from kbroker.protocol.records.compression import CompressionType

if TYPE_CHECKING:
    from kbroker.client.arrow import Slice, TableRows

RECORD_OVERHEAD = 61 + 40
BATCHES_PER_SLICE = 4
"""Of rows without keys: so many batches go to one partition before the next one has its turn."""
AHEAD_BYTES = 16 << 20
"""Of what is encoded and not acknowledged: enough for several brokers. More would leave the processor's caches before
it is sent, and memory that is used again stays warm."""
PAUSE_S = 0.05
"""How long the encoder waits for the sender to catch up: while there is room it must not wait for a broker."""


class TableJob:
    """One table on its way; raises ValueError for rows that no broker would take, before any is sent."""

    def __init__(self, accumulator: Accumulator, config: ProducerConfig, topic: str, rows: TableRows) -> None:
        self.delivery = TableDelivery(topic)
        self._accumulator = accumulator
        self._config = config
        self._topic = topic
        self._rows = rows
        self._count = accumulator.topics[topic].count
        self._sent = 0
        self._largest = config.max_request_size - RECORD_OVERHEAD
        rows.check_partitions(self._count)
        rows.check_sizes(self._largest)
        compression = int(CompressionType.of_name(config.compression))
        self._batch_size = min(config.arrow_batch_size, config.max_request_size)
        self._encoder = ColumnEncoder(self._count, self._batch_size, compression, config.compression_level)
        self._constants: dict[int, bytes] = {}

    def steps(self) -> Iterator[None]:
        """Encode and queue slice after slice. What goes wrong on the way fails the rows that are left."""
        slice_bytes = self._batch_size * BATCHES_PER_SLICE
        try:
            for some in self._rows.slices(slice_bytes):
                if some.largest > self._largest:
                    text = f"rows {some.first}..{some.first + some.rows - 1}: JSON of {some.largest} bytes"
                    raise ValueError(f"{text}, max_request_size allows {self._largest}")
                self._encoder.append(
                    some.rows, some.key, some.value, some.timestamps, some.headers, self._targets(some)
                )
                self._sent = some.first + some.rows
                self._queue(self._encoder.take())
                yield
        except GeneratorExit:
            self._end(RuntimeError("sending was given up"))
            raise
        except Exception as error:
            self._end(error)
            return
        self._end(None)

    @property
    def is_far_ahead(self) -> bool:
        """Whether it is worth a pause to let the sender catch up."""
        return self._accumulator.used >= AHEAD_BYTES

    def stop(self, error: Exception) -> None:
        """Send what is encoded, fail the rest."""
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self._sent < 0:
            return
        self._queue(self._encoder.finish())
        left = self._rows.rows - self._sent
        if left and error is not None:
            self.delivery.fail(RowRange(None, self._sent, self._rows.rows - 1, left), error)
        self._sent = -1
        self.delivery.seal()

    def _targets(self, some: Slice) -> Buffer | None:
        """Say which partition each row goes to, where its key does not."""
        if some.partitions is not None:
            return some.partitions
        if self._rows.constant_partition is not None:
            return self._constant(self._rows.constant_partition, some.rows)
        if self._config.partitioner is not None:
            return self._chosen(some)
        if self._rows.has_only_null_keys:
            return self._constant(self._accumulator.next_sticky(self._topic), some.rows)
        return None

    def _constant(self, partition: int, rows: int) -> memoryview:
        known = self._constants.get(partition, b"")
        if len(known) < 4 * rows:
            known = self._constants[partition] = array("i", [partition]).tobytes() * rows
        return memoryview(known)[: 4 * rows]

    def _chosen(self, some: Slice) -> bytes:
        """Ask the caller's partitioner, row by row."""
        assert self._config.partitioner is not None
        keys, values = self._rows.row_bytes(some.key, some.rows), self._rows.row_bytes(some.value, some.rows)
        chosen = [
            self._config.partitioner(self._topic, key, value, self._count)
            for key, value in zip(keys, values, strict=True)
        ]
        for partition in chosen:
            if not 0 <= partition < self._count:
                raise ValueError(f"the partitioner says {partition}, the topic has {self._count} partitions")
        return array("i", chosen).tobytes()

    def _queue(self, encoded: list[EncodedBatch]) -> None:
        now = time.monotonic()
        deadline = now + self._config.delivery_timeout_ms / 1000
        batches = []
        for one in encoded:
            batch = Batch(self._topic, one.partition, None, now, deadline)
            batch.count, batch.size, batch.data = one.count, len(one.batch), one.batch
            self.delivery.add(batch, RowRange(one.partition, one.rows[0], one.rows[1], one.count))
            batches.append(batch)
        self._accumulator.queue_built(batches)
