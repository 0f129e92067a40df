"""Sources that ask no broker: what Spark takes for a query of a Python source, whatever that does.

    ready      rows of 200 bytes that are made before they are asked for, as four tasks
    nothing    the columns of a topic and no row, as so many tasks as the option says; takes all filters

Workers import this module, so that no class travels with each plan: these sources cost what any would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition

from kbroker.spark_connector.columns import TYPES
from kbroker.spark_connector.worker_process import settle_in

COLUMNS = {"key": "binary", "value": "binary", **TYPES}
del COLUMNS["headers"]
READY = 20_000
"""Rows of a batch that is there already: 4 MB."""


class Ready(DataSource):
    """spark.read.format("ready").option("rows", "4000000")."""

    @classmethod
    def name(cls) -> str:
        """Return the format's short name."""
        return "ready"

    def schema(self) -> str:
        """Return the one column."""
        return "value binary"

    def reader(self, schema: Any) -> ReadyReader:
        """Return the reader of one batch query."""
        return ReadyReader(int(self.options["rows"]))

    def streamReader(self, schema: Any) -> ReadyStreamReader:
        """Return the reader of one streaming query."""
        return ReadyStreamReader(int(self.options["rows"]))


class ReadyReader(DataSourceReader):
    """All rows, in four tasks."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        """Plan four tasks."""
        return _four_tasks(self.rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the task's rows."""
        return _batches(partition.value)


class ReadyStreamReader(DataSourceStreamReader):
    """All rows, in one micro-batch."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def initialOffset(self) -> dict[str, int]:
        """Begin before the first row."""
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # the arguments came with 4.2
        """End behind the last one."""
        return {"at": self.rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Plan four tasks."""
        return _four_tasks(end["at"] - start["at"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the task's rows."""
        return _batches(partition.value)


class Nothing(DataSource):
    """spark.read.format("nothing").option("tasks", "4")."""

    @classmethod
    def name(cls) -> str:
        """Return the format's short name."""
        return "nothing"

    def schema(self) -> str:
        """Return a topic's columns."""
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: Any) -> NothingReader:
        """Return the reader of one batch query."""
        settle_in()
        return NothingReader(int(self.options["tasks"]))


class NothingReader(DataSourceReader):
    """Tasks without a row."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Leave Spark none: no row fails to pass."""
        return ()

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks."""
        return [InputPartition(number) for number in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield nothing."""
        return iter(())


def _four_tasks(rows: int) -> list[InputPartition]:
    return [InputPartition(rows // 4) for _ in range(4)]


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    many = pa.record_batch({"value": pa.array([b"x" * 200] * READY, pa.binary())})
    for first in range(0, rows, READY):
        yield many.slice(0, min(READY, rows - first))
