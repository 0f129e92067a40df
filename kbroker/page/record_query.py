"""Which records somebody wants to see: read from an address. Pure.

from       end (the newest), start, offset, time, live (what comes from now on)
at         the offset, or the time: 2026-01-31T12:00 (UTC), milliseconds since 1970, or 90s, 30m, 12h, 7d ago
partition  a number; default: all, or the one that holds the key
key        only records with exactly this key, looked for where the partitioner (default: Java's) puts it
text       only records that contain it in their key, value or headers
where      only records for which the expression (expressions.py) is true
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from kbroker.client.partitioners import BY_NAME
from kbroker.page.expressions import compile_expression
from kbroker.protocol.records.partitioner import partition_for_key
from kbroker.protocol.records.record import Record

Start = Literal["end", "start", "offset", "time", "live"]
STARTS: tuple[Start, ...] = ("end", "start", "offset", "time", "live")
SHOWN_BY_DEFAULT = 50
MOST_SHOWN = 1_000
AGO = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
PARTITIONERS = ("murmur2_random", "consistent_random", "fnv1a_random", "")
"""Of keys: Java's, librdkafka's, Sarama's; "": not known, so that a key may be anywhere."""


class WrongQuery(ValueError):
    """The address asks for something that cannot be."""


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """What is wanted; `at` is an offset or milliseconds, `limit` None without one."""

    start: Start = "end"
    at: int = 0
    partition: int | None = None
    key: bytes | None = None
    text: bytes = b""
    where: str = ""
    limit: int | None = SHOWN_BY_DEFAULT
    partitioner: str = PARTITIONERS[0]

    def matcher(self) -> Callable[[Record], bool] | None:
        """Return what says whether a record is wanted; None: all are."""
        tests: list[Callable[[Record], bool]] = []
        key, text = self.key, self.text
        if key is not None:
            tests.append(lambda record: record.key is not None and bytes(record.key) == key)
        if text:
            tests.append(lambda record: _contains(record, text))
        if self.where:
            tests.append(compile_expression(self.where))
        if not tests:
            return None
        return lambda record: all(test(record) for test in tests)

    def partitions(self, count: int) -> list[int]:
        """Return the partitions to look in, of a topic with so many."""
        if self.partition is not None:
            if self.partition >= count:
                raise WrongQuery(f"the topic has {count} partitions, the first is 0: there is no {self.partition}")
            return [self.partition]
        if self.key is not None and self.partitioner:
            return [partition_for_key(self.key, count, BY_NAME[self.partitioner].hashing)]
        return list(range(count))

    def for_download(self) -> RecordQuery:
        """Return the query for all that match up to the end as it is now, from the start unless a place is given."""
        start: Start = "start" if self.start in ("end", "live") else self.start
        return replace(self, start=start, limit=None)


def read_query(asked: Mapping[str, str], now_ms: int) -> RecordQuery:
    """Read an address's values; raises WrongQuery."""
    start = asked.get("from", "end")
    if start not in STARTS:
        raise WrongQuery(f"{start!r} is no place to begin: {', '.join(STARTS)} are")
    at = asked.get("at", "").strip()
    key = asked.get("key", "")
    partitioner = asked.get("partitioner", PARTITIONERS[0])
    if partitioner not in PARTITIONERS:
        raise WrongQuery(f"{partitioner!r} is not known: {', '.join(filter(None, PARTITIONERS))} are")
    partition = asked.get("partition", "").strip()
    query = RecordQuery(
        start,
        0 if start not in ("offset", "time") else _offset(at) if start == "offset" else read_time(at, now_ms),
        _number(partition, "a partition") if partition else None,
        key.encode() if key else None,
        asked.get("text", "").encode(),
        asked.get("where", "").strip(),
        min(max(_number(asked.get("limit") or str(SHOWN_BY_DEFAULT), "a limit"), 1), MOST_SHOWN),
        partitioner,
    )
    query.matcher()
    return query


def read_time(text: str, now_ms: int) -> int:
    """Return milliseconds since 1970; raises WrongQuery."""
    if re.fullmatch(r"[0-9]{5,15}", text):
        return int(text)
    ago = re.fullmatch(r"-?([0-9]{1,9})\s*([smhd])(?: ago)?", text)
    if ago:
        return now_ms - int(ago[1]) * AGO[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        example = "2026-01-31T12:00 (UTC), milliseconds since 1970, or 90s, 30m, 12h, 7d ago"
        raise WrongQuery(f"{text!r} is no time: use {example}") from None


def _contains(record: Record, text: bytes) -> bool:
    if record.value is not None and text in bytes(record.value):
        return True
    if record.key is not None and text in bytes(record.key):
        return True
    return any(text in name.encode() or (value is not None and text in bytes(value)) for name, value in record.headers)


def _number(text: str, what: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise WrongQuery(f"{text!r} is no number of {what.removeprefix('a ')}s")
    return int(text)


def _offset(text: str) -> int:
    return _number(text or "0", "an offset")
