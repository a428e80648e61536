"""Jobs beside what others have for them: ``python -m tests.bench.jobs_peers [--rows N] [--rounds N]``.

A real broker runs on this machine, and takes its share of it, for Spark's own Kafka connector, from which Spark writes
Parquet. The same is written from the broker's directory, while it runs, through Spark from ``format("seglog")``, and by
`sparklog.export`, in processes of this machine and on Spark. The same columns, zstd, warm, in turn, two cores. The
Parquet files are then written back: by Spark into the broker, and by `sparklog.load` into a directory, both lz4. Last
the directory is copied by ``cp -r``, and by `sparklog.copy`, which checks every batch and syncs what it has written;
``cp`` followed by ``sync`` is the peer that does so too. Beside it is a copy whose syncs are left out, so that ``cp``
alone is a peer of the same work, and not of the disk. Ratios are medians over rounds, and more than 1 is faster than
the peer. Beside them are the ratios of processor seconds, the broker's among them, which other work on the machine
blurs less. Needs Maven Central.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import sparklog
from sparklog.jobs.copy.job import CopyJob
from sparklog.jobs.copy.plan import CopySource
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.source import LogSource
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.storage.local_writing import LocalWritableFile, LocalWritableStorage
from sparklog.write.running_jobs import new_job
from tests.bench.spark_read import processor_seconds, session
from tests.bench.spark_write import generated
from tests.kafka.broker import Broker
from tests.kafka.jars import connector_jars
from tests.places import location_of

PARTITIONS = 2
TOPIC = "events"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
WANTED = {"kafka": 5.5, "seglog": 3.5}
WANTED_OF_LOAD = {"kafka": 5.0}
WANTED_OF_COPY = {"cp": 0.5, "cp, sync": 0.5}


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
    made = timed(exports(spark, broker, folder / "out", kafka), rounds)
    report("Export to Parquet", made, ("export", "export on Spark"), WANTED, 2 * rows)
    parquet = folder / "parquet"
    sparklog.export(f"{broker.log_dir}/{TOPIC}", parquet, columns=("key", "value"), partition_by=())
    report("Load of Parquet", timed(loads(spark, broker, parquet, kafka), rounds), ("load",), WANTED_OF_LOAD, 2 * rows)
    spark.stop()
    logs = folder / "logs"
    sparklog.copy(f"{broker.log_dir}/{TOPIC}", logs)
    made = timed(copies(logs, folder / "copied"), rounds)
    report("Copy", made, ("copy", "copy, unsynced"), WANTED_OF_COPY, 2 * rows)


def report(
    title: str, made: tuple[dict[str, list[float]], ...], ours: tuple[str, ...], wanted: dict[str, float], rows: int
) -> None:
    """Print how many times as fast as its peers each of ours was."""
    seconds, spent = made
    table = Table(title=f"{title}, two cores")
    peers = [title for peer in wanted for title in (f"times {peer}", "wanted", "range", "processor")]
    for heading in ("", "Mrows/s", *peers):
        table.add_column(heading, justify="right")
    for name in ours:
        told = [f"{rows / statistics.median(seconds[name]) / 1e6:.3g}"]
        for peer, least in wanted.items():
            each = ratios(seconds[name], seconds[peer])
            of_processors = statistics.median(ratios(spent[name], spent[peer]))
            told += [f"{statistics.median(each):.2g}", str(least), f"{each[0]:.2g} - {each[-1]:.2g}"]
            told.append(f"{of_processors:.2g}")
        table.add_row(name, *told)
    Console(width=140).print(table)


def loads(spark: SparkSession, broker: Broker, parquet: Path, kafka: dict[str, str]) -> dict[str, Callable[[], object]]:
    """Return what writes the files into a topic, each time a new one."""
    frame, numbers = spark.read.parquet(str(parquet)).select("key", "value"), itertools.count()

    def into_kafka() -> None:
        topic = f"loaded-{next(numbers)}"
        broker.create_topic(topic, partitions=PARTITIONS)
        frame.write.format("kafka").options(topic=topic, **kafka, **{"kafka.compression.type": "lz4"}).save()

    def into_logs() -> None:
        path = parquet.parent / f"loaded-{next(numbers)}"
        sparklog.load(parquet, path, topic=TOPIC, num_partitions=PARTITIONS, config={"compression.type": "lz4"})
        shutil.rmtree(path)

    return {"kafka": into_kafka, "load": into_logs}


class UnsyncedFile(LocalWritableFile):
    """A file that the disk gets when it likes."""

    def begin_sync(self, position: int) -> None:
        pass

    def sync(self) -> None:
        pass


class UnsyncedStorage(LocalWritableStorage):
    """This machine's files, which no call waits to have on the disk."""

    def open_for_append(self, path: str) -> UnsyncedFile:
        return UnsyncedFile(path)

    def sync_folder(self, path: str) -> None:
        pass

    def sync_files(self, paths: Collection[str]) -> None:
        pass

    def sync_folders(self, paths: Collection[str]) -> None:
        pass


def copies(logs: Path, out: Path) -> dict[str, Callable[[], object]]:
    """Return what copies a log directory, each time to a folder of its own, which is removed."""

    def cp(*, is_synced: bool) -> None:
        subprocess.run(["cp", "-r", logs, out], check=True)
        if is_synced:
            subprocess.run(["sync", *(path for path in out.rglob("*") if path.is_file())], check=True)
        shutil.rmtree(out)

    def copy() -> None:
        sparklog.copy(logs, out)
        shutil.rmtree(out)

    def copy_unsynced() -> None:
        now_ms, runner = wall_clock_ms(), LocalRunner()
        job = CopyJob(
            location_of(out, UnsyncedStorage()),
            (CopySource(LogSource((str(logs),))),),
            LogConfig(),
            new_job(now_ms),
            now_ms,
            workers=runner.workers,
            syncs_tasks=False,
        )
        run_job(job, runner)
        shutil.rmtree(out)

    return {
        "cp": partial(cp, is_synced=False),
        "cp, sync": partial(cp, is_synced=True),
        "copy": copy,
        "copy, unsynced": copy_unsynced,
    }


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
    """Return the processor seconds of this process and of all that it has started, also of what has ended.

    What this process has waited for has ended between two calls, so that it is not counted twice.
    """
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return processor_seconds() + sum(each.ru_utime + each.ru_stime for each in used)


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return sorted(their / our for our, their in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    main()
