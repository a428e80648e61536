"""Queries of Spark over directories of many partitions, for `tests.bench.large`."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import functions as sf

from tests.bench.large_logs import PER_TOPIC, RECORDS, new_folder, shared_logs
from tests.bench.large_meter import Meter, check
from tests.bench.spark_read import processor_seconds, session


def count(meter: Meter, place: Path, size: int) -> None:
    """Count all records twice."""
    logs, meter.others = shared_logs(place, size), processor_seconds
    with session() as spark:
        spark.read.format("seglog").load(str(logs)).count()
        with meter("Spark: the second count", size, "partition", has_wall=True):
            rows = spark.read.format("seglog").load(str(logs)).count()
    check(rows, RECORDS * size)


def write(meter: Meter, place: Path, size: int) -> None:
    """Write a record to each of all partitions, twice."""
    meter.others = processor_seconds
    with new_folder(place) as logs, session() as spark:
        rows = spark.range(size).select(
            sf.format_string("topic-%05d", sf.expr(f"id div {PER_TOPIC}")).alias("topic"),
            sf.expr(f"cast(id % {PER_TOPIC} as int)").alias("partition"),
            sf.lit("x" * 100).alias("value"),
        )
        for name in ("first", "second"):
            with meter(f"Spark: the {name} write, a record to each", size, "partition", has_wall=True):
                rows.write.format("seglog").option("numPartitions", PER_TOPIC).mode("append").save(str(logs))
        check(spark.read.format("seglog").load(str(logs)).count(), 2 * size)
