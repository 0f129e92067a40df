"""What the driver asks the brokers while it plans: which partitions there are, what they hold, how large they are."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.protocol.grouping import Key
from kbroker.spark_connector.filters import FARTHEST, Pushed
from kbroker.spark_connector.offset_ranges import Bounds, DataLoss, OffsetRange, split_ranges
from kbroker.spark_connector.offset_specs import OffsetSpec
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.read_options import ReadOptions

if TYPE_CHECKING:
    from kbroker.client.plain_cluster import PlainCluster

log = logging.getLogger(__name__)
SAMPLE_ROWS = 1_000
SAMPLE_BYTES = 16 << 20
SHARE_BYTES = 1 << 20
"""As stored: up to here the ranges of several partitions are read by one task."""
LEAST_BYTES = 100.0
"""That a record counts for, small as it may be: a row costs time whatever it holds."""


class DataLossError(RuntimeError):
    """Offsets that the query asked for are not there; failOnDataLoss=false reads the rest."""


def find_partitions(cluster: PlainCluster, options: ReadOptions) -> list[Key]:
    """Return the partitions that assign, subscribe or subscribePattern name now, in order."""
    selection = options.selection
    if selection.assign:
        known = cluster.partitions({topic for topic, _ in selection.assign})
        unknown = [f"{topic}-{partition}" for topic, partition in selection.assign if (topic, partition) not in known]
        if unknown and options.fail_on_data_loss:
            raise OptionError(f"assign names partitions that are not there: {', '.join(unknown)}")
        if unknown:
            log.warning("reading what is there: assign names partitions that are not: %s", ", ".join(unknown))
        return [place for place in selection.assign if place in known]
    if selection.subscribe_pattern:
        return sorted(_matching(cluster, selection.subscribe_pattern))
    return sorted(cluster.partitions(selection.subscribe))


def _matching(cluster: PlainCluster, pattern: str) -> set[Key]:
    """Return the partitions of the topics that match; one that is gone when it is asked about is none of them."""
    from kbroker.client.errors import UnknownTopicOrPartitionError
    from kbroker.spark_connector.java_pattern import java_pattern

    wanted = java_pattern(pattern)
    topics = {name for name in cluster.topics() if wanted.fullmatch(name)}
    while True:
        try:
            return cluster.partitions(topics)
        except UnknownTopicOrPartitionError:
            left = topics.intersection(cluster.topics())
            if left == topics:
                raise
            topics = left


def find_bounds(cluster: PlainCluster, places: Collection[Key]) -> dict[Key, Bounds]:
    """Return what each partition holds now."""
    return {place: Bounds(*found) for place, found in cluster.bounds(places).items()}


def resolve(
    cluster: PlainCluster,
    spec: OffsetSpec,
    bounds: Mapping[Key, Bounds],
    every_place: Collection[Key],
    assigned: Collection[Key] = (),
) -> tuple[dict[Key, int], dict[Key, Bounds]]:
    """Return the offset that an option means in each partition of `bounds`, and the bounds with these offsets in them.

    The option must name `every_place`, if any. A record that is found by its time may have come after the bounds.
    """
    try:
        spec.check_covers(every_place, assigned)
        times = spec.times(bounds)
        found = cluster.offsets(times, times) if times else {}
        wider = {place: replace(each, latest=max(each.latest, found.get(place, -1))) for place, each in bounds.items()}
        return spec.resolve(wider, found), wider
    except ValueError as error:
        raise OptionError(str(error)) from error


def check_order(
    starting: OffsetSpec,
    ending: OffsetSpec,
    starts: Mapping[Key, int],
    ends: Mapping[Key, int],
    bounds: Mapping[Key, Bounds],
) -> None:
    """Refuse a read that ends before it begins, as Spark does; a start behind all that is there is data loss."""
    for place, start in sorted(starts.items()):
        fixed = starting.is_fixed(place) and ending.is_fixed(place)
        if fixed and start > ends[place] < bounds[place].latest:
            raise OptionError(
                f"{place[0]}-{place[1]}: {starting.option} is offset {start}, {ending.option} is {ends[place]}:"
                f" the read would end before it begins"
            )


def needed_places(cluster: PlainCluster, places: Collection[Key], options: ReadOptions, pushed: Pushed) -> list[Key]:
    """Return the partitions that can hold rows which pass the filters."""
    allowed = [place for place in places if pushed.allows(place)]
    if options.partitioned_by_key and pushed.keys is not None:
        counts = Counter(topic for topic, _ in cluster.partitions({topic for topic, _ in allowed}))
        with_keys = pushed.key_places(counts)
        allowed = [place for place in allowed if with_keys is None or place in with_keys]
    return allowed


def cut_by_filters(
    cluster: PlainCluster, ranges: Sequence[OffsetRange], options: ReadOptions, pushed: Pushed
) -> list[OffsetRange]:
    """Cut ranges to the offsets and times that pass the filters.

    Behind the first record at or after an end there may be older ones, where producers give times: the end is a seek
    only as far as maxTimestampDisorderMs says how much the times may be out of order.
    """
    low, high = pushed.offsets.low, pushed.offsets.high
    cut = [replace(each, start=max(each.start, low), end=min(each.end, high + 1)) for each in ranges]
    cut = [each for each in cut if each.start < each.end]
    places = [(each.topic, each.partition) for each in cut]
    if pushed.start_ms is not None and cut:
        found = cluster.offsets(places, pushed.start_ms)
        begins = {place: offset if offset >= 0 else FARTHEST for place, offset in found.items()}
        cut = [replace(each, start=max(each.start, begins[each.topic, each.partition])) for each in cut]
    if pushed.end_ms is not None and options.max_disorder_ms is not None and cut:
        found = cluster.offsets(places, pushed.end_ms + options.max_disorder_ms)
        ends = {place: offset if offset >= 0 else FARTHEST for place, offset in found.items()}
        cut = [replace(each, end=min(each.end, ends[each.topic, each.partition])) for each in cut]
    return [each for each in cut if each.start < each.end]


def report_losses(losses: Sequence[DataLoss], *, fail: bool) -> None:
    """Raise DataLossError, or log the losses."""
    report("; ".join(str(loss) for loss in losses), "Records were deleted (retention) or never written", fail=fail)


def report(message: str, reason: str, *, fail: bool) -> None:
    """Raise DataLossError, or log it; an empty message is nothing to report."""
    if message and fail:
        raise DataLossError(f"{message}. {reason}; failOnDataLoss=false reads the rest")
    if message:
        log.warning("reading what is there: %s", message)


def report_unsized(places: Iterable[Key]) -> None:
    """Refuse to go on where maxBytesPerTrigger limits nothing, for want of the partitions' sizes."""
    unknown = [f"{topic}-{partition}" for topic, partition in places]
    if unknown:
        raise OptionError(
            f"maxBytesPerTrigger cannot be kept: the brokers do not tell the sizes of {', '.join(unknown)} (that takes"
            f" the right to describe the cluster); maxOffsetsPerTrigger needs none"
        )


def split(
    cluster: PlainCluster,
    options: ReadOptions,
    ranges: Sequence[OffsetRange],
    bounds: Mapping[Key, Bounds],
) -> list[OffsetRange]:
    """Cut ranges as minPartitions and maxRecordsPerPartition wish, by the partitions' sizes in bytes."""
    density: dict[Key, float] = {}
    if options.min_partitions is not None and len(ranges) < options.min_partitions:
        density = bytes_per_offset(cluster, bounds, {(each.topic, each.partition) for each in ranges})
    return split_ranges(ranges, options.min_partitions, options.max_records_per_partition, density)


def sized(cluster: PlainCluster, bounds: Mapping[Key, Bounds], places: Collection[Key]) -> dict[Key, float]:
    """Return the bytes that an offset counts for when ranges are gathered into tasks."""
    return {place: max(each, LEAST_BYTES) for place, each in bytes_per_offset(cluster, bounds, places).items()}


def may_share(options: ReadOptions, ranges: Sequence[OffsetRange]) -> bool:
    """Whether a task may read several ranges; minPartitions and maxRecordsPerPartition say how many tasks there are."""
    return len(ranges) > 1 and options.min_partitions is None and options.max_records_per_partition is None


def sample(options: ReadOptions, column: str, rows: int = SAMPLE_ROWS) -> Iterator[bytes]:
    """Yield the newest keys or values (`column` says which) of all partitions, for a look at them.

    No more than SAMPLE_BYTES, of each partition its share, or a little more than that. What cannot be read is the
    query's to tell when it comes to it: the rest shows the form as well.
    """
    from kbroker.client.range_reader import RangeReader
    from kbroker.spark_connector.tasks import new_cluster

    with new_cluster(options) as cluster:
        bounds = find_bounds(cluster, find_partitions(cluster, options))
        filled = [(place, each) for place, each in bounds.items() if each.latest > each.earliest][:rows]
        for place, each in filled:
            first = max(each.earliest, each.latest - max(1, rows // len(filled)))
            left = share = SAMPLE_BYTES // len(filled)
            for batch in RangeReader(
                cluster, *place, first, each.latest, max_bytes=share, skip_gone=True, skip_corrupt=True
            ):
                yield from batch[column].drop_null().to_pylist()
                left -= batch.nbytes
                if left <= 0:
                    break


def bytes_per_offset(
    cluster: PlainCluster,
    bounds: Mapping[Key, Bounds],
    places: Iterable[Key],
    *,
    is_needed: bool = False,
) -> dict[Key, float]:
    """Return how many bytes an offset has on average, as stored; of partitions whose size the brokers tell.

    Only where it is needed they are asked again: a plan is good without, and late by the time that it waits.
    """
    from kbroker.protocol.errors import KafkaError

    wanted = list(places)
    try:
        sizes = cluster.sizes(wanted, retry_for=None if is_needed else 0.0)
    except (KafkaError, OSError) as error:
        log.warning("the sizes of partitions are not known, offsets count instead: %s", error)
        return {}
    known = [place for place in wanted if place in sizes]
    return {place: sizes[place] / max(1, bounds[place].latest - bounds[place].earliest) for place in known}
