"""Looking for records in a topic, without keeping those that nobody asked for.

Forwards, each partition is read from its place to where it ended when the search began. For the newest, partitions are
read in windows from their ends towards their beginnings; a window grows as long as nothing is found. A live tail has no
end. Each step tells what was found and how far the search is, so that whoever shows it can stop between two steps.
Records are looked at in a thread: one may have a hundred megabytes, and whoever else looks at the page does not wait.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeAlias, TypeVar

from kbroker.client.consumer import Consumer
from kbroker.client.types import TopicPartition
from kbroker.page.held import Held, size_of
from kbroker.page.record_query import RecordQuery
from kbroker.protocol.records.record import Record

T = TypeVar("T")
Matcher = Callable[[Record], bool] | None
"""None: all match."""
POLL_S = 0.25
POLL_RECORDS = 2_000
POLL_BYTES = 16 << 20
SMALLEST_SEARCH = 1_000
LARGEST_WINDOW = 100_000
"""Records of a partition that are read before those older than them."""


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """What a part of the search has found, as it is kept; `total` is None where there is no end."""

    records: list[T]
    scanned: int
    total: int | None


class Pace:
    """How many records to ask for: one at first, and no more than have POLL_BYTES if all are as large as the largest.

    A fetch of a few kilobytes may hold gigabytes once they are decompressed.
    """

    def __init__(self) -> None:
        self.records = 1

    def note(self, records: Iterable[Record]) -> None:
        """Learn from what came."""
        largest = max((size_of((record,)) for record in records), default=0)
        if largest:
            self.records = max(1, min(4 * self.records, POLL_BYTES // largest, POLL_RECORDS))


async def scan(
    consumer: Consumer, keys: list[TopicPartition], query: RecordQuery, keep: Callable[[Record], T], held: Held
) -> AsyncGenerator[Step[T], None]:
    """Search partitions, all with a leader; ends when all is read or as much is found as is wanted.

    `keep` says what is kept of a record, in a thread. The records of a step are held until the next one is asked for.
    """
    if query.start == "live":
        steps = _live(consumer, keys, query, keep, held)
    elif query.start == "end":
        steps = _backwards(consumer, keys, query, keep, held)
    else:
        steps = _forwards(consumer, keys, query, keep, held)
    left = query.limit
    async with aclosing(steps):
        async for step in steps:
            if left is None:
                yield step
                continue
            yield Step(step.records[:left], step.scanned, step.total)
            left -= len(step.records)
            if left <= 0:
                return


async def _live(
    consumer: Consumer, keys: list[TopicPartition], query: RecordQuery, keep: Callable[[Record], T], held: Held
) -> AsyncGenerator[Step[T], None]:
    await consumer.assign(keys)
    await consumer.seek_to_end()
    matches = query.matcher()
    scanned = 0
    pace = Pace()
    yield Step([], 0, None)
    while True:
        records = await consumer.poll(2 * POLL_S, pace.records)
        pace.note(records)
        scanned += len(records)
        async with held.hold(size_of(records)):
            yield Step(await asyncio.to_thread(_found, records, matches, keep, None), scanned, None)


async def _forwards(
    consumer: Consumer, keys: list[TopicPartition], query: RecordQuery, keep: Callable[[Record], T], held: Held
) -> AsyncGenerator[Step[T], None]:
    first, ends = await consumer.beginning_offsets(keys), await consumer.end_offsets(keys)
    starts = dict(first)
    if query.start == "offset":
        starts = {key: max(query.at, first[key]) for key in keys}
    elif query.start == "time":
        found = await consumer.offsets_for_times(dict.fromkeys(keys, query.at))
        starts = {key: ends[key] if (place := found[key]) is None else place.offset for key in keys}
    ranges = {key: (starts[key], ends[key]) for key in keys if starts[key] < ends[key]}
    total = sum(end - start for start, end in ranges.values())
    matches = query.matcher()
    yield Step([], 0, total)
    async with aclosing(_read(consumer, ranges, held)) as pieces:
        async for records, scanned in pieces:
            yield Step(await asyncio.to_thread(_found, records, matches, keep, query.limit), scanned, total)


async def _backwards(
    consumer: Consumer, keys: list[TopicPartition], query: RecordQuery, keep: Callable[[Record], T], held: Held
) -> AsyncGenerator[Step[T], None]:
    first, ends = await consumer.beginning_offsets(keys), await consumer.end_offsets(keys)
    total = sum(ends[key] - first[key] for key in keys)
    wanted = query.limit or LARGEST_WINDOW
    matches = query.matcher()
    window, before = wanted if matches is None else max(wanted, SMALLEST_SEARCH), 0
    upper = dict(ends)
    yield Step([], 0, total)
    while any(upper[key] > first[key] for key in keys):
        ranges = {key: (max(first[key], upper[key] - window), upper[key]) for key in keys if upper[key] > first[key]}
        newest: Newest[T] = []
        async with aclosing(_read(consumer, ranges, held)) as pieces:
            async for records, scanned in pieces:
                await asyncio.to_thread(_into, newest, wanted, records, matches, keep)
                yield Step([], before + scanned, total)
        before += sum(end - start for start, end in ranges.values())
        yield Step([entry[3] for entry in sorted(newest, key=lambda entry: entry[:3], reverse=True)], before, total)
        upper |= {key: start for key, (start, _) in ranges.items()}
        window = min(window * 4, LARGEST_WINDOW)


def _found(records: Iterable[Record], matches: Matcher, keep: Callable[[Record], T], most: int | None) -> list[T]:
    """Return what is kept of the first records that match."""
    found = (record for record in records if matches is None or matches(record))
    return [keep(record) for record in islice(found, most)]


Newest: TypeAlias = list[tuple[int, int, int, T]]
"""A heap: timestamp, offset and partition of records, with what is kept of them."""


def _into(
    newest: Newest[T], wanted: int, records: Iterable[Record], matches: Matcher, keep: Callable[[Record], T]
) -> None:
    """Put those that match into the newest, of which so many are wanted."""
    for record in records:
        if matches is None or matches(record):
            place = record.timestamp, record.offset, record.partition
            if len(newest) >= wanted and place < newest[0][:3]:
                continue
            entry = (*place, keep(record))
            (heapq.heappushpop if len(newest) >= wanted else heapq.heappush)(newest, entry)


async def _read(
    consumer: Consumer, ranges: Mapping[TopicPartition, tuple[int, int]], held: Held
) -> AsyncGenerator[tuple[list[Record], int], None]:
    """Give the records of ranges of offsets, with how many offsets are behind; no records where none came in time."""
    if not ranges:
        return
    await consumer.assign(ranges)
    for key, (start, _) in ranges.items():
        consumer.seek(key, start)
    consumer.resume(*ranges)
    left = set(ranges)
    pace = Pace()
    while left:
        records = await consumer.poll(POLL_S, pace.records)
        pace.note(records)
        wanted = [record for record in records if record.offset < ranges[_key(record)][1]]
        positions = consumer.positions
        done = [key for key in left if positions[key] >= ranges[key][1]]
        consumer.pause(*done)
        left.difference_update(done)
        async with held.hold(size_of(wanted)):
            yield wanted, _behind(ranges, positions)


def _behind(ranges: Mapping[TopicPartition, tuple[int, int]], positions: Mapping[TopicPartition, int]) -> int:
    places: Iterable[int] = (min(max(positions[key], start), end) - start for key, (start, end) in ranges.items())
    return sum(places)


def _key(record: Record) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
