"""Templates, how values are written in them, and pages of long lists.

Everything that is put into a template is escaped; none of them marks a value as safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kbroker.client.record_ages import age_text

T = TypeVar("T")
FOLDER = Path(__file__).parent
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNKNOWN = "\N{EN DASH}"
MOST_NAMES = 10
"""Of what is left out."""


def environment() -> Environment:
    """Return what renders the templates."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        count=count_text, size=size_text, when=time_text, duration=duration_text, rate=rate_text, segment=path_segment
    )
    made.globals.update(query=query_text)
    return made


def count_text(number: float | None) -> str:
    """12 345, and a dash for what is not known."""
    return UNKNOWN if number is None else f"{round(number):,}".replace(",", "\u202f")


def size_text(size: float | None) -> str:
    """Bytes in the unit that suits."""
    if size is None or size < 0:
        return UNKNOWN
    power = min(int(math.log(size, 1024)), len(UNITS) - 1) if size >= 1 else 0
    number = size / 1024**power
    return f"{number:.0f} {UNITS[power]}" if power == 0 or number >= 100 else f"{number:.1f} {UNITS[power]}"


def time_text(timestamp_ms: int | None) -> str:
    """A moment in UTC."""
    if timestamp_ms is None or timestamp_ms < 0:
        return UNKNOWN
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def duration_text(milliseconds: float | None) -> str:
    """A time span in its two largest units, and a dash for what is not known."""
    return UNKNOWN if milliseconds is None else age_text(milliseconds)


def rate_text(per_second: float | None) -> str:
    """So many per second."""
    if per_second is None:
        return UNKNOWN
    return f"{per_second:.1f}" if 0 < per_second < 10 else count_text(per_second)


def names_of(names: Iterable[str]) -> str:
    """Some names after one another, and how many more there are."""
    told = list(names)
    more = len(told) - MOST_NAMES
    return ", ".join(told[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def path_segment(text: Any) -> str:
    """A name as one part of a path."""
    return quote(str(text), safe="")


def query_text(current: Sequence[tuple[str, str]], **changes: Any) -> str:
    """Return the query of an address like this one, with some values changed (None: left out)."""
    kept = [(key, value) for key, value in current if key not in changes]
    return "?" + urlencode([*kept, *((key, str(value)) for key, value in changes.items() if value is not None)])


@dataclass(frozen=True, slots=True)
class Shown(Generic[T]):
    """One page of a long list; pages count from 1."""

    items: Sequence[T]
    page: int
    pages: int
    total: int


def page_of(items: Sequence[T], wanted: str | None, size: int) -> Shown[T]:
    """Return the page that is wanted, or the nearest that there is."""
    pages = max(1, -(-len(items) // size))
    number = int(wanted) if wanted and wanted.isdecimal() and len(wanted) < 10 else 1
    number = min(max(number, 1), pages)
    return Shown(items[(number - 1) * size : number * size], number, pages, len(items))
