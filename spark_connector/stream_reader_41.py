"""A streaming query as Spark 4.1 runs it: Spark says nothing of where it is, so the reader remembers.

Nor does it say whether the query has Trigger.AvailableNow, which asks once how far to read and ends there. So the first
micro-batch of a query that starts has no limits; they hold from the second on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kbroker.spark_connector.columns import ColumnPlan
from kbroker.spark_connector.read_options import ReadOptions, TriggerLimits
from kbroker.spark_connector.stream_offsets import JsonOffsets, from_json, to_json, topic_ids_in
from kbroker.spark_connector.stream_planner import StreamPlanner
from kbroker.spark_connector.tasks import RangePartition, read_range

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader41(DataSourceStreamReader):
    """Made once on the driver, where it plans, and sent to the executors with its options alone."""

    def __init__(self, options: ReadOptions, plan: ColumnPlan) -> None:
        self.options = options
        self.plan = plan
        self.planner = StreamPlanner(options)
        self._position: JsonOffsets = {}
        self._is_limited = False

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.options, self.plan)

    def initialOffset(self) -> JsonOffsets:
        """Return where a query without a checkpoint begins."""
        self._position = to_json(self.planner.first(), self.planner.topic_ids)
        return self._position

    def latestOffset(self) -> JsonOffsets:  # type: ignore[override]  # the arguments came with 4.2
        """Return where the next micro-batch ends."""
        limits = self.options.limits if self._is_limited else TriggerLimits()
        self._is_limited = True
        return self._end_after(self._position, limits)

    def _end_after(self, start: JsonOffsets, limits: TriggerLimits) -> JsonOffsets:
        """Return where the micro-batch after `start` ends; `start` to the letter when there is none."""
        self.planner.remember(topic_ids_in(start))
        offsets = from_json(start)
        end = self.planner.next_end(offsets, limits)
        return start if end == offsets else to_json(end, self.planner.topic_ids)

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        """Plan one micro-batch; Spark asks again for the last one after a crash, and for none when it goes on."""
        self._position = end
        self.planner.remember(topic_ids_in(end))
        shares = self.planner.shares(from_json(start), from_json(end), topic_ids_in(start))
        return [RangePartition(*each) for each in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run on an executor: yield the range's records as Arrow batches."""
        return read_range(self.options, self.plan, partition)

    def commit(self, end: JsonOffsets) -> None:
        """Hear that all before `end` is processed."""
        self.planner.commit(from_json(end))

    def stop(self) -> None:
        """Close the driver's connections."""
        self.planner.close()
