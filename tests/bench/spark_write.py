"""``df.write`` beside Spark's own Parquet writer: ``python -m tests.bench.spark_write [--rows N] [--rounds N]``.

The same rows, kept in Spark's memory, the same codec, warm, in turn, on ``local[2]``: ratios are medians over rounds of
(Parquet / seglog), 1 being no slower. seglog's time has the commit in it, with its syncs; Parquet's has none.

With ``--memory`` it measures how much a task's Python worker grows above an idle one, from rows of 10 MiB to rows of
2 GiB, and from four partitions to a thousand.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from rich.table import Table

from tests.bench.spark_read import peak_bytes_of_workers, session

CODECS = {"snappy": "snappy", "lz4": "lz4_raw", "zstd": "zstd"}
PARTITIONS = 4
TARGET = 0.8


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rows", type=int, default=2_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--memory", action="store_true")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="spark-write-"))
    try:
        if given.memory:
            measure_memory(folder)
        else:
            measure_speed(folder, given.rows, given.rounds)
    finally:
        shutil.rmtree(folder)


def generated(spark: SparkSession, rows: int, tasks: int) -> DataFrame:
    """Make rows of about 100 bytes."""
    words = sf.array_join(sf.transform(sf.sequence(sf.lit(1), sf.lit(11)), lambda n: sf.hex(sf.hash("id", n))), " ")
    return spark.range(0, rows, numPartitions=tasks).select(
        sf.concat(sf.lit("user-"), sf.col("id") % 5000).cast("binary").alias("key"),
        words.cast("binary").alias("value"),
        sf.timestamp_millis(sf.col("id") + 1_700_000_000_000).alias("timestamp"),
    )


def measure_speed(folder: Path, count: int, rounds: int) -> None:
    spark = session()
    rows = generated(spark, count, tasks=2).persist()
    rows.count()
    table = Table(title="df.write on local[2] beside Parquet")
    for title in ("codec", "seglog Mrows/s", "ratio", "target", "range"):
        table.add_column(title, justify="left" if title == "codec" else "right")
    for codec, parquet_codec in CODECS.items():
        ratios, ours = measured(rows, folder, codec, parquet_codec, rounds)
        table.add_row(
            codec,
            f"{count / ours / 1e6:.2f}",
            f"{statistics.median(ratios):.2f}",
            str(TARGET),
            f"{min(ratios):.2f} - {max(ratios):.2f}",
        )
    Console(width=100).print(table)
    spark.stop()


def measure_memory(folder: Path) -> None:
    print("the most that the Python worker of one task takes above an idle one")
    for partitions in (4, 1000):
        for rows_mib in (10, 100, 2048):
            spark = session("local[1]")
            spark.sparkContext.parallelize([0], 1).map(lambda number: number).collect()
            idle = peak_bytes_of_workers()
            rows = generated(spark, rows_mib << 20 >> 7, tasks=1)
            path = folder / f"{partitions}-{rows_mib}"
            rows.write.format("seglog").mode("append").option("numPartitions", partitions).save(f"{path}/events")
            peak_mib = (peak_bytes_of_workers() - idle) / (1 << 20)
            print(f"rows of {rows_mib:>5} MiB into {partitions:>5} partitions: {peak_mib:.0f} MiB", flush=True)
            spark.stop()
            shutil.rmtree(path)


def measured(rows: DataFrame, folder: Path, codec: str, parquet_codec: str, rounds: int) -> tuple[list[float], float]:
    """Measure one codec: the ratio of each round, and the median of our seconds."""
    writes: dict[str, Callable[[str], None]] = {
        "seglog": lambda path: (
            rows.write.format("seglog")
            .mode("append")
            .options(numPartitions=PARTITIONS, **{"compression.type": codec})
            .save(f"{path}/events")
        ),
        "parquet": lambda path: rows.write.option("compression", parquet_codec).parquet(f"{path}/rows"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in writes}
    for turn in range(rounds + 1):
        for name, write in writes.items():
            path = folder / f"{name}-{turn}"
            path.mkdir()
            started = time.perf_counter()
            write(str(path))
            if turn:
                seconds[name].append(time.perf_counter() - started)
            shutil.rmtree(path)
    ratios = [parquet / ours for ours, parquet in zip(seconds["seglog"], seconds["parquet"], strict=True)]
    return ratios, statistics.median(seconds["seglog"])


if __name__ == "__main__":
    main()
