"""What counting many small partitions costs through Spark, beside sources that make their rows up.

    python -m tests.bench.scale_read [--partitions N ...] [--rounds N]

Each partition has thirty records. One peer has as many tasks as seglog, and yields as many batches of thirty rows: what
Spark alone takes for that. The other has a task for each partition: what seglog cannot do without packing. It is
measured at the smallest size only, since it takes minutes at the largest. All run on ``local[2]``, warm, in turn, with
nothing kept of a plan from one round to the next; times are medians of the rounds, and ratios are those of medians.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from rich.console import Console
from rich.table import Table

from sparklog.spark.options.schema import source_schema
from tests.bench.logs import stamped, templates
from tests.bench.spark_read import session

SIZES = (500, 2_000, 8_000)
RECORDS = 30


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--partitions", type=int, nargs="+", default=SIZES)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="scale-read-"))
    try:
        measure(folder, given.partitions, given.rounds)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, sizes: list[int], rounds: int) -> None:
    """Print, for each number of partitions, the seconds of a count and how they compare."""
    # The class must be that of an importable module, or it is pickled.
    from tests.bench.scale_read import MadeUpSource

    spark = session()
    spark.dataSource.register(MadeUpSource)
    table = Table(title=f"Counting partitions of {RECORDS} records, local[2]")
    for title in ("partitions", "tasks", "seglog s", "ms a partition", "times as many tasks", "times a task each"):
        table.add_column(title, justify="right")
    for partitions in sizes:
        log_dir = folder / str(partitions)
        write_partitions(log_dir, partitions)
        tasks = spark.read.format("seglog").load(str(log_dir)).rdd.getNumPartitions()
        queries = {
            "seglog": partial(count, spark, "seglog", path=str(log_dir)),
            "as many": partial(count, spark, "made-up", tasks=tasks, batches=partitions),
        }
        if partitions == min(sizes):
            queries["each"] = partial(count, spark, "made-up", tasks=partitions, batches=partitions)
        seconds = medians(queries, rounds, partitions * RECORDS)
        ours = seconds["seglog"]
        table.add_row(
            str(partitions),
            str(tasks),
            f"{ours:.2f}",
            f"{1000 * ours / partitions:.2f}",
            f"{ours / seconds['as many']:.2f}",
            f"{ours / seconds['each']:.3f}" if "each" in seconds else "",
        )
    Console(width=110).print(table)
    spark.stop()


def count(spark: SparkSession, source: str, **options: Any) -> int:
    return spark.read.format(source).options(**options).load().count()


def medians(queries: Mapping[str, Callable[[], int]], rounds: int, rows: int) -> dict[str, float]:
    """Run queries in turn, once to warm up and then to be timed; return the median seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in queries}
    for turn in range(rounds + 1):
        for name, query in queries.items():
            started = time.perf_counter()
            if query() != rows:
                raise ValueError(f"{name} gave another number of rows than {rows}")
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(each) for name, each in seconds.items()}


def write_partitions(log_dir: Path, partitions: int) -> None:
    """Write partitions of one segment and one lz4 batch each, with empty indexes, as a broker does."""
    made = templates("lz4", RECORDS)
    for partition in range(partitions):
        folder = log_dir / f"events-{partition}"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}.log").write_bytes(stamped(made[partition % len(made)], 0))
        for suffix in ("index", "timeindex"):
            (folder / f"{0:020d}.{suffix}").touch()


class MadeUpSource(DataSource):
    """Yields batches of thirty rows of seglog's columns, the same one again and again."""

    @classmethod
    def name(cls) -> str:
        return "made-up"

    def schema(self) -> StructType:
        return source_schema((), include_headers=False)

    def reader(self, schema: StructType) -> MadeUpReader:
        return MadeUpReader(int(self.options["tasks"]), int(self.options["batches"]), schema)


class MadeUpReader(DataSourceReader):
    """Reads as many batches in each task, and the rest in the last."""

    def __init__(self, tasks: int, batches: int, schema: StructType) -> None:
        self.tasks, self.batches, self.schema = tasks, batches, schema

    def partitions(self) -> list[InputPartition]:
        each = self.batches // self.tasks
        return [InputPartition(each)] * (self.tasks - 1) + [InputPartition(self.batches - each * (self.tasks - 1))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self.schema, timezone="UTC")
        rows = {"key": b"user-00001", "value": bytes(100), "topic": "events"}
        arrays = [pa.repeat(pa.scalar(rows.get(field.name, 0), field.type), RECORDS) for field in schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for _ in range(partition.value):
            yield batch


if __name__ == "__main__":
    main()
