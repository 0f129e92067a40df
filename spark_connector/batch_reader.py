"""One batch query: the driver plans offset ranges, each task reads one of them from its leader."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_connector.offset_ranges import (
    EARLIEST,
    LATEST,
    Bounds,
    OffsetRange,
    TopicPartition,
    check_spec_covers,
    plan_ranges,
)
from spark_connector.options import OptionError, ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from kbroker.client.blocking_cluster import BlockingCluster

log = logging.getLogger(__name__)

CLUSTERS: dict[tuple[object, ...], BlockingCluster] = {}
"""One per Python worker and set of client options: Spark reuses workers, so tasks find connections open."""


@dataclass
class RangePartition(InputPartition):
    """One Spark task's share of the read."""

    range: OffsetRange

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(None)
        self.range = offset_range


class DataLossError(RuntimeError):
    """Offsets that the query asked for are not there; failOnDataLoss=false reads the rest."""


class BatchReader(DataSourceReader):
    """Made on the driver, sent to the executors with its options."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        """Plan one Spark partition per topic partition that has records in the range."""
        options = self.options
        with _new_cluster(options) as cluster:
            places = _places(cluster, options)
            _check_specs(options, places)
            earliest = cluster.offsets(places, EARLIEST)
            latest = cluster.offsets(places, LATEST)
        bounds = {place: Bounds(earliest[place], latest[place]) for place in places}
        ranges, lost = plan_ranges(options.starting, options.ending, bounds)
        if lost:
            message = "; ".join(str(loss) for loss in lost)
            if options.fail_on_data_loss:
                raise DataLossError(
                    f"{message}. Records were deleted (retention) or never written; failOnDataLoss=false reads the rest"
                )
            log.warning("reading what is there: %s", message)
        return [RangePartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run on an executor: yield the range's records as Arrow batches."""
        if not isinstance(partition, RangePartition):  # Spark's stand-in for a plan without partitions
            return
        from kbroker.client.range_reader import RangeReader

        share = partition.range
        yield from RangeReader(
            _cluster(self.options),
            share.topic,
            share.partition,
            share.start,
            share.end,
            include_headers=self.options.include_headers,
        )


def _new_cluster(options: ReadOptions) -> BlockingCluster:
    from kbroker.client.blocking_cluster import BlockingCluster

    try:
        return BlockingCluster(options.bootstrap, {"client_id": "kbroker-spark", **options.client})
    except ValueError as error:
        raise OptionError(f"one of the options kafka.* is wrong: {error}") from error


def _cluster(options: ReadOptions) -> BlockingCluster:
    key = (options.bootstrap, *sorted(options.client.items()))
    cluster = CLUSTERS.get(key)
    if cluster is None:
        cluster = CLUSTERS[key] = _new_cluster(options)
    return cluster


def _places(cluster: BlockingCluster, options: ReadOptions) -> list[TopicPartition]:
    selection = options.selection
    if selection.assign:
        known = cluster.partitions({topic for topic, _ in selection.assign})
        unknown = [f"{topic}-{partition}" for topic, partition in selection.assign if (topic, partition) not in known]
        if unknown:
            raise OptionError(f"assign names partitions that are not there: {', '.join(unknown)}")
        return list(selection.assign)
    topics = selection.subscribe
    if selection.subscribe_pattern:
        topics = tuple(name for name in cluster.topics() if re.fullmatch(selection.subscribe_pattern, name))
    return sorted(cluster.partitions(topics)) if topics else []


def _check_specs(options: ReadOptions, places: list[TopicPartition]) -> None:
    try:
        check_spec_covers("startingOffsets", options.starting, places)
        check_spec_covers("endingOffsets", options.ending, places)
    except ValueError as error:
        raise OptionError(str(error)) from error
