"""What a producer counts: per batch and per request, under the names of Java's metrics where it has one.

Totals, averages and maxima are those of the producer's whole life (Java's averages are of the last 30 to 60 s).
"""

from __future__ import annotations

from kbroker.client.delivery import Batch


class Distribution:
    """Count, sum and maximum."""

    __slots__ = ("count", "maximum", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0

    def add(self, value: float) -> None:
        """Take note of one."""
        self.count += 1
        self.total += value
        if value > self.maximum:
            self.maximum = value

    @property
    def average(self) -> float:
        """0 as long as there is none."""
        return self.total / self.count if self.count else 0.0


class ProducerStatistics:
    """The sender's counters; times in seconds."""

    def __init__(self) -> None:
        self.records = self.retried_records = self.failed_records = 0
        self.acknowledged_records = self.acknowledged_bytes = 0
        self.requests = self.responses = self.splits = 0
        self.bytes = 0
        self.uncompressed_bytes = 0
        self.batch_size = Distribution()
        self.queue_time = Distribution()
        self.latency = Distribution()
        self.throttle_time = Distribution()

    def sent(self, batch: Batch, now: float) -> None:
        """Count a batch that goes out; not its first time when it has been tried."""
        size = len(batch.data or b"")
        self.records += batch.count
        self.bytes += size
        if batch.attempts:
            self.retried_records += batch.count
            return
        self.uncompressed_bytes += batch.size
        self.batch_size.add(size)
        self.queue_time.add(now - batch.created)

    def acknowledged(self, batch: Batch) -> None:
        """Count a batch that is written."""
        self.acknowledged_records += batch.count
        self.acknowledged_bytes += len(batch.data or b"")

    def answered(self, latency: float, throttle_time_ms: int) -> None:
        """Count an answer."""
        self.responses += 1
        self.latency.add(latency)
        self.throttle_time.add(throttle_time_ms / 1000)

    def metrics(self) -> dict[str, float]:
        """Return name -> value; times in milliseconds as Java's."""
        return {
            "record-send-total": self.records,
            "record-retry-total": self.retried_records,
            "record-error-total": self.failed_records,
            "record-acknowledged-total": self.acknowledged_records,
            "byte-total": self.bytes,
            "byte-acknowledged-total": self.acknowledged_bytes,
            "batch-total": self.batch_size.count,
            "batch-split-total": self.splits,
            "batch-size-avg": self.batch_size.average,
            "batch-size-max": self.batch_size.maximum,
            "compression-rate-avg": self.batch_size.total / self.uncompressed_bytes if self.uncompressed_bytes else 0.0,
            "records-per-request-avg": self.records / self.requests if self.requests else 0.0,
            "record-queue-time-avg": 1000 * self.queue_time.average,
            "record-queue-time-max": 1000 * self.queue_time.maximum,
            "request-total": self.requests,
            "response-total": self.responses,
            "request-latency-avg": 1000 * self.latency.average,
            "request-latency-max": 1000 * self.latency.maximum,
            "produce-throttle-time-avg": 1000 * self.throttle_time.average,
            "produce-throttle-time-max": 1000 * self.throttle_time.maximum,
        }
