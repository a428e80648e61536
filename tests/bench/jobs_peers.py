"""An export to Parquet beside what others have for it: ``python -m tests.bench.jobs_peers [--rows N] [--rounds N]``.

A real broker runs on this machine, and takes its share of it, for Spark's own Kafka connector, from which Spark writes
Parquet. The same is written from the broker's directory, while it runs, through Spark from ``format("seglog")``, and by
`sparklog.export`, in processes of this machine and on Spark. The same columns, zstd, warm, in turn, two cores; ratios
are medians over rounds, and more than 1 is faster than the peer. Beside them are the ratios of processor seconds, the
broker's among them, which other work on the machine blurs less. Needs Maven Central.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import sparklog
from tests.bench.spark_read import processor_seconds, session
from tests.bench.spark_write import generated
from tests.kafka.broker import Broker
from tests.kafka.jars import connector_jars

PARTITIONS = 2
TOPIC = "events"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
WANTED = {"kafka": 5.5, "seglog": 3.5}
OURS = ("export", "export on Spark")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rows", type=int, default=3_000_000, help="written twice")
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="jobs-"))
    try:
        with Broker.start(folder / "broker", properties={"log.retention.ms": -1}) as broker:
            measure(broker, folder, given.rows, given.rounds)
    finally:
        shutil.rmtree(folder)


def measure(broker: Broker, folder: Path, rows: int, rounds: int) -> None:
    spark = session(jars=connector_jars())
    kafka = {"kafka.bootstrap.servers": broker.bootstrap}
    broker.create_topic(TOPIC, partitions=PARTITIONS)
    frame = generated(spark, rows, tasks=2).drop("timestamp")
    for _ in range(2):
        frame.write.format("kafka").options(topic=TOPIC, **kafka, **{"kafka.compression.type": "lz4"}).save()
    seconds, spent = timed(exports(spark, broker, folder / "out", kafka), rounds)
    table = Table(title="Export to Parquet, two cores")
    peers = [title for peer in WANTED for title in (f"times {peer}", "wanted", "range", "processor")]
    for title in ("", "Mrows/s", *peers):
        table.add_column(title, justify="right")
    for name in OURS:
        speed = 2 * rows / statistics.median(seconds[name]) / 1e6
        told = [f"{speed:.3g}"]
        for peer, wanted in WANTED.items():
            each = ratios(seconds[name], seconds[peer])
            of_processors = statistics.median(ratios(spent[name], spent[peer]))
            told += [f"{statistics.median(each):.1f}", str(wanted), f"{each[0]:.1f} - {each[-1]:.1f}"]
            told.append(f"{of_processors:.1f}")
        table.add_row(name, *told)
    Console(width=140).print(table)
    spark.stop()


def exports(spark: SparkSession, broker: Broker, out: Path, kafka: dict[str, str]) -> dict[str, Callable[[], object]]:
    """Return what exports the topic, each time into a folder of its own; its rows are counted, and it is removed."""
    source, numbers = f"{broker.log_dir}/{TOPIC}", itertools.count()
    by_connector = spark.read.format("kafka").options(subscribe=TOPIC, **kafka).load()
    by_seglog = spark.read.format("seglog").load(source)
    there = by_seglog.count()

    def written(write: Callable[[str], object]) -> Callable[[], object]:
        def run() -> None:
            path = out / str(next(numbers))
            write(str(path))
            rows = ds.dataset(path, format="parquet").count_rows()
            if rows != there:
                raise ValueError(f"{rows} rows are written, and there are {there}")
            shutil.rmtree(path)

        return run

    def through(frame: DataFrame) -> Callable[[str], object]:
        return lambda path: frame.select(*COLUMNS).write.option("compression", "zstd").parquet(path)

    return {
        "kafka": written(through(by_connector)),
        "seglog": written(through(by_seglog)),
        "export": written(lambda path: sparklog.export(source, path, columns=COLUMNS, partition_by=())),
        "export on Spark": written(
            lambda path: sparklog.export(source, path, columns=COLUMNS, partition_by=(), spark=spark)
        ),
    }


def timed(queries: dict[str, Callable[[], object]], rounds: int) -> tuple[dict[str, list[float]], ...]:
    """Run queries in turn, once to warm up and then to be timed: the seconds that passed, and those of processors."""
    seconds: dict[str, list[float]] = {name: [] for name in queries}
    spent: dict[str, list[float]] = {name: [] for name in queries}
    for turn in range(rounds + 1):
        for name, query in queries.items():
            started, before = time.perf_counter(), spent_seconds()
            query()
            if turn:
                seconds[name].append(time.perf_counter() - started)
                spent[name].append(spent_seconds() - before)
    return seconds, spent


def spent_seconds() -> float:
    """Return the processor seconds of this process and of all that it has started, also of what has ended."""
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return processor_seconds() + sum(each.ru_utime + each.ru_stime for each in used)


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return sorted(their / our for our, their in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    main()
