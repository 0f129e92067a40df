"""A streaming query's offsets: Spark's JSON form, and how far one micro-batch goes under the limits. Pure.

{"topic":{"0":123,"1":7},        next offset of each partition, as Spark's Kafka source writes it into checkpoints
 "topic@4sYQ…":{}}               the topic's id: no topic is named so, and who reads partitions alone finds none here

A topic that was deleted and made again has another id: by that a query knows it, whatever its offsets are. Checkpoints
of before have no ids, and Spark's source and its startingOffsets take both forms.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Collection, Mapping

from kbroker.protocol.grouping import Key
from kbroker.spark_connector.offset_ranges import NO_ID
from kbroker.spark_connector.read_options import TriggerLimits

Offsets = dict[Key, int]
JsonOffsets = dict[str, dict[str, int]]
BEFORE_ID = "@"
"""No legal name of a topic holds it."""


def to_json(offsets: Mapping[Key, int], topic_ids: Mapping[str, bytes] | None = None) -> JsonOffsets:
    """Return the form of the checkpoint; always in one order, for Spark compares texts."""
    topics: JsonOffsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    for topic in list(topics):
        topic_id = (topic_ids or {}).get(topic, NO_ID)
        if topic_id != NO_ID:
            topics[f"{topic}{BEFORE_ID}{base64.urlsafe_b64encode(topic_id).rstrip(b'=').decode()}"] = {}
    return topics


def from_json(topics: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Read the form of the checkpoint; raises ValueError."""
    try:
        return {
            (topic, int(number)): int(offset) for topic, parts in topics.items() for number, offset in parts.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f'offsets {topics!r} are not of the form {{"topic":{{"0":123}}}}: {error}') from error


def topic_ids_in(topics: Mapping[str, object]) -> dict[str, bytes]:
    """Return the ids that the form of the checkpoint holds; raises ValueError."""
    found = {}
    for topic, _, text in (name.partition(BEFORE_ID) for name in topics if BEFORE_ID in name):
        try:
            found[topic] = base64.urlsafe_b64decode(f"{text}==")
        except binascii.Error as error:
            raise ValueError(f"offsets {topics!r} hold an id of {topic} that is none: {error}") from error
    return found


def are_two(one: bytes | None, other: bytes | None) -> bool:
    """Whether the ids are of two topics, one made in place of the other; unknown ones are of none."""
    return one != other and NO_ID not in (one or NO_ID, other or NO_ID)


def lost_between(start: Mapping[Key, int], end: Mapping[Key, int], remade: Collection[str]) -> list[str]:
    """Say what of `start` goes on nowhere in `end`, each thing once; `remade` are topics of another id by then."""
    lost = []
    for topic, partition in sorted(start):
        now = end.get((topic, partition))
        if now is None:
            lost.append(f"{topic}-{partition} is gone")
        elif topic in remade:
            lost.append(f"topic {topic} was deleted and made again")
        elif now < start[topic, partition]:
            lost.append(f"{topic}-{partition} ends at {now}, before the offset {start[topic, partition]} read so far")
    return list(dict.fromkeys(lost))


def count_new(begins: Mapping[Key, int], latest: Mapping[Key, int]) -> int:
    """Return how many offsets lie between the two."""
    return sum(max(0, end - begins[place]) for place, end in latest.items())


def end_of_batch(
    begins: Mapping[Key, int],
    latest: Mapping[Key, int],
    limits: TriggerLimits,
    bytes_per_offset: Mapping[Key, float],
) -> Offsets:
    """Return where a micro-batch ends: each partition gets its share of the limits, and at least one record."""
    sizes = {place: max(0, end - begins[place]) for place, end in latest.items()}
    share = 1.0
    total = sum(sizes.values())
    if limits.max_offsets is not None and total > limits.max_offsets:
        share = limits.max_offsets / total
    if limits.max_bytes is not None:
        size = sum(count * bytes_per_offset.get(place, 0.0) for place, count in sizes.items())
        if size > limits.max_bytes:
            share = min(share, limits.max_bytes / size)
    if share >= 1.0:
        return dict(latest)
    return {place: begins[place] + _part(sizes[place], share) if sizes[place] else latest[place] for place in latest}


def _part(size: int, share: float) -> int:
    """Return so many offsets of `size`; a small partition is not starved by the large ones."""
    wanted = size * share
    return min(size, math.ceil(wanted) if wanted < 1 else math.floor(wanted))
