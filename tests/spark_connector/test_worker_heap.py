"""What Spark's Python workers have loaded is exempt from their garbage collections; nobody else's heap is touched."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.spark_connector.worker_heap import keep_loaded


def test_the_heap_of_a_users_own_process_stays_as_it_is() -> None:
    before = gc.get_freeze_count()
    keep_loaded()
    assert gc.get_freeze_count() == before


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_a_worker_of_spark_does_not_go_through_its_modules_after_each_task(spark: Any) -> None:
    def frozen(batches: Iterator[Any]) -> Iterator[Any]:
        import gc

        import pyarrow as pa

        from kbroker.spark_connector.worker_heap import keep_loaded

        keep_loaded()
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()], "left": [len(gc.get_objects())]})

    [row] = spark.range(1).repartition(1).mapInArrow(frozen, "objects long, left long").collect()
    assert row.objects > 10 * row.left, "the modules are frozen, the task's own few objects are not"
