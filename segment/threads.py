"""Threads that compute rather than wait are nicer than the event loop.

There may be more of them than processors: a request of a few bytes is not to wait until a segment is compacted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading

NICER_BY = 5


def become_nicer() -> None:
    """Let the other threads of this process go before this one, where each has a niceness of its own: on Linux."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):  # a sandbox may forbid it: then it goes on as it is
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICER_BY)
