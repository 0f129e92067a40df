"""How old the next record at some offsets is: what a group is behind in time, of any Kafka and of any age."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kbroker.client.client_config import ConsumerConfig
from kbroker.client.consumer import Consumer
from kbroker.client.errors import BrokerError, NotConnected
from kbroker.client.settings import setting_name, settings_of
from kbroker.client.types import TopicPartition
from kbroker.protocol.records.record import Record

MOST_PLACES = 200
"""Those farthest from their ends are looked at."""
WITHIN_S = 5.0
"""Usually some ten milliseconds do."""
SOME_BATCHES = 16_384
"""Bytes of a partition: small batches of many come in one answer, of larger ones each in its own."""
POLL_S = 0.25
POLL_RECORDS = 500
Place = tuple[TopicPartition, int]
"""A partition and the offset that would be read next."""
Waiting = dict[TopicPartition, list[int]]
"""The offsets of which nothing is known yet, the lowest last."""


async def record_ages(bootstrap: str, settings: Mapping[str, Any], ends: Mapping[Place, int]) -> dict[Place, int]:
    """Return how old the next record at each place is, in ms by its own timestamp; without those not told in time.

    `settings`: an Admin's. `ends`: of each place, where the partition ends. 0: up to there nothing is left but markers
    of transactions and what compaction has removed. Of topics that may not be read nothing is told, without an error.
    """
    found: dict[Place, int] = {}
    waiting: Waiting = defaultdict(list)
    farthest = heapq.nlargest(
        MOST_PLACES, (place for place in ends if ends[place] > place[1]), lambda at: ends[at] - at[1]
    )
    for key, offset in sorted(farthest, reverse=True):
        waiting[key].append(offset)
    if not waiting:
        return found
    with contextlib.suppress(TimeoutError, NotConnected):
        async with asyncio.timeout(WITHIN_S):
            await _look(bootstrap, settings, ends, waiting, found)
    return found


async def _look(
    bootstrap: str, settings: Mapping[str, Any], ends: Mapping[Place, int], waiting: Waiting, found: dict[Place, int]
) -> None:
    """Read until nothing is waited for."""
    known = {each.name for each in settings_of(ConsumerConfig)}
    arguments = {name: value for name, value in settings.items() if setting_name(name) in known}
    arguments |= {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": SOME_BATCHES}
    async with Consumer(bootstrap, **arguments) as consumer:
        await consumer.cluster.refresh({key.topic for key in waiting})  # at once, not topic by topic
        while waiting:
            try:
                await consumer.assign(waiting)
                _skip(consumer, waiting)
                records = await consumer.poll(POLL_S, POLL_RECORDS)
            except BrokerError as error:
                unread = [
                    key for key in waiting if key.topic == error.topic and error.partition in (None, key.partition)
                ]
                if not unread:
                    raise
                for key in unread:
                    del waiting[key]
                continue
            _note(records, waiting, found)
            _note_ends(consumer.positions, ends, waiting, found)


def _skip(consumer: Consumer, waiting: Waiting) -> None:
    """Go to the next place of each partition."""
    for key, position in consumer.positions.items():
        if position < waiting[key][-1]:
            consumer.seek(key, waiting[key][-1])


def _note(records: Iterable[Record], waiting: Waiting, found: dict[Place, int]) -> None:
    """A record is the next one of all places at it and before."""
    now_ms = int(time.time() * 1000)
    for record in records:
        key = TopicPartition(record.topic, record.partition)
        offsets = waiting.get(key, [])
        while offsets and offsets[-1] <= record.offset:
            offset = offsets.pop()
            if record.timestamp >= 0:
                found[key, offset] = max(0, now_ms - record.timestamp)
        if not offsets:
            waiting.pop(key, None)


def _note_ends(
    positions: Mapping[TopicPartition, int], ends: Mapping[Place, int], waiting: Waiting, found: dict[Place, int]
) -> None:
    """Where a partition was read to its end there was no record."""
    for key in list(waiting):
        offset = waiting[key][-1]
        if positions[key] >= ends[key, offset]:
            found |= {(key, each): 0 for each in waiting.pop(key)}


def age_text(ms: float) -> str:
    """A time span in its two largest units."""
    if ms < 1000:
        return f"{max(0, ms):.0f} ms"
    seconds = int(ms // 1000)
    parts = (
        (seconds // 86_400, "d"),
        (seconds // 3600 % 24, "h"),
        (seconds // 60 % 60, "min"),
        (seconds % 60, "s"),
    )
    first = next(index for index, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)
