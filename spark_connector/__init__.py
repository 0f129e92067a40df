"""The PySpark data source `kbroker`: topics as Spark DataFrames, read and written in parallel, without a jar.

Spark finds it through the top-level module `pyspark_kbroker`; the modules here are its parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def enable(spark: SparkSession) -> SparkSession:
    """Let Spark push filters down to Python data sources (off by default), and return the session.

    Without it every query gives the same rows, and reads all of them to find them. Spark up to 4.3 would use the plan
    of one filter for all uses of a frame or view; here each use gets its own. Raises RuntimeError, and changes nothing,
    where that cannot be done: through Spark Connect.
    """
    from kbroker.spark_connector.own_plans import plan_each_use

    plan_each_use(spark)
    spark.conf.set(FILTER_PUSHDOWN, "true")
    return spark
