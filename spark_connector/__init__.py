"""The PySpark data source `kbroker`: topics as Spark DataFrames, read and written in parallel, without a jar.

Spark finds it through the top-level module `pyspark_kbroker`; the modules here are its parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def enable(spark: SparkSession) -> SparkSession:
    """Let Spark push filters down to Python data sources (off by default), and return the session.

    Without it every query gives the same rows, and reads all of them to find them. With it, load a frame for each
    filter: Spark keeps one plan per loaded frame or view, with the filters that it pushed last, and uses it again for
    a query on the same frame that has no filter, and for all places of the frame in one query.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    return spark
