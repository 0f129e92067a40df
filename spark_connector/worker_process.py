"""Makes our source at home in Spark's Python workers, which are processes of pyspark.daemon.

Quick: what they have loaded is taken out of their garbage collections. The daemon collects garbage after each task and
each plan of a worker that it uses again. With pyspark, pyarrow and pandas loaded that takes 30 ms and more, longer than
reading a small range, and the worker's next task waits for it.

Quiet: Spark ends a worker that had nothing to do for a minute by closing its socket. PySpark takes that for an error
and reports it into that socket; where it is a Unix one the report fails, and its traceback lands in the user's output.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

DAEMON = "pyspark.daemon"

_settled = False


def settle_in() -> None:
    """Call it in a worker, once the modules that it needs are imported; elsewhere, and later, it does nothing."""
    global _settled
    if _settled or not _is_worker():
        return
    _settled = True
    gc.freeze()
    _end_quietly(sys.modules["__main__"])


def _is_worker() -> bool:
    """Whether this process came from Spark's daemon: a user's own process keeps its ways."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == DAEMON


def _end_quietly(daemon: Any) -> None:
    """Have the daemon's loop in this worker end, without a word, when nobody is left to hear it."""
    serve = getattr(daemon, "worker", None)
    if serve is None:  # a version of PySpark that is made differently: it may print what it likes
        return

    def serve_until_left_alone(*arguments: Any) -> int:
        try:
            status: int = serve(*arguments)
        except BrokenPipeError:
            return 1
        return status

    daemon.worker = serve_until_left_alone
