"""Samples gathered into Prometheus' text format, in portions: whoever gathers much lets the event loop in between.

# HELP name …
# TYPE name counter
name{label="value"} 1
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from kbroker.metrics.families import FAMILIES, QUANTILE_LABELS, Family, label_text, number
from kbroker.protocol.distribution import Distribution

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PAUSE_S = 0.0001
TURN_S = 0.002
"""How long to work between two pauses."""
LINES_AT_ONCE = 10_000


class Exposition:
    """The samples of one scrape."""

    def __init__(self, now: float | None = None) -> None:
        self.now = time.monotonic() if now is None else now
        """In seconds, for rates and windows."""
        self._lines: dict[str, list[str]] = {}
        self._turn_ends = time.perf_counter() + TURN_S

    def lines(self, family: Family) -> list[str]:
        """Return the list that its samples' lines are put into."""
        return self._lines.setdefault(family.name, [])

    def add(self, family: Family, value: float, *values: str) -> None:
        """Add one sample; `values` of its labels."""
        self.lines(family).append(family.sample(value, *values))

    def add_summary(self, family: Family, distribution: Distribution, *values: str) -> None:
        """Add quantiles, count and sum: of the same values, or what the sum grows by is not what the count grew for."""
        lines = self.lines(family)
        quantiles = distribution.quantiles(self.now)
        labels = (*family.labels, "quantile")
        for label, value in zip(QUANTILE_LABELS, quantiles, strict=True):
            lines.append(f"{family.name}{label_text(labels, (*values, label))} {round(value, 3)!r}")
        own = label_text(family.labels, values)
        lines.append(f"{family.name}_sum{own} {number(distribution.sum)}")
        lines.append(f"{family.name}_count{own} {number(distribution.count)}")

    def let_others_in(self) -> None:
        """Give up the interpreter for a moment where a turn is over; to be called several times in each."""
        if time.perf_counter() >= self._turn_ends:
            time.sleep(PAUSE_S)
            self._turn_ends = time.perf_counter() + TURN_S

    def chunks(self) -> Iterator[bytes]:
        """Return the text in pieces: families in the order of their declaration."""
        for name, family in FAMILIES.items():
            lines = self._lines.get(name)
            if not lines:
                continue
            yield from self._pieces(family.header(name), lines)
            if family.also:
                renamed = [family.also + line[len(name) :] for line in lines]
                yield from self._pieces(family.header(family.also), renamed)

    def _pieces(self, header: str, lines: list[str]) -> Iterator[bytes]:
        yield header.encode()
        for start in range(0, len(lines), LINES_AT_ONCE):
            yield ("\n".join(lines[start : start + LINES_AT_ONCE]) + "\n").encode()
            self.let_others_in()
