"""How near a read through Spark comes to the most that Spark takes from any Python data source.

    python -m tests.bench.spark_read [--master M] [--log L] [--mib N] [--rounds N] [--memory]

The other source yields the very Arrow batches that seglog yields, made beforehand and held in the worker's memory: no
file, no CRC, no decoding. Both run on ``local[1]`` and ``local[2]``, warm, in turn; the ratio is the median over rounds
of (ready-made / seglog), 1 being no slower. Beside it are the ratio of the shortest times, which other work on the
machine blurs less, and that of processor seconds. ``--memory`` measures how much a task's Python worker grows above an
idle one, from a log of 10 MiB to one of 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tests.build import Record, offset_index, v2_batch

ROOT = Path(__file__).parents[2]
_last_seconds: dict[tuple[int, float], float] = {}
BATCH_BYTES = 16 << 10
RECORD_BYTES = 110
LARGE_VALUE_BYTES = 900_000
TEMPLATES = 64
CODECS = ("none", "lz4")
LOGS = (*CODECS, "900 KB")
QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "count": lambda frame: frame.count(),
    "aggregate": lambda frame: (
        frame.groupBy("partition").agg(sf.max("timestamp"), sf.sum(sf.length("value")), sf.max("offset")).collect()
    ),
    "noop write": lambda frame: frame.write.format("noop").mode("overwrite").save(),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--master", action="append", help="by default local[1] and local[2]")
    arguments.add_argument("--log", choices=LOGS, action="append")
    arguments.add_argument("--mib", type=int, default=120, help="of records a partition; there are two")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--memory", action="store_true")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="spark-read-"))
    try:
        if given.memory:
            measure_memory(folder)
        else:
            for name in given.log or LOGS:
                write_partitions(folder / name, name, given.mib << 20)
            for master in given.master or ("local[1]", "local[2]"):
                measure_speed(folder, given.log or LOGS, master, given.rounds)
    finally:
        shutil.rmtree(folder)


def write_partitions(log_dir: Path, name: str, record_bytes: int) -> None:
    """Write two partitions of records that have so many bytes before compression."""
    for partition in range(2):
        to = log_dir / f"events-{partition}"
        if name in CODECS:
            write_log(to, name, rows=record_bytes // RECORD_BYTES, seed=partition)
        else:
            write_log(to, "none", rows=record_bytes // LARGE_VALUE_BYTES, seed=partition, make=large_template)


def measure_speed(folder: Path, logs: Iterable[str], master: str, rounds: int) -> None:
    """Print, for each log and query, the times of both sources and their ratio."""
    # The class must be that of an importable module, or the batches that it holds are pickled with it.
    from tests.bench.spark_read import ReadyMadeSource

    spark = session(master)
    spark.dataSource.register(ReadyMadeSource)
    print(
        f"{'master':9} {'log':6} {'query':11} {'seglog s':>9} {'ready s':>9} {'ratio':>6}  {'range':>10} "
        f"{'best':>5} {'CPU':>5}"
    )
    for log in logs:
        # A task for each partition, since that is how the other source holds its batches.
        frames = {
            name: spark.read.format(name).option("packBytes", "0").load(str(folder / log))
            for name in ("seglog", "ready-made")
        }
        for frame in frames.values():
            for query in QUERIES.values():
                query(frame)
                query(frame)
        for name, query in QUERIES.items():
            costs = [[cost(query, frames[source]) for source in ("seglog", "ready-made")] for _ in range(rounds)]
            ratios = sorted(ready[0] / ours[0] for ours, ready in costs)
            ours, ready = (sorted(each[0] for each in column) for column in zip(*costs, strict=True))
            ours_spent, ready_spent = (min(each[1] for each in column) for column in zip(*costs, strict=True))
            print(
                f"{master:9} {log:6} {name:11} {statistics.median(ours):9.3f} {statistics.median(ready):9.3f} "
                f"{statistics.median(ratios):6.2f}  {ratios[0]:.2f}..{ratios[-1]:.2f} {ready[0] / ours[0]:5.2f} "
                f"{ready_spent / ours_spent:5.2f}",
                flush=True,
            )
    spark.stop()


def measure_memory(folder: Path) -> None:
    """Print the most memory that the worker of one task had, above an idle one, by the size of its log."""
    print(f"{'codec':6} {'log MiB':>8} {'peak MiB above idle':>20}")
    for codec in CODECS:
        for log_mib in (10, 100, 2048):
            log_dir = folder / f"{codec}-{log_mib}"
            write_log(log_dir / "events-0", codec, size_bytes=log_mib << 20)
            spark = session("local[1]")
            spark.sparkContext.parallelize([0], 1).map(lambda number: number).collect()
            idle = peak_bytes_of_workers()
            frame = spark.read.format("seglog").load(str(log_dir))
            frame.write.format("noop").mode("overwrite").save()
            peak = peak_bytes_of_workers()
            print(f"{codec:6} {log_mib:8} {(peak - idle) / (1 << 20):20.0f}", flush=True)
            spark.stop()
            shutil.rmtree(log_dir)


def session(master: str = "local[2]", jars: Iterable[Path] = ()) -> SparkSession:
    """Start Spark, whose workers run this Python with this package."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.driver.memory", "2g")
        .config("spark.jars", ",".join(map(str, jars)))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def cost(query: Callable[[DataFrame], object], frame: DataFrame) -> tuple[float, float]:
    """Return the seconds that passed, and those that the processors spent on the JVM and the Python workers."""
    started, spent = time.perf_counter(), processor_seconds()
    query(frame)
    return time.perf_counter() - started, processor_seconds() - spent


def processor_seconds() -> float:
    """Return the processor seconds of all processes below this one, also of those that have ended since the last call.

    PySpark's daemon waits for none of its workers, so that the seconds of one that has ended are in no other process's
    account; and idle ones end after a minute, whoever is measured then.
    """
    for process in psutil.Process().children(recursive=True):
        # It may just have ended.
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            _last_seconds[process.pid, process.create_time()] = times.user + times.system
    return sum(_last_seconds.values())


def peak_bytes_of_workers() -> int:
    """Return the most memory that any executor's Python worker has had resident."""
    peaks = []
    for process in psutil.Process().children(recursive=True):
        # Those of a session before may just have ended.
        with suppress(psutil.NoSuchProcess):
            if process.cmdline()[-2:] == ["pyspark.daemon", "pyspark.worker"]:
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                peaks.append(1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))))
    return max(peaks)


def write_log(
    folder: Path,
    codec: str,
    *,
    rows: int | None = None,
    size_bytes: int | None = None,
    seed: int = 0,
    make: Callable[[random.Random, str], tuple[bytes, int]] | None = None,
) -> None:
    """Write segments of batches that repeat, each with its own offsets, until there are as many rows or bytes.

    A CRC does not cover the base offset, so a batch is encoded once and stamped many times.
    """
    folder.mkdir(parents=True)
    make = template if make is None else make
    templates = [make(random.Random(seed * TEMPLATES + number), codec) for number in range(TEMPLATES)]
    offset, written, number = 0, 0, 0
    while (rows is not None and offset < rows) or (size_bytes is not None and written < size_bytes):
        base_offset, entries = offset, []
        with (folder / f"{base_offset:020d}.log").open("wb") as segment:
            while segment.tell() < 1 << 30:
                batch, count = templates[number % TEMPLATES]
                entries.append((offset + count - 1 - base_offset, segment.tell()))
                segment.write(struct.pack(">q", offset) + batch[8:])
                offset, number = offset + count, number + 1
                if (rows is not None and offset >= rows) or (
                    size_bytes is not None and written + segment.tell() >= size_bytes
                ):
                    break
            written += segment.tell()
        # Batches are longer than the index interval: all but the first have an entry.
        (folder / f"{base_offset:020d}.index").write_bytes(offset_index(entries[1:]))


def template(rng: random.Random, codec: str) -> tuple[bytes, int]:
    """Encode a batch of about 16 KiB of records of about 100 bytes; return it and its number of records."""
    count = BATCH_BYTES // RECORD_BYTES
    records = [
        Record(row, 1_772_442_000_000 + row, f"user-{rng.randrange(10**6):07d}".encode(), value(rng))
        for row in range(count)
    ]
    return v2_batch(records, codec=codec), count


def large_template(rng: random.Random, codec: str) -> tuple[bytes, int]:
    """Encode a batch of one record of 900 KB, which is about the most that a broker takes unless told otherwise."""
    return v2_batch([Record(0, 1_772_442_000_000, b"key", rng.randbytes(LARGE_VALUE_BYTES))], codec=codec), 1


def value(rng: random.Random) -> bytes:
    fields = {"event": rng.choice(("view", "cart", "pay")), "sku": rng.randrange(10**9), "price": rng.random()}
    return json.dumps(fields).encode().ljust(85)


class ReadyMadeSource(DataSource):
    """The least that a source can do: it yields batches that are there already."""

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def schema(self) -> StructType:
        return StructType(seglog(self.options).schema().fields)

    def reader(self, schema: StructType) -> ReadyMadeReader:
        return ReadyMadeReader(self.options, schema)


class ReadyMadeReader(DataSourceReader):
    """Reads with seglog the first time, and from memory from then on."""

    held: dict[tuple[str, int], list[pa.RecordBatch]] = {}  # noqa: RUF012 - of the worker, on purpose

    def __init__(self, options: Any, schema: StructType) -> None:
        self.reader: DataSourceReader = seglog(options).reader(schema)

    def partitions(self) -> list[InputPartition]:
        return list(self.reader.partitions())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        key = (partition.value[0].folder, partition.value[0].start_offset)
        if key not in self.held:
            self.held[key] = list(self.reader.read(partition))
        return iter(self.held[key])


def seglog(options: Any) -> Any:
    from sparklog.spark.source import SeglogDataSource

    return SeglogDataSource(options)


if __name__ == "__main__":
    main()
