"""Keeps Spark's Python workers quick: what they have loaded is taken out of their garbage collections.

pyspark.daemon collects garbage after each task and each plan of a worker that it uses again. With pyspark, pyarrow and
pandas loaded that takes 30 ms and more, longer than reading a small range, and the worker's next task waits for it.
"""

from __future__ import annotations

import gc
import sys

DAEMON = "pyspark.daemon"

_frozen = False


def keep_loaded() -> None:
    """Call it in a worker, once the modules that it needs are imported: the first call exempts all there is."""
    global _frozen
    if not _frozen and _is_worker():
        gc.freeze()
        _frozen = True


def _is_worker() -> bool:
    """Whether this process came from Spark's daemon: a user's own process keeps its ways."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == DAEMON
