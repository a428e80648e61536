"""Rows of Spark and records of Kafka's consumer, brought into one shape to be compared."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from tests.golden import GoldenSet, IsolationLevel

TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}

Row = tuple[Any, ...]


def rows_of(frame: DataFrame) -> list[Row]:
    """Collect topic, partition, offset, timestamp (ms), its type, key, value and headers, in order."""
    in_ms = frame.withColumn("timestamp", sf.unix_millis("timestamp"))
    names = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
    return sorted(
        (
            *(row[name] for name in names[:-1]),
            None if row["headers"] is None else [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in in_ms.select(*names).collect()
    )


def consumed(golden: GoldenSet, level: IsolationLevel, *, topics: tuple[str, ...] = ()) -> list[Row]:
    """Return what the real consumer read, internal topics left out unless they are named."""
    return [
        (
            record["topic"],
            record["partition"],
            record["offset"],
            record["timestamp"],
            TIMESTAMP_TYPES[record["timestampType"]],
            record["key"],
            record["value"],
            record["headers"] or None,
        )
        for record in golden.records(level)
        if (record["topic"] in topics if topics else not record["topic"].startswith("__"))
    ]
