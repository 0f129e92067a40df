"""The data source as Spark sees it: its name, its schema and its readers; nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from spark_connector.columns import schema_ddl
from spark_connector.options import include_headers, read_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_connector.batch_reader import BatchReader


class KbrokerDataSource(DataSource):
    """`spark.read.format("kbroker")`: topics as DataFrames, with the options and columns of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """Return the format's short name."""
        return "kbroker"

    def schema(self) -> str:
        """Return the columns; `headers` only with includeHeaders=true, as in Spark's Kafka source."""
        return schema_ddl(include_headers(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        """Check the options and return the reader of one batch query."""
        from spark_connector.batch_reader import BatchReader

        return BatchReader(read_options(self.options))
