"""What a streaming query reads next, decided on the driver: lives as long as the query, holds one set of connections.

A topic that was deleted, or deleted and made again under its name (told by its topic id), is data loss: an error, or
with failOnDataLoss=false one micro-batch whose end leaves the topic out, so that the next one finds it as a new topic
and reads it from its first record. The checkpoint holds the ids beside the offsets, for what happens while the query is
down. With a checkpoint of before, which has none, a topic made again is told by an end before the offsets read so far.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.offsets import EARLIEST, LATEST
from kbroker.spark_connector import planning
from kbroker.spark_connector.group_commits import GroupCommits
from kbroker.spark_connector.offset_ranges import Bounds, OffsetRange, gather, plan_ranges
from kbroker.spark_connector.read_options import ReadOptions, TriggerLimits
from kbroker.spark_connector.stream_offsets import Offsets, are_two, count_new, end_of_batch, lost_between
from kbroker.spark_connector.tasks import new_cluster

if TYPE_CHECKING:
    from kbroker.client.plain_cluster import PlainCluster

log = logging.getLogger(__name__)
REMADE = "Records may be missing"
SIZED_S = 60.0


class StreamPlanner:
    """Offsets are next offsets by (topic, partition)."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.newest: Offsets | None = None
        """The ends of the partitions when they were last asked for."""
        self._cluster: PlainCluster | None = None
        self.topic_ids: dict[str, bytes] = {}
        """Of the topics as they were when they were last read."""
        self._target: Offsets | None = None
        self._target_ids: dict[str, bytes] = {}
        """Of the topics whose ends `_target` are."""
        self._group = GroupCommits(options) if options.commit_group else None
        self._last_batch_at = float("-inf")
        self._densities: dict[Key, float] = {}
        """Bytes of an offset in the partitions of `_sized`, where the brokers tell; asked for again now and then."""
        self._sized: set[Key] = set()
        self._sized_until = float("-inf")

    @property
    def cluster(self) -> PlainCluster:
        """Return the connections, made when they are first needed."""
        if self._cluster is None:
            self._cluster = new_cluster(self.options)
        return self._cluster

    def close(self) -> None:
        """Close the connections; what the group was told last gets a little time to arrive."""
        if self._group is not None:
            self._group.close()
        if self._cluster is not None:
            self._cluster.close()

    def first(self) -> Offsets:
        """Return where a new query begins."""
        places = planning.find_partitions(self.cluster, self.options)
        bounds = planning.find_bounds(self.cluster, places)
        assigned = self.options.selection.assign
        starts, bounds = planning.resolve(self.cluster, self.options.starting, bounds, places, assigned)
        _, losses = plan_ranges(starts, {place: each.latest for place, each in bounds.items()}, bounds)
        planning.report_losses(losses, fail=self.options.fail_on_data_loss)
        self.topic_ids = dict(self.cluster.topic_ids)
        return {place: min(max(starts[place], bounds[place].earliest), bounds[place].latest) for place in places}

    def remember(self, topic_ids: Mapping[str, bytes]) -> None:
        """Learn the ids of topics as the checkpoint knows them."""
        self.topic_ids |= topic_ids

    def stop_at_newest(self) -> None:
        """Read no further than what there is now (Trigger.AvailableNow)."""
        self._target = self._ask_newest({})
        self._target_ids = dict(self.cluster.topic_ids)

    def next_end(self, start: Offsets, limits: TriggerLimits, now: float | None = None) -> Offsets:
        """Return where the micro-batch after `start` ends; `start` itself when it is not time for one."""
        newest = self._ask_newest(start)
        if self._target is not None:  # no further than that; topics made since then are the next query's
            farthest = self._up_to_target(start)
            newest = {place: min(end, farthest[place]) for place, end in newest.items() if place in farthest}
        self.commit(start)
        self.newest = newest
        latest = self._without_lost(start, newest)
        begins = {**self._begins_of_new(start, latest), **start}
        now = time.monotonic() if now is None else now
        if self._target is None and self._is_too_early(count_new(begins, latest), limits, now):
            return start
        density: dict[Key, float] = {}
        if limits.max_bytes is not None:
            growing = [place for place, end in latest.items() if end > begins[place]]
            bounds = planning.find_bounds(self.cluster, growing)
            density = planning.bytes_per_offset(self.cluster, bounds, growing, is_needed=True)
            planning.report_unsized(place for place in growing if place not in density)
        end = end_of_batch(begins, latest, limits, density)
        if end != start:
            self._last_batch_at = now
        elif self._group is not None:
            self._group.settle()
        return end

    def ranges(self, start: Offsets, end: Offsets, start_ids: Mapping[str, bytes] | None = None) -> list[OffsetRange]:
        """Return the ranges of the micro-batch from `start` to `end`, maybe planned in an earlier life of the query.

        `start_ids` are the topics' ids as they stand beside `start`: when a query goes on, Spark 4.1 has `end` planned
        without a word of `start`, and what was lost between the two is found here.
        """
        there = {place for place in self._find_partitions() if place in end}
        replaced = {topic for topic, _ in there if are_two((start_ids or {}).get(topic), self.topic_ids.get(topic))}
        bounds = self._bounds_of(there, end)
        remade = {topic for topic, _ in there if self._is_remade(topic)}
        starts = {p: bounds[p].earliest if p[0] in replaced else start.get(p, bounds[p].earliest) for p in there}
        left = {place: offset for place, offset in end.items() if place in there}
        lost = lost_between(end, left, remade) + lost_between(start, left, remade | replaced)
        lost += [
            f"new partition {topic}-{partition} begins at offset {bounds[topic, partition].earliest} instead of 0"
            for topic, partition in sorted(there - start.keys())
            if topic not in remade and min(bounds[topic, partition].earliest, end[topic, partition]) > 0
        ]
        planning.report("; ".join(dict.fromkeys(lost)), REMADE, fail=self.options.fail_on_data_loss)
        readable = {p: each for p, each in bounds.items() if p[0] not in remade and starts[p] <= end[p]}
        ranges, losses = plan_ranges(starts, end, readable, self.cluster.topic_ids)
        planning.report_losses(losses, fail=self.options.fail_on_data_loss)
        return planning.split(self.cluster, self.options, ranges, bounds)

    def shares(
        self,
        start: Offsets,
        end: Offsets,
        start_ids: Mapping[str, bytes] | None = None,
        now: float | None = None,
    ) -> list[tuple[OffsetRange, ...]]:
        """Return the ranges of a micro-batch, one for each Spark task; small ones of several partitions together.

        A task costs more than reading some records does: a query that follows a slow topic of many partitions is late
        by the tasks it starts. With minPartitions or maxRecordsPerPartition each range is a task, as there.
        """
        ranges = self.ranges(start, end, start_ids)
        if not planning.may_share(self.options, ranges):
            return [(each,) for each in ranges]
        places = {(each.topic, each.partition) for each in ranges}
        now = time.monotonic() if now is None else now
        if now >= self._sized_until or not places <= self._sized:
            bounds = planning.find_bounds(self.cluster, places)
            self._densities = planning.sized(self.cluster, bounds, places)
            self._sized, self._sized_until = places, now + SIZED_S
        return gather(ranges, self._densities, planning.SHARE_BYTES)

    def commit(self, offsets: Mapping[Key, int]) -> None:
        """Tell the consumer group, if there is one; nobody waits for it."""
        if self._group is not None and offsets:
            self._group.tell(offsets)

    def _ask_newest(self, start: Offsets) -> Offsets:
        """Return the partitions' ends; one before what was read of the same topic, or was there already, is asked for
        again before it counts.

        So a leader answers that is none any more and does not know it, or has yet to learn what was committed.
        """
        from kbroker.client.plain_cluster import Patience

        patience = Patience(self.cluster.retry_for)
        while True:
            newest = self.cluster.offsets(self._find_partitions(), LATEST)
            known = {p: end for p, end in start.items() if p[0] in self.topic_ids and not self._is_remade(p[0])}
            least = self._up_to_target(known)
            if all(end >= least.get(place, end) for place, end in newest.items()) or not patience.pause():
                return newest

    def _bounds_of(self, there: Collection[Key], end: Offsets) -> dict[Key, Bounds]:
        """Return what the partitions hold; less than a micro-batch that was planned is asked for again as well."""
        from kbroker.client.plain_cluster import Patience

        patience = Patience(self.cluster.retry_for)
        while True:
            bounds = planning.find_bounds(self.cluster, there)
            short = [place for place in there if bounds[place].latest < end[place] and not self._is_remade(place[0])]
            if not short or not patience.pause():
                return bounds

    def _up_to_target(self, offsets: Offsets) -> Offsets:
        """Return the offsets, moved up to the ends that were there when the query began, of topics still the same."""
        moved = dict(offsets)
        for place, end in (self._target or {}).items():
            if not are_two(self._target_ids.get(place[0]), self.cluster.topic_ids.get(place[0])):
                moved[place] = max(end, offsets.get(place, end))
        return moved

    def _find_partitions(self) -> list[Key]:
        """Return the partitions that there are; without deleted topics where those may be missing."""
        from kbroker.client.errors import UnknownTopicOrPartitionError

        try:
            return planning.find_partitions(self.cluster, self.options)
        except UnknownTopicOrPartitionError as error:
            if self.options.selection.subscribe_pattern:
                raise  # brokers disagree on what there is
            planning.report(str(error), "The topic was deleted", fail=self.options.fail_on_data_loss)
        selection, left = self.options.selection, self.cluster.topics()
        places = self.cluster.partitions({*selection.subscribe, *(topic for topic, _ in selection.assign)} & {*left})
        return sorted(places.intersection(selection.assign) if selection.assign else places)

    def _is_remade(self, topic: str) -> bool:
        return are_two(self.topic_ids.get(topic), self.cluster.topic_ids.get(topic))

    def _without_lost(self, start: Offsets, newest: Offsets) -> Offsets:
        """Return the ends of the partitions that `start` knows or that are new; report those that lost records."""
        remade = {topic for topic, _ in start if self._is_remade(topic)}
        planning.report("; ".join(lost_between(start, newest, remade)), REMADE, fail=self.options.fail_on_data_loss)
        latest = {place: end for place, end in newest.items() if place not in start or place[0] not in remade}
        for place in start.keys() & latest.keys():
            if latest[place] < start[place] and place[0] not in self.topic_ids:
                del latest[place]  # not known from before: most likely another topic of that name
        self.topic_ids = dict(self.cluster.topic_ids)
        return latest

    def _begins_of_new(self, start: Offsets, latest: Offsets) -> Offsets:
        """Partitions and topics that were not there before are read from their first record."""
        fresh = [place for place in latest if place not in start]
        return self.cluster.offsets(fresh, EARLIEST) if fresh else {}

    def _is_too_early(self, count: int, limits: TriggerLimits, now: float) -> bool:
        if limits.min_offsets is None or count >= limits.min_offsets:
            return False
        return now - self._last_batch_at < limits.max_delay_ms / 1000
