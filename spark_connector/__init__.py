"""The PySpark data source `kbroker`: topics as Spark DataFrames, read and written in parallel, without a jar.

Spark finds it through the top-level module `pyspark_kbroker`; the modules here are its parts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def enable(spark: SparkSession) -> SparkSession:
    """Let each query ask anew what a topic holds, and push its filters down to the source; return the session.

    Without it a frame or view stays at the offsets of its first query, for Spark plans a Python source once, and Spark
    reads all rows to find some. Through Spark Connect frames ask anew, temporary views do not, and no filters are
    pushed. Raises RuntimeError, and changes nothing, with a version of Spark that is too different.
    """
    from kbroker.spark_connector.own_plans import plan_each_use

    if plan_each_use(spark):
        spark.conf.set(FILTER_PUSHDOWN, "true")
    else:
        log.warning("filters are not pushed through Spark Connect: say what to read in options, as startingTimestamp")
    return spark
