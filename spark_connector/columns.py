"""The columns of a topic's DataFrame: names and types of Spark's own Kafka source.

    key            binary
    value          binary
    topic          string
    partition      int
    offset         long
    timestamp      timestamp
    timestampType  int            0 CreateTime, 1 LogAppendTime
    headers        array<struct<key: string, value: binary>>     only with includeHeaders=true

The clients' Arrow batches carry the same names and types, `headers` always last.
"""

from __future__ import annotations

SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"


def schema_ddl(include_headers: bool) -> str:
    """Return the schema as Spark's DDL text."""
    return SCHEMA + HEADERS if include_headers else SCHEMA
