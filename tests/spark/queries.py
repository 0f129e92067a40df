"""Streaming queries that are started again where a loaded machine takes too long to start Spark's Python (10 s)."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
TRIES = 4


def too_slow(said: str) -> bool:
    """Whether that is how a query ended."""
    return "Python worker failed to connect back" in said or "waiting for the Python worker to connect back" in said


def run_to_the_end(writer: Any) -> Any:
    """Run a query until it has read all there is; returns it, or raises what ended it."""

    def end(query: Any) -> None:
        assert query.awaitTermination(300), "the query has not come to its end"

    return _start(writer.trigger(availableNow=True), end)


def start_and_catch_up(writer: Any) -> Any:
    """Start a query and return it once it has read what is there; it goes on."""
    return _start(writer, lambda query: query.processAllAvailable())


def again_where_too_slow(run: Callable[[], T]) -> T:
    """What `run` returns, tried anew where Spark's Python came too late."""
    for _ in range(TRIES - 1):
        try:
            return run()
        except Exception as error:
            if not too_slow(f"{error} {getattr(error, '__notes__', '')}"):
                raise
    return run()


def _start(writer: Any, wait: Callable[[Any], None]) -> Any:
    def once() -> Any:
        query = writer.start()
        try:
            wait(query)
        except Exception as error:
            error.add_note(f"the query ended with {query.exception()}")
            raise
        return query

    return again_where_too_slow(once)
