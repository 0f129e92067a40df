"""What runs on an executor: a range of a partition, read as Arrow batches over connections that stay open.

Nothing here, and nothing that Spark unpickles for it, imports more than the client and pyarrow.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from kbroker.spark_connector.columns import ColumnPlan
from kbroker.spark_connector.filters import Pushed
from kbroker.spark_connector.offset_ranges import OffsetRange
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.read_options import ReadOptions
from kbroker.spark_connector.worker_process import settle_in

if TYPE_CHECKING:
    import pyarrow as pa

    from kbroker.client.plain_cluster import PlainCluster

CLUSTERS: dict[tuple[object, ...], PlainCluster] = {}
"""One per Python worker and set of client options: Spark reuses workers, so tasks find connections open."""

log = logging.getLogger(__name__)
NOTHING_PUSHED = Pushed()


@dataclass
class RangePartition(InputPartition):
    """One Spark task's share of the read: one range, or several small ones."""

    ranges: tuple[OffsetRange, ...]

    def __init__(self, *ranges: OffsetRange) -> None:
        super().__init__(None)
        self.ranges = ranges


def new_cluster(options: ReadOptions) -> PlainCluster:
    """Return a cluster of the options' brokers, for what the driver asks."""
    from kbroker.client.plain_cluster import PlainCluster

    try:
        cluster = PlainCluster(options.bootstrap, {"client_id": "kbroker-spark", **options.client})
    except ValueError as error:
        raise OptionError(f"one of the options kafka.* is wrong: {error}") from error
    cluster.retry_for += options.further_patience_ms / 1000
    return cluster


def read_range(
    options: ReadOptions, plan: ColumnPlan, partition: InputPartition, pushed: Pushed = NOTHING_PUSHED
) -> Iterator[pa.RecordBatch]:
    """Yield the ranges' records that pass the filters as Arrow batches of the frame's columns."""
    if not isinstance(partition, RangePartition):  # Spark's stand-in for a plan without partitions
        return
    for share in partition.ranges:
        yield from _read_one(options, plan, share, pushed)


def _read_one(options: ReadOptions, plan: ColumnPlan, share: OffsetRange, pushed: Pushed) -> Iterator[pa.RecordBatch]:
    from kbroker.client.errors import OffsetOutOfRangeError
    from kbroker.client.range_reader import RangeReader
    from kbroker.spark_connector.planning import DataLossError
    from kbroker.spark_connector.typed_rows import TypedRows

    settle_in()
    reader = RangeReader(
        _cluster(options),
        share.topic,
        share.partition,
        share.start,
        share.end,
        include_headers="headers" in plan.taken,
        topic_id=share.topic_id,
        skip_gone=not options.fail_on_data_loss,
        skip_corrupt=not options.fail_on_data_loss,
    )
    rows = TypedRows(options, plan)
    try:
        for batch in reader:
            passing = _passing(batch, pushed)
            if passing.num_rows:
                yield rows.convert(passing)
    except OffsetOutOfRangeError as error:
        raise DataLossError(
            f"{error}. Records were deleted (retention) after the read was planned; failOnDataLoss=false reads the rest"
        ) from error
    if rows.malformed:
        log.warning("%s-%d: %d malformed rows (mode=%s)", share.topic, share.partition, rows.malformed, options.mode)


def _passing(batch: pa.RecordBatch, pushed: Pushed) -> pa.RecordBatch:
    """Return the rows that pass the filters of timestamp and key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = pushed.timestamps_us
    if times != NOTHING_PUSHED.timestamps_us:
        microseconds = batch["timestamp"].cast(pa.int64())
        batch = batch.filter(
            pc.and_(pc.greater_equal(microseconds, times.low), pc.less_equal(microseconds, times.high))
        )
    if pushed.keys is not None:
        batch = batch.filter(pc.is_in(batch["key"], value_set=pa.array(sorted(pushed.keys), pa.binary())))
    return batch


def _cluster(options: ReadOptions) -> PlainCluster:
    key = (os.getpid(), options.bootstrap, options.poll_timeout_ms, *sorted(options.client.items()))
    cluster = CLUSTERS.get(key)
    if cluster is None:
        cluster = CLUSTERS[key] = new_cluster(options)
        if options.poll_timeout_ms is not None:
            cluster.retry_for = options.poll_timeout_ms / 1000
    return cluster
