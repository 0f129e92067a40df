"""How well the cluster served: the longest gaps, how far readers lagged, how long partitions took to come back."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kbroker.verify.columns import NEVER, OK_CODE, Columns, FaultEvent, Flags, Ints
from kbroker.verify.versions import Versions

HEAL = "heal"
"""The nemesis' event when all is undone."""
BUCKETS = 240


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time without an acknowledgement of a partition."""

    key: str
    begin_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long after a healing the last of the partitions acknowledged again; None: it did not."""

    healed_s: float
    key: str
    seconds: float | None


@dataclass(slots=True)
class Timeline:
    """Figures for each of some equally long spans of time."""

    seconds: list[float]
    """Where the spans begin."""
    width_s: float
    sent: list[int]
    """Records acknowledged."""
    read: list[int]
    failed: list[int]
    """Operations that failed."""
    unknown: list[int]
    """Operations that nobody knows the outcome of."""
    lag: list[int]
    """Records that are acknowledged and not yet read by anybody, at the end of each span."""
    faults: list[tuple[float, float, str]]
    """(begin, end, name)"""


@dataclass(slots=True)
class Availability:
    """All figures."""

    gaps: list[Gap] = field(default_factory=list)
    """One for each partition, the longest first."""
    recoveries: list[Recovery] = field(default_factory=list)
    """One for each healing."""
    worst_lag: int = 0
    timeline: Timeline | None = None


def measure_availability(columns: Columns, versions: Versions) -> Availability:
    """Compute all figures."""
    operations, sends = columns.operations, columns.sends
    acknowledged = np.flatnonzero(operations.type[sends.operation] == OK_CODE)
    moments = operations.complete_time[sends.operation[acknowledged]]
    keys = sends.key[acknowledged]
    order = np.argsort(keys, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(order) else []
    by_key = {int(keys[part[0]]): moments[part] for part in parts}
    found = Availability()
    found.gaps = sorted(
        (_longest_gap(str(columns.keys[key]), times) for key, times in by_key.items()), key=lambda gap: -gap.seconds
    )
    found.recoveries = [
        _recovery(fault.time, {str(columns.keys[key]): times for key, times in by_key.items()})
        for fault in columns.faults
        if fault.name == HEAL and by_key
    ]
    found.timeline = _timeline(columns, versions)
    found.worst_lag = max(found.timeline.lag, default=0)
    return found


def _longest_gap(key: str, times: Ints) -> Gap:
    if len(times) < 2:
        return Gap(key, 0.0, 0.0)
    gaps = np.diff(times)
    at = int(np.argmax(gaps))
    return Gap(key, float(times[at]) / 1e9, float(gaps[at]) / 1e9)


def _recovery(healed: int, by_key: dict[str, Ints]) -> Recovery:
    """The partition that took longest to acknowledge something again."""
    worst = Recovery(healed / 1e9, "", 0.0)
    for key, times in by_key.items():
        at = int(np.searchsorted(times, healed))
        if at == len(times):
            return Recovery(healed / 1e9, key, None)
        seconds = float(times[at] - healed) / 1e9
        if seconds >= (worst.seconds or 0.0):
            worst = Recovery(healed / 1e9, key, seconds)
    return worst


def _timeline(columns: Columns, versions: Versions) -> Timeline:
    operations, sends, reads = columns.operations, columns.sends, columns.reads
    ended = operations.complete_time != NEVER
    moment = np.where(ended, operations.complete_time, operations.invoke_time)
    last = int(moment.max(initial=1)) + 1
    width = max(last // BUCKETS + 1, 1)
    count = last // width + 1

    def binned(times: Ints) -> Ints:
        found: Ints = np.bincount(times // width, minlength=count)[:count]
        return found

    is_ok = operations.type[sends.operation] == OK_CODE
    first_read = np.full(len(sends), NEVER, dtype=np.int64)
    known = np.flatnonzero(versions.writer_of_read >= 0)[::-1]
    # Backwards, so that the first read of each stays.
    first_read[versions.writer_of_read[known]] = moment[reads.operation[known]]
    seen: Flags = is_ok & (first_read != NEVER)
    acknowledged = binned(moment[sends.operation[is_ok]])
    read_once = binned(np.maximum(first_read[seen], moment[sends.operation[seen]]))
    lag = np.cumsum(acknowledged) - np.cumsum(read_once)
    return Timeline(
        [at * width / 1e9 for at in range(count)],
        width / 1e9,
        acknowledged.tolist(),
        binned(moment[reads.operation]).tolist(),
        binned(moment[operations.type == 1]).tolist(),
        binned(moment[operations.type == 2]).tolist(),
        lag.tolist(),
        _fault_spans(columns.faults, last),
    )


def _fault_spans(faults: list[FaultEvent], end: int) -> list[tuple[float, float, str]]:
    spans: list[tuple[float, float, str]] = []
    held: list[FaultEvent] = []
    for fault in faults:
        if fault.name == HEAL:
            spans += [(each.time / 1e9, fault.time / 1e9, each.name) for each in held]
            held = []
        else:
            held.append(fault)
    return spans + [(each.time / 1e9, end / 1e9, each.name) for each in held]
