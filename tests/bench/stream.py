"""Streams beside batches of the same rows, and what a trigger costs: ``python -m tests.bench.stream``.

    python -m tests.bench.stream [--rows N] [--rounds N] [--partitions N]

A trigger that finds nothing new is told as a multiple of listing the same tree and asking for the size of each file, in
processor time of the driver's process. A stream is one batch of all rows (`Trigger.AvailableNow`), and stands beside a
batch read, or a read and a write, in turn; a query's start and its checkpoint are in its time. Beside it is what any
Python source of a stream would need: one that yields the same batches ready-made, and one that yields nothing, whose
time is Spark's start of a query. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from rich.console import Console
from rich.table import Table

from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.schema import source_schema
from sparklog.spark.read.decoding import ReadColumns
from sparklog.spark.stream.reader import SeglogStreamReader
from sparklog.topic.streams.offsets import INITIAL
from tests.bench.ready_stream import ReadyMadeStream
from tests.bench.spark_read import session, write_log
from tests.build import Record, v2_batch

_HOUR_NS = 3_600_000_000_000
_LOOKS = 20


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rows", type=int, default=4_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--partitions", type=int, default=1_000)
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stream-"))
    table = Table("streams", "", "")
    try:
        for partition in range(given.partitions):
            append(folder / "many" / f"t-{partition}", 0)
        idle_seconds, ratio = idle_trigger(folder / "many")
        table.add_row(f"idle trigger, {given.partitions:,} partitions", f"{idle_seconds * 1000:.0f} ms", f"{ratio:.2f}")
        with session("local[2]") as spark:
            spark.sparkContext.setLogLevel("OFF")
            seconds = small_trigger(spark, folder / "many", folder / "cp", given.partitions)
            table.add_row(f"ten new records in each of {given.partitions:,}", f"{seconds:.1f} s", "")
            for partition in range(2):
                write_log(folder / "logs" / f"events-{partition}", "lz4", rows=given.rows // 2, seed=partition)
            for name, share in beside_batches(spark, folder, given.rounds):
                table.add_row(name, "", f"{share:.2f} of the batch's speed")
    finally:
        shutil.rmtree(folder)
    Console().print(table)


def append(folder: Path, first: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    records = [Record(n, 1_000, b"key", b"value") for n in range(10)]
    with (folder / f"{0:020}.log").open("ab") as log:
        log.write(v2_batch(records, base_offset=first))
    for name in ("index", "timeindex"):
        (folder / f"{0:020}.{name}").touch()


def reader_of(path: Path) -> SeglogStreamReader:
    """Return the reader of a stream of all logs of a directory, as it is beside the driver."""
    options = SeglogOptions.parse_stream({"path": str(path)})
    return SeglogStreamReader(options, source_schema((), include_headers=False), ReadColumns())


def idle_trigger(path: Path) -> tuple[float, float]:
    """Return what a trigger takes that finds nothing, and how many times a listing with sizes that is."""
    for each in [*path.rglob("*"), path]:
        os.utime(each, ns=(0, time.time_ns() - _HOUR_NS))
    reader = reader_of(path)
    start = reader.latestOffset(INITIAL, ReadAllAvailable())

    def listed() -> None:
        for folder in os.scandir(path):
            for file in os.scandir(folder):
                file.stat()

    times = [
        [processor_seconds(look) for look in (lambda: reader.latestOffset(start, ReadAllAvailable()), listed)]
        for _ in range(_LOOKS)
    ]
    idle, plain = (min(column) for column in zip(*times, strict=True))
    return idle, idle / plain


def processor_seconds(look: Callable[[], Any]) -> float:
    started = time.process_time()
    look()
    return time.process_time() - started


def small_trigger(spark: SparkSession, path: Path, checkpoint: Path, partitions: int) -> float:
    """Return how long a trigger takes over many partitions with ten new records each, of a query that runs."""
    query = (
        spark.readStream.format("seglog")
        .load(str(path))
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    query.processAllAvailable()
    times = []
    for first in (10, 20, 30):
        for partition in range(partitions):
            append(path / f"t-{partition}", first)
        query.processAllAvailable()
        times.append(max(each["durationMs"]["triggerExecution"] for each in query.recentProgress[-3:]) / 1000)
    query.stop()
    return float(min(times))


def beside_batches(spark: SparkSession, folder: Path, rounds: int) -> list[tuple[str, float]]:
    """Return the speed of streams as shares of that of batches which do the same."""
    logs, numbers = str(folder / "logs"), iter(range(10_000))

    def stream(
        sink: str, to: str | None = None, *, source: str = "seglog", given: str = "startingOffsets", **options: Any
    ) -> None:
        (
            spark.readStream.format(source)
            .option(given, "earliest")
            .load(logs)
            .select("key", "value")
            .writeStream.format(sink)
            .options(checkpointLocation=str(folder / f"cp{next(numbers)}"), **options)
            .trigger(availableNow=True)
            .start(to)
            .awaitTermination()
        )

    def batch(sink: str, to: str | None = None, **options: Any) -> None:
        rows = spark.read.format("seglog").load(logs).select("key", "value")
        rows.write.format(sink).mode("overwrite" if sink == "noop" else "append").options(**options).save(to)

    def to_log(run: Callable[..., None]) -> Callable[[], None]:
        return lambda: run("seglog", str(folder / f"out{next(numbers)}" / "t"), numPartitions=2)

    spark.dataSource.register(ReadyMadeStream)

    def ready(**more: Any) -> Callable[[], None]:
        return lambda: stream("noop", source=ReadyMadeStream.name(), **more)

    cases = {
        "AvailableNow, read": (lambda: batch("noop"), lambda: stream("noop"), ready(), ready(given="empty")),
        "AvailableNow, read and write": (to_log(batch), to_log(stream)),
    }
    found = []
    for name, runs in cases.items():
        times = [[elapsed(run) for run in runs] for _ in range(rounds + 1)][1:]  # the first is to be warm
        found.append((name, statistics.median(each[0] / each[1] for each in times)))
        if len(runs) > 2:
            found.append((f"{name}, ready-made batches", statistics.median(each[0] / each[2] for each in times)))
            started = [each[0] / (each[1] - each[3]) for each in times]
            found.append((f"{name}, without a query's start", statistics.median(started)))
    return found


def elapsed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
