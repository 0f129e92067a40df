"""Where `topic consume -o` begins: kcat's words, read once.

    start, beginning     the first record         -10            ten records before the end, in each partition
    end                  only what comes now      @1388534400000 or @2014-01-01T00:00   the first one since then
    1234                 that offset          @-90s, @-30m, @-12h, @-7d or @-2w            since so long ago

A time without a zone is local time. e@TIME, besides, is where to end.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
LAST_MILLISECOND = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StartPosition:
    """One reading of `-o`; `value` is the offset, the count before the end, or milliseconds since 1970."""

    kind: Literal["start", "end", "offset", "before_end", "timestamp"]
    value: int = 0


def parse_position(text: str) -> StartPosition:
    """Read kcat's notation; ValueError says what would be right."""
    if text in ("start", "beginning", "earliest"):
        return StartPosition("start")
    if text in ("end", "latest"):
        return StartPosition("end")
    # kcat writes s@… where a stop may be given too.
    for prefix in ("@", "s@"):
        if text.startswith(prefix):
            return StartPosition("timestamp", _milliseconds(text.removeprefix(prefix)))
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no position: use start, end, an offset, -N or @TIME") from None
    if number < 0:
        return StartPosition("before_end", -number)
    return StartPosition("offset", number)


def parse_range(texts: Sequence[str]) -> tuple[StartPosition, int | None]:
    """Read where to begin and, where e@TIME says so, when to end; ValueError says what would be right."""
    starts = [text for text in texts if not text.startswith("e@")]
    ends = [text for text in texts if text.startswith("e@")]
    if len(starts) > 1 or len(ends) > 1:
        raise ValueError("one place to begin and one e@TIME to end are all that can be said")
    end = _milliseconds(ends[0].removeprefix("e@")) if ends else None
    return parse_position(starts[0] if starts else "start"), end


def _milliseconds(text: str) -> int:
    """Return a time as records have it: none is before 1970, or later than 64 bits tell."""
    return min(max(0, _read_milliseconds(text)), LAST_MILLISECOND)


def _read_milliseconds(text: str) -> int:
    if text.isdigit():
        return int(text)
    ago = re.fullmatch(r"-(\d+)([smhdw])", text)
    if ago:
        return int((time.time() - int(ago[1]) * SECONDS[ago[2]]) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time: use milliseconds since 1970, 2014-01-31T12:00:00+01:00 or -1h"
        ) from None
    return int(moment.timestamp() * 1000)


def start_offset(position: StartPosition, earliest: int, latest: int, at_timestamp: int | None) -> int:
    """Return the first offset to read in a partition; `at_timestamp` is None when nothing is that young."""
    if position.kind == "start":
        return earliest
    if position.kind == "end":
        return latest
    if position.kind == "before_end":
        return max(earliest, latest - position.value)
    if position.kind == "timestamp":
        return latest if at_timestamp is None else at_timestamp
    return min(max(position.value, earliest), latest)
