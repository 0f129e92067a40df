"""The Spark that tests share."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_its_pythons_find_pyspark_with_its_bytecode(spark: Any) -> None:
    def told(batches: Iterator[Any]) -> Iterator[Any]:
        from pathlib import Path

        import pyarrow as pa
        from pyspark import worker

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"is_compiled": [Path(worker.__cached__).exists()]})  # type: ignore[attr-defined]

    assert spark.range(1).repartition(1).mapInArrow(told, "is_compiled boolean").collect() == [(True,)]


def test_its_classes_come_from_the_archive_of_another(spark: Any) -> None:
    archive = re.search(r"-XX:SharedArchiveFile=(\S+)", os.environ["SPARK_SUBMIT_OPTS"])
    if archive is None:
        pytest.skip("this JVM has no archive of its own classes that another could be added to")
    jvm = spark.sparkContext._gateway.proc.pid
    assert archive[1] in Path(f"/proc/{jvm}/maps").read_text()
