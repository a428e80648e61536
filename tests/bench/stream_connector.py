"""Streams beside those of Spark's own Kafka connector: ``python -m tests.bench.stream_connector``.

    python -m tests.bench.stream_connector [--rows N] [--rounds N] [--small-batches N]

A real broker runs on this machine, and takes its share of it, for the connector; seglog reads the broker's directory
while it runs, and writes into one of its own. All rows are read by `Trigger.AvailableNow`, in one batch or in batches
of a million; those that are only written come from Parquet files, of which Spark makes a stream at little cost. The
same rows, lz4, warm, in turn, on ``local[2]``; ratios are medians over rounds, more than 1 is faster than the
connector, and beside them are those of processor seconds, the broker's among them. Latency is from the acknowledgement
of ten records, by a broker, to when they are in the log of a sink, of a query from end to end that runs. Needs Maven
Central.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import sparklog
from sparklog.errors import SeglogError
from tests.bench.connector import BROKER, PATIENCE
from tests.bench.jobs_peers import ratios, timed
from tests.bench.spark_read import session
from tests.bench.spark_write import generated
from tests.kafka.broker import Broker
from tests.kafka.jars import connector_jars
from tests.kafka.tool import Record

PARTITIONS = 2
KINDS = ("seglog", "kafka")
BATCH_ROWS = 1_000_000
IN_BATCHES = {"maxOffsetsPerTrigger": str(BATCH_ROWS)}
FILES_PER_BATCH = 2
WANTED = 2.5
TOPIC, SMALL_TOPIC = "events", "small"
POLLED_EVERY_SECONDS = 0.002


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rows", type=int, default=2_000_000, help="written twice")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--small-batches", type=int, default=40)
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stream-connector-"))
    try:
        with Broker.start(folder / "broker", properties=BROKER) as broker:
            Streams(broker, folder).measure(given.rows, given.rounds, given.small_batches)
    finally:
        shutil.rmtree(folder)


class Streams:
    """Streams of both kinds, each with a checkpoint and a target of its own."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._broker, self._folder = broker, folder
        self._kafka = {"kafka.bootstrap.servers": broker.bootstrap}
        self._spark: SparkSession = session(jars=connector_jars())
        self._spark.sparkContext.setLogLevel("OFF")
        self._parquet = str(folder / "parquet")
        self._numbers = itertools.count()

    def measure(self, rows: int, rounds: int, small_batches: int) -> None:
        self._broker.create_topic(TOPIC, partitions=PARTITIONS)
        frame = generated(self._spark, rows, tasks=FILES_PER_BATCH * max(1, rows // BATCH_ROWS)).drop("timestamp")
        for _ in range(2):
            frame.write.mode("append").parquet(self._parquet)
        made = self._spark.read.parquet(self._parquet)
        made.write.format("kafka").options(topic=TOPIC, **self._kafka, **PATIENCE).save()
        cases = {
            "read": lambda kind: self._run(self._read(kind), None),
            "write": lambda kind: self._run(self._read_parquet(), kind),
            "read and write": lambda kind: self._run(self._read(kind), kind),
            "write, in batches": lambda kind: self._run(self._read_parquet(maxFilesPerTrigger=FILES_PER_BATCH), kind),
            "both, in batches": lambda kind: self._run(self._read(kind, **IN_BATCHES), kind),
        }
        print(
            f"{'':17} {'seglog Mrows/s':>14} {'times kafka':>11} {'wanted':>6} {'range':>12} {'processor':>9}",
            flush=True,
        )
        for name, run in cases.items():
            seconds, spent = timed({kind: partial(run, kind) for kind in KINDS}, rounds)
            found = ratios(seconds["seglog"], seconds["kafka"])
            print(
                f"{name:17} {2 * rows / statistics.median(seconds['seglog']) / 1e6:14.3g} "
                f"{statistics.median(found):11.2g} {WANTED:6} {found[0]:5.2g}..{found[-1]:.2g} "
                f"{statistics.median(ratios(spent['seglog'], spent['kafka'])):9.2g}",
                flush=True,
            )
        for kind in KINDS:
            took = self._latencies(kind, small_batches)
            print(
                f"{kind}: ten records, ms: median {statistics.median(took):.0f}, p95 {took[len(took) * 95 // 100]:.0f}"
            )
        self._spark.stop()

    def _read(self, kind: str, topic: str = TOPIC, **options: str) -> DataFrame:
        reader = self._spark.readStream.format(kind).options(startingOffsets="earliest", **options)
        if kind == "kafka":
            return reader.options(subscribe=topic, **self._kafka).load().select("key", "value")
        return reader.load(f"{self._broker.log_dir}/{topic}").select("key", "value")

    def _read_parquet(self, **options: int) -> DataFrame:
        return self._spark.readStream.schema("key binary, value binary").options(**options).parquet(self._parquet)

    def _written(self, frame: DataFrame, kind: str | None, target: str) -> DataStreamWriter:
        checkpoint = str(self._folder / "checkpoints" / str(next(self._numbers)))
        writer = frame.writeStream.option("checkpointLocation", checkpoint)
        if kind is None:
            return writer.format("noop")
        if kind == "kafka":
            self._broker.create_topic(target, partitions=PARTITIONS)
            lz4 = {"kafka.compression.type": "lz4"}
            return writer.format("kafka").options(topic=target, **self._kafka, **lz4, **PATIENCE)
        return writer.format("seglog").options(numPartitions=PARTITIONS, path=str(self._folder / "logs" / target))

    def _run(self, frame: DataFrame, kind: str | None) -> None:
        target = f"out-{next(self._numbers)}"
        self._written(frame, kind, target).trigger(availableNow=True).start().awaitTermination()
        shutil.rmtree(self._folder / "logs", ignore_errors=True)

    def _latencies(self, kind: str, small_batches: int) -> list[float]:
        """Return how many ms each small batch took, ascending."""
        topic, target = f"{SMALL_TOPIC}-{kind}", f"visible-{kind}"
        self._broker.create_topic(topic, partitions=1)
        directory = self._broker.log_dir if kind == "kafka" else self._folder / "logs"
        query = self._written(self._read(kind, topic), kind, target).start()
        took = []
        with self._broker.producer() as producer:
            for number in range(small_batches + 5):
                producer.send([Record(topic, value=b"%d" % number)] * 10)
                started = time.perf_counter()
                while _records(Path(directory), target) < 10 * (number + 1):
                    time.sleep(POLLED_EVERY_SECONDS)
                if number >= 5:  # those before are to be warm
                    took.append((time.perf_counter() - started) * 1000)
        query.stop()
        return sorted(took)


def _records(directory: Path, topic: str) -> int:
    """Count the records of a topic's logs by where they end."""
    count = 0
    for partition in range(PARTITIONS):
        try:
            with sparklog.open_log(directory / f"{topic}-{partition}") as log:
                count += log.end_offset
        except SeglogError:
            continue  # not there yet
    return count


if __name__ == "__main__":
    main()
