"""Two clocks: the one on the wall, and a steady one that nobody sets, for how long ago something was."""

from __future__ import annotations

import time

_STARTED_AT_MS = time.time() * 1000 - time.monotonic() * 1000


def now_ms() -> int:
    """Milliseconds since 1970: for what people, records and other machines are told."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Milliseconds since 1970 by a clock that never jumps: a corrected system clock must not end any patience.

    It stands still while the machine sleeps, and stays wrong where the system's clock was wrong at the start.
    """
    return int(_STARTED_AT_MS + time.monotonic() * 1000)
