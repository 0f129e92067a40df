"""A clock that is wrong, for one process: put this folder first on its PYTHONPATH.

$CLOCK_FILE holds by how many seconds time.time and time.time_ns are off; it may change while the process runs, as when
an administrator sets the clock. The monotonic clock stays right, as it does then.
"""

import os
import time

LOOK_EVERY_S = 0.05

_time = time.time
_monotonic = time.monotonic
_looked_at = 0.0
_offset_s = 0.0


def offset_s() -> float:
    """By how much the clock is off now."""
    global _looked_at, _offset_s
    now = _monotonic()
    if now - _looked_at > LOOK_EVERY_S:
        _looked_at = now
        try:
            with open(os.environ["CLOCK_FILE"]) as file:
                _offset_s = float(file.read() or _offset_s)
        except (OSError, KeyError):
            pass
    return _offset_s


def wrong_time() -> float:
    """time.time, off."""
    return _time() + offset_s()


def wrong_time_ns() -> int:
    """time.time_ns, off."""
    return int((_time() + offset_s()) * 1e9)


time.time = wrong_time
time.time_ns = wrong_time_ns
