"""Schemas of frames, made without a Spark session."""

from typing import Any

import pytest


def schema(**columns: Any) -> Any:
    """Return a StructType; types are words or pyspark types."""
    types = pytest.importorskip("pyspark.sql.types")
    words = {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "date": types.DateType(),
        "double": types.DoubleType(),
    }
    fields = [types.StructField(name, words[kind] if isinstance(kind, str) else kind) for name, kind in columns.items()]
    return types.StructType(fields)


def plain_schema() -> Any:
    """Return the seven columns of Spark's Kafka source."""
    return schema(
        key="binary",
        value="binary",
        topic="string",
        partition="int",
        offset="bigint",
        timestamp="timestamp",
        timestampType="int",
    )
