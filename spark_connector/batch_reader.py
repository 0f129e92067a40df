"""One batch query: the driver plans offset ranges, each task reads one of them from its leader."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kbroker.spark_connector import planning
from kbroker.spark_connector.columns import ColumnPlan
from kbroker.spark_connector.filters import Pushed, push
from kbroker.spark_connector.offset_ranges import gather, plan_ranges
from kbroker.spark_connector.read_options import ReadOptions
from kbroker.spark_connector.tasks import RangePartition, new_cluster, read_range
from kbroker.spark_connector.worker_process import settle_in

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

log = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    """Made on the driver, sent to the executors with its options."""

    def __init__(self, options: ReadOptions, plan: ColumnPlan) -> None:
        self.options = options
        self.plan = plan
        self.pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """Plan the offset ranges, one Spark partition for each; small ones of several partitions share one."""
        options, pushed, assigned = self.options, self.pushed, self.options.selection.assign
        settle_in()
        with new_cluster(options) as cluster:
            every_place = planning.find_partitions(cluster, options)
            bounds = planning.find_bounds(cluster, planning.needed_places(cluster, every_place, options, pushed))
            starts, bounds = planning.resolve(cluster, options.starting, bounds, every_place, assigned)
            ends, bounds = planning.resolve(cluster, options.ending, bounds, every_place, assigned)
            planning.check_order(options.starting, options.ending, starts, ends, bounds)
            ranges, losses = plan_ranges(starts, ends, bounds, cluster.topic_ids)
            planning.report_losses(losses, fail=options.fail_on_data_loss)
            ranges = planning.cut_by_filters(cluster, ranges, options, pushed)
            ranges = planning.split(cluster, options, ranges, bounds)
            if not planning.may_share(options, ranges):
                return [RangePartition(each) for each in ranges]
            densities = planning.sized(cluster, bounds, {(each.topic, each.partition) for each in ranges})
        return [RangePartition(*share) for share in gather(ranges, densities, planning.SHARE_BYTES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run on an executor: yield the range's records as Arrow batches."""
        return read_range(self.options, self.plan, partition, self.pushed)


class PushingBatchReader(BatchReader):
    """A reader that takes filters; Spark refuses one while spark.sql.python.filterPushdown.enabled is false."""

    def pushFilters(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Keep the filters that spare reading, return the others."""
        columns, key_format = set(self.plan.taken), self.options.key_format
        if key_format not in ("binary", "string"):
            columns.discard("key")  # what is compared with is the key as it reads, not as it is stored
        self.pushed, left = push(filters, columns, key_format == "string")
        log.info("filters pushed: %s; left to Spark: %s", ", ".join(self.pushed.said) or "none", left or "none")
        return left
