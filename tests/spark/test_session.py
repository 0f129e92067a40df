"""The Spark that tests share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_its_pythons_find_pyspark_with_its_bytecode(spark: Any) -> None:
    def told(batches: Iterator[Any]) -> Iterator[Any]:

        import pyarrow as pa
        from pyspark import worker

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"is_compiled": [Path(worker.__cached__).exists()]})  # type: ignore[attr-defined]

    assert spark.range(1).repartition(1).mapInArrow(told, "is_compiled boolean").collect() == [(True,)]
