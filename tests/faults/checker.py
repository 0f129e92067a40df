"""What must hold after any fault, decided from values alone: what writers were told, what is stored and where.

With acks=all and min.insync.replicas=2 nothing acknowledged is missing and it lies where it was said to be; an
idempotent writer's records are there once and in the order of sending; what a reader has seen stays; every replica has
the same bytes, and its leader-epoch-checkpoint says what its batches say. Each function returns what is wrong,
in words; an empty list is the promise kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kbroker.protocol.records.batch import HEADER, split_batches, verify_crc
from tests.system.writers import UNKNOWN_OFFSET

VALUE = re.compile(rb"(?P<writer>.+)-(?P<number>\d{7})-\.*")
"""What tests.system.writers.value_of makes."""

MOST_PROBLEMS = 20

Place = tuple[int, int]
"""(partition, offset); UNKNOWN_OFFSET where a client was not told."""


@dataclass(frozen=True, slots=True)
class Account:
    """What one writer knows at its end."""

    name: str
    sent: Mapping[int, int]
    """Number -> partition, in the order of sending."""
    acknowledged: Mapping[int, Place]
    """Number -> where it is said to be, in the order of the acknowledgements."""
    failed: frozenset[int] = frozenset()
    """Numbers that the writer was told are not written for sure, or nobody knows."""
    is_idempotent: bool = True


@dataclass(frozen=True, slots=True)
class Replica:
    """One broker's copy of a partition, as its files have it."""

    start: int
    """First offset of the first segment."""
    data: bytes = field(repr=False)
    """All .log files, one behind the other."""
    epochs: tuple[tuple[int, int], ...] = ()
    """leader-epoch-checkpoint: (epoch, first offset)."""


def identify(value: bytes) -> tuple[str, int] | None:
    """The writer and the number of a value; None when no writer made it."""
    match = VALUE.fullmatch(value)
    return None if match is None else (match["writer"].decode(), int(match["number"]))


def check_history(
    accounts: Iterable[Account], stored: Mapping[int, Sequence[bytes]], seen: Mapping[Place, bytes] | None = None
) -> list[str]:
    """Compare what writers were told and what a reader has `seen` with what is stored (partition -> values)."""
    problems: list[str] = []
    by_name = {account.name: account for account in accounts}
    found: dict[str, dict[int, list[Place]]] = {name: {} for name in by_name}
    for partition, values in stored.items():
        for offset, value in enumerate(values):
            who = identify(value)
            if who is None or who[0] not in by_name or by_name[who[0]].sent.get(who[1]) != partition:
                problems.append(f"partition {partition} offset {offset}: nobody sent {value[:40]!r} there")
            else:
                found[who[0]].setdefault(who[1], []).append((partition, offset))
    for name, account in by_name.items():
        problems += _check_account(account, found[name])
    for (partition, offset), value in (seen or {}).items():
        values = stored.get(partition, ())
        if offset >= len(values) or values[offset] != value:
            problems.append(f"partition {partition} offset {offset}: a reader saw {value[:40]!r}, and it is gone")
    return _shortened(problems)


def _check_account(account: Account, found: Mapping[int, Sequence[Place]]) -> Iterator[str]:
    for number, place in account.acknowledged.items():
        if number not in found:
            yield f"{account.name} {number}: acknowledged at {place}, and missing"
        elif place[1] == UNKNOWN_OFFSET:
            if place[0] not in {partition for partition, _ in found[number]}:
                yield f"{account.name} {number}: acknowledged in partition {place[0]}, found at {list(found[number])}"
        elif place not in found[number]:
            yield f"{account.name} {number}: acknowledged at {place}, and found at {list(found[number])}"
    for number in account.sent:
        if number not in account.acknowledged and number not in account.failed:
            yield f"{account.name} {number}: neither acknowledged nor failed"
    if not account.is_idempotent:
        return
    for number, places in found.items():
        if len(places) > 1:
            yield f"{account.name} {number}: stored more than once, at {list(places)}"
    yield from _check_order(account.name, "stored", sorted(found.items(), key=lambda each: min(each[1])), account)
    told = [(number, [place]) for number, place in account.acknowledged.items() if place[1] != UNKNOWN_OFFSET]
    yield from _check_order(account.name, "acknowledged", told, account)


def _check_order(
    name: str, how: str, numbered: Iterable[tuple[int, Sequence[Place]]], account: Account
) -> Iterator[str]:
    """Numbers of one partition must come in the order of sending, at rising offsets."""
    order = {number: position for position, number in enumerate(account.sent)}
    last: dict[int, tuple[int, int]] = {}
    for number, places in numbered:
        partition, offset = min(places)
        before = last.get(partition)
        if before is not None and (order.get(number, -1) < before[0] or offset <= before[1]):
            yield f"{name} {number}: {how} out of order in partition {partition}, at offset {offset}"
        last[partition] = order.get(number, -1), offset


def check_replicas(replicas: Mapping[int, Replica], high_watermark: int) -> list[str]:
    """Compare the replicas of one partition, broker -> files, from their common start to the high watermark."""
    problems: list[str] = []
    cut: dict[int, bytes] = {}
    start = max(replica.start for replica in replicas.values())
    for broker, replica in replicas.items():
        data, end, epochs = _between(replica, start, high_watermark)
        cut[broker] = data
        if end < high_watermark:
            problems.append(f"broker {broker} ends at {end}, the high watermark is {high_watermark}")
        known = tuple(entry for entry in replica.epochs if entry[1] < high_watermark)
        if replica.start == start == 0 and known != epochs:
            problems.append(f"broker {broker}: leader-epoch-checkpoint says {known}, its batches say {epochs}")
        problems += _damaged(broker, replica.data)
    (first, expected), *others = cut.items()
    for broker, data in others:
        if data != expected:
            problems.append(f"broker {broker} differs from broker {first} at {_first_difference(expected, data)}")
    return _shortened(problems)


def _between(replica: Replica, start: int, end: int) -> tuple[bytes, int, tuple[tuple[int, int], ...]]:
    """The bytes of the batches from an offset to another, the offset where they end, and the epochs they carry."""
    first = last = None
    reached = start
    epochs: list[tuple[int, int]] = []
    for position, size in split_batches(replica.data):
        fields = HEADER.unpack_from(replica.data, position)
        base, batch_end = fields[0], fields[0] + fields[6] + 1
        if batch_end <= start or base >= end:
            continue
        first = position if first is None else first
        last = position + size
        reached = batch_end
        if not epochs or epochs[-1][0] != fields[2]:
            epochs.append((fields[2], base))
    return replica.data[first or 0 : last or 0], reached, tuple(epochs)


def _damaged(broker: int, data: bytes) -> Iterator[str]:
    expected = None
    for position, size in split_batches(data):
        fields = HEADER.unpack_from(data, position)
        if not verify_crc(data, position, size):
            yield f"broker {broker}: the batch at offset {fields[0]} has a wrong checksum"
        if expected is not None and fields[0] != expected:
            yield f"broker {broker}: offset {fields[0]} follows {expected - 1}"
        expected = fields[0] + fields[6] + 1


def _first_difference(one: bytes, other: bytes) -> str:
    """Where two pieces of a log part: the offset of the batch, in the first one's words."""
    position = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    if position is None:
        return f"byte {min(len(one), len(other))}: one has {len(one)}, the other {len(other)}"
    inside = [at for at, _ in split_batches(one) if at <= position]
    return f"byte {position}, in the batch at offset {HEADER.unpack_from(one, inside[-1])[0]}"


def _shortened(problems: list[str]) -> list[str]:
    """Twenty tell as much as a million, with a count of each kind."""
    if len(problems) <= MOST_PROBLEMS:
        return problems
    kinds = Counter(re.sub(r"[0-9]+", "#", problem) for problem in problems)
    return [*problems[:MOST_PROBLEMS], *(f"{count} x {kind}" for kind, count in kinds.most_common(5))]
