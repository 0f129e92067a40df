"""Streaming queries that are started again where a loaded machine takes too long to start Spark's Python (10 s)."""

from collections.abc import Callable
from typing import Any

TRIES = 4


def too_slow(said: str) -> bool:
    """Whether that is how a query ended."""
    return "Python worker failed to connect back" in said or "waiting for the Python worker to connect back" in said


def run_to_the_end(writer: Any) -> Any:
    """Run a query until it has read all there is; returns it, or raises what ended it."""

    def end(query: Any) -> None:
        assert query.awaitTermination(300)

    return _start(writer.trigger(availableNow=True), end)


def start_and_catch_up(writer: Any) -> Any:
    """Start a query and return it once it has read what is there; it goes on."""
    return _start(writer, lambda query: query.processAllAvailable())


def _start(writer: Any, wait: Callable[[Any], None]) -> Any:
    for tries_left in reversed(range(TRIES)):
        query = writer.start()
        try:
            wait(query)
        except Exception as error:
            if not tries_left or not too_slow(f"{error} {query.exception()}"):
                raise
        else:
            break
    return query
