"""Evaluates the expressions of docs/alerts.yml, as Prometheus does, over scrapes in their order.

a{b="c"}   sum(…)   sum by (…) (…)   a / b   … and …   > < != ==   delta, increase and rate of [a range]
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from tests.kbroker.metrics.scraping import Scraped

RULES = Path(__file__).parents[3] / "docs" / "alerts.yml"
Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
"""Labels -> value."""

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "!=": operator.ne,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


def rules() -> dict[str, dict[str, Any]]:
    """The rules by their name."""
    found = yaml.safe_load(RULES.read_text())
    return {rule["alert"]: rule for group in found["groups"] for rule in group["rules"]}


def fires(name: str, *scrapes: tuple[float, Scraped]) -> Vector:
    """What a rule's expression gives at the last of the scrapes (seconds, samples); nothing: it is quiet."""
    return evaluate(rules()[name]["expr"], scrapes)


def evaluate(expression: str, scrapes: tuple[tuple[float, Scraped], ...]) -> Vector:
    expression = expression.strip()
    left, found, right = _split(expression, " and ")
    if found:
        others = evaluate(right, scrapes)
        return {labels: value for labels, value in evaluate(left, scrapes).items() if labels in others}
    for sign, holds in COMPARISONS.items():
        left, found, right = _split(expression, f" {sign} ")
        if found:
            return {labels: each for labels, each in evaluate(left, scrapes).items() if holds(each, float(right))}
    left, found, right = _split(expression, " / ")
    if found:
        divisors = evaluate(right, scrapes)
        return {labels: each / divisors[labels] for labels, each in evaluate(left, scrapes).items()}
    summed = re.fullmatch(r"sum(?: by \(([^)]*)\) )?\((.*)\)", expression, re.DOTALL)
    if summed:
        kept = {label.strip() for label in (summed[1] or "").split(",")}
        sums: dict[Labels, float] = defaultdict(float)
        for labels, value in evaluate(summed[2], scrapes).items():
            sums[frozenset(pair for pair in labels if pair[0] in kept)] += value
        return dict(sums)
    ranged = re.fullmatch(r"(delta|increase|rate)\((\w+)\[(\d+)m\]\)", expression)
    if ranged:
        return _over_time(ranged[1], ranged[2], 60 * int(ranged[3]), scrapes)
    selected = re.fullmatch(r'(\w+)(?:\{(\w+)="([^"]*)"\})?', expression)
    assert selected, f"no such expression is known here: {expression}"
    name, label, wanted = selected.groups()
    found_now = _instant(name, scrapes[-1][1])
    return {labels: value for labels, value in found_now.items() if label is None or (label, wanted) in labels}


def _split(expression: str, sign: str) -> tuple[str, str, str]:
    """At the sign outside of all brackets."""
    depth = 0
    for place, character in enumerate(expression):
        depth += (character in "({[") - (character in ")}]")
        if not depth and expression.startswith(sign, place):
            return expression[:place], sign, expression[place + len(sign) :]
    return expression, "", ""


def _instant(name: str, scraped: Scraped) -> Vector:
    return {frozenset(labels.items()): value for found, labels, value in scraped.samples if found == name}


def _over_time(function: str, name: str, range_s: float, scrapes: tuple[tuple[float, Scraped], ...]) -> Vector:
    """From the first to the last scrape of the range, stretched to all of it; counters may have begun anew."""
    until = scrapes[-1][0]
    within = [(at, _instant(name, scraped)) for at, scraped in scrapes if at > until - range_s]
    changes: Vector = {}
    for labels in within[-1][1]:
        values = [(at, vector[labels]) for at, vector in within if labels in vector]
        if len(values) < 2:
            continue
        seconds = values[-1][0] - values[0][0]
        change = values[-1][1] - values[0][1]
        if function != "delta":
            steps = pairwise(value for _, value in values)
            change = sum(now - before if now >= before else now for before, now in steps)
        changes[labels] = change / seconds if function == "rate" else change * range_s / seconds
    return changes
