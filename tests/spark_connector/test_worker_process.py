"""Spark's Python workers: what they have loaded is not collected, they end quietly; other processes are left alone."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.spark_connector.worker_process import _end_quietly, settle_in


def test_a_worker_that_nobody_listens_to_ends_without_a_traceback_and_other_errors_are_told() -> None:
    outcomes: list[Any] = [0, BrokenPipeError("the JVM is gone"), ValueError("a mistake")]

    def worker(_: object, __: bool) -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return int(outcome)

    daemon = SimpleNamespace(worker=worker)
    _end_quietly(daemon)
    assert [daemon.worker(None, True), daemon.worker(None, True)] == [0, 1]
    with pytest.raises(ValueError, match="a mistake"):
        daemon.worker(None, True)
    _end_quietly(SimpleNamespace())  # a daemon that is made differently


@pytest.mark.slow
def test_the_heap_of_a_users_own_process_stays_as_it_is() -> None:
    before = gc.get_freeze_count()
    settle_in()
    assert gc.get_freeze_count() == before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_of_spark_does_not_go_through_its_modules_after_each_task(spark: Any) -> None:
    def frozen(batches: Iterator[Any]) -> Iterator[Any]:
        import gc
        import sys

        import pyarrow as pa

        from kbroker.spark_connector.worker_process import settle_in

        settle_in()
        for _ in batches:
            left, serving = len(gc.get_objects()), sys.modules["__main__"].worker.__name__
            yield pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()], "left": [left], "serving": [serving]})

    [row] = spark.range(1).repartition(1).mapInArrow(frozen, "objects long, left long, serving string").collect()
    assert row.objects > 10 * row.left, "the modules are frozen, the task's own few objects are not"
    assert row.serving == "serve_until_left_alone", "the daemon calls what ends quietly"
