"""Where Spark 4 looks by itself: it imports each top-level module named `pyspark_*` and registers `DefaultSource`."""

from kbroker.spark_connector.source import KbrokerDataSource as DefaultSource

__all__ = ["DefaultSource"]
