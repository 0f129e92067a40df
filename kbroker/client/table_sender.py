"""Sends a table: slices of rows through the column encoder into the producer's queues, while there is room.

job = TableJob(accumulator, config, topic, rows)
while job.step():         # after each step: wait until the buffer has room, pause where it is far ahead
    ...
job.delivery              # one future for the whole table

Steps encode and compress, and may be taken by any thread, one at a time.
"""

from __future__ import annotations

import threading
import time
from array import array
from typing import TYPE_CHECKING

from kbroker.client.accumulator import Accumulator
from kbroker.client.client_config import ProducerConfig
from kbroker.client.delivery import Batch
from kbroker.client.partitioners import NO_KEY_IS_LONG_ENOUGH, Partitioner, placement_of
from kbroker.client.table_delivery import RowRange, TableDelivery
from kbroker.protocol.records.buffers import Buffer
from kbroker.protocol.records.column_writer import ColumnEncoder, EncodedBatch
from kbroker.protocol.records.compression import CompressionType
from kbroker.protocol.records.partitioner import partition_for_key

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
        known = accumulator.topics[topic]
        self._count = known.count
        self._sent = 0
        """Rows that went through the encoder."""
        self._queued = 0
        """Of these, the rows that have a batch which will have an outcome."""
        self._has_ended = False
        self._lock = threading.Lock()
        self._largest = config.max_request_size - RECORD_OVERHEAD
        rows.check_partitions(self._count)
        rows.check_sizes(self._largest)
        self._batch_size = min(config.arrow_batch_size, config.max_request_size)
        placement = placement_of(config.partitioner)
        self._chooses = placement if callable(placement) else None
        self._hashing, self._shortest_key = (0, 0) if callable(placement) else placement
        self._encoder = ColumnEncoder(
            self._count,
            self._batch_size,
            int(CompressionType.of_name(config.compression)),
            config.level,
            hashing=self._hashing,
            shortest_key=self._shortest_key,
            anywhere=[partition for partition in known.led if partition < self._count],
            transactional=config.transactional_id is not None,
        )
        self._slices = rows.slices(self._batch_size * BATCHES_PER_SLICE)
        self._constants: dict[int, bytes] = {}

    def step(self) -> bool:
        """Encode and queue some rows; False when all are, or when what went wrong has failed those that were left."""
        with self._lock:
            if self._has_ended:
                return False
            try:
                some = next(self._slices, None)
                if some is None:
                    self._end(None)
                    return False
                self._encode(some)
            except Exception as error:
                self._end(error)
                return False
            return True

    def stop(self, error: Exception) -> None:
        """Send what is encoded, fail the rest."""
        with self._lock:
            if not self._has_ended:
                self._end(error)

    def _encode(self, some: Slice) -> None:
        if some.largest > self._largest:
            text = f"rows {some.first}..{some.first + some.rows - 1}: JSON of {some.largest} bytes"
            raise ValueError(f"{text}, max_request_size allows {self._largest}")
        self._encoder.append(some.rows, some.key, some.value, some.timestamps, some.headers, self._targets(some))
        self._sent = some.first + some.rows
        self._queue(self._encoder.take())

    def _end(self, error: Exception | None) -> None:
        self._has_ended = True
        first_left = self._sent
        try:
            self._queue(self._encoder.finish())
        except Exception as problem:
            error, first_left = error or problem, 0
        left = self._rows.rows - self._queued
        if left:
            reason = error or RuntimeError("the encoder lost rows")
            self.delivery.fail(RowRange(None, first_left, self._rows.rows - 1, left), reason)
            if self._accumulator.on_loss is not None:
                self._accumulator.on_loss(reason)
        self.delivery.seal()

    @property
    def is_far_ahead(self) -> bool:
        """Whether it is worth a pause to let the sender catch up."""
        return self._accumulator.used >= AHEAD_BYTES

    def _targets(self, some: Slice) -> Buffer | None:
        """Say which partition each row goes to, where its key does not."""
        if some.partitions is not None:
            return self._completed(some, some.partitions) if self._rows.some_lack_partitions else some.partitions
        if self._rows.constant_partition is not None:
            return self._constant(self._rows.constant_partition, some.rows)
        if self._chooses is not None:
            return self._chosen(some, self._chooses)
        if self._shortest_key == NO_KEY_IS_LONG_ENOUGH or (self._shortest_key >= 0 and self._rows.has_only_null_keys):
            return self._constant(self._accumulator.next_sticky(self._topic), some.rows)
        return None

    def _constant(self, partition: int, rows: int) -> memoryview:
        known = self._constants.get(partition, b"")
        if len(known) < 4 * rows:
            known = self._constants[partition] = array("i", [partition]).tobytes() * rows
        return memoryview(known)[: 4 * rows]

    def _completed(self, some: Slice, partitions: Buffer) -> bytes:
        """Find a partition for each row that has none of its own, so that all rows keep their order."""
        targets = array("i", bytes(partitions))
        left = [row for row, target in enumerate(targets) if target < 0]
        keys = self._rows.row_bytes(some.key, some.rows)
        values = keys if self._chooses is None else self._rows.row_bytes(some.value, some.rows)
        anywhere = self._accumulator.next_sticky(self._topic)
        for row in left:
            key = keys[row]
            if self._chooses is not None:
                targets[row] = self._choice(self._chooses, key, values[row])
            elif (-1 if key is None else len(key)) < self._shortest_key:
                targets[row] = anywhere
            else:
                targets[row] = partition_for_key(key or b"", self._count, self._hashing)
        return targets.tobytes()

    def _chosen(self, some: Slice, partitioner: Partitioner) -> bytes:
        """Ask the caller's partitioner, row by row."""
        keys, values = self._rows.row_bytes(some.key, some.rows), self._rows.row_bytes(some.value, some.rows)
        chosen = [self._choice(partitioner, key, value) for key, value in zip(keys, values, strict=True)]
        return array("i", chosen).tobytes()

    def _choice(self, partitioner: Partitioner, key: bytes | None, value: bytes | None) -> int:
        partition = partitioner(self._topic, key, value, self._count)
        if not 0 <= partition < self._count:
            raise ValueError(f"the partitioner says {partition}, the topic has {self._count} partitions")
        return partition

    def _queue(self, encoded: list[EncodedBatch]) -> None:
        now = time.monotonic()
        deadline = now + self._config.delivery_timeout_ms / 1000
        batches = []
        for one in encoded:
            batch = Batch(self._topic, one.partition, None, now, deadline)
            batch.count, batch.size, batch.data = one.count, len(one.batch), one.batch
            batches.append(batch)
        self._accumulator.queue_built(batches)  # raises, and takes none, when the producer is closed
        for batch, one in zip(batches, encoded, strict=True):
            self._queued += batch.count
            self.delivery.add(batch, RowRange(one.partition, one.rows[0], one.rows[1], one.count))
