"""A streaming query as Spark 4.2 and newer run it: limits are known to Spark, and Trigger.AvailableNow is supported."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kbroker.spark_connector.read_options import TriggerLimits
from kbroker.spark_connector.stream_offsets import JsonOffsets, to_json
from kbroker.spark_connector.stream_reader_41 import StreamReader41


class StreamReader(StreamReader41, SupportsTriggerAvailableNow):
    """Adds to the older form what Spark asks for since 4.2."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the kind of limit there is; the numbers are our own, for Spark has no limit of several kinds."""
        limits = self.options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what there is now."""
        self.planner.stop_at_newest()

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # type: ignore[override]
        """Return where the next micro-batch ends."""
        limits = TriggerLimits() if isinstance(limit, ReadAllAvailable) else self.options.limits
        return self._end_after(start, limits)

    def reportLatestOffset(self) -> JsonOffsets | None:
        """Return the newest offsets for the query's progress, from which tools compute its lag."""
        return None if self.planner.newest is None else to_json(self.planner.newest)
