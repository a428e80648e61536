"""seglog beside Spark's own Kafka connector: ``python -m tests.bench.connector [--rows N] [--rounds N] [PART ...]``.

The parts are ``large``, of two partitions with many rows, and ``small``, of 400 partitions with few. What is measured
is printed at once. The figures of docs/performance.md are of ``--rows 3000000 --rounds 3``.

A real broker runs on this machine, and takes its share of it, for the connector: writing is ``df.write`` with
``format("kafka")`` into it against ``format("seglog")`` into a directory of its own; reading is ``format("kafka")``
from it against ``format("seglog")`` on its directory, while it runs. The same rows, lz4, warm, in turn, on
``local[2]``; ratios are medians over rounds, and more than 1 is faster than the connector. Needs Maven Central.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tests.bench.spark_read import QUERIES, session
from tests.bench.spark_write import generated
from tests.kafka.broker import Broker
from tests.kafka.jars import connector_jars

ROW = "{:<45} {:>15} {:>7} {:>7}  {:.1f} - {:.1f}"
HEADING = f"{'beside the connector, local[2]':<45} {'seglog Mrows/s':>15} {'ratio':>7} {'target':>7}  range"
PARTITIONS = 2
TARGET = 3
SMALL_PARTITIONS = 400
SMALL_RECORDS = 60
# Where others keep the processors busy, the broker and the producer may wait for minutes. A batch of the producer
# expires after two, and a broker that does not say in time that it lives loses its partitions. No round fails by that.
BROKER = {"log.retention.ms": -1, "broker.session.timeout.ms": 60_000}
PATIENCE = {"kafka.delivery.timeout.ms": 900_000, "kafka.request.timeout.ms": 300_000, "kafka.max.block.ms": 900_000}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rows", type=int, default=500_000)
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="connector-"))
    try:
        with Broker.start(folder / "broker", properties=BROKER) as broker:
            spark = session(jars=connector_jars())
            print(HEADING, flush=True)
            for part in given.parts or PARTS:
                PARTS[part](spark, broker, folder, given.rows, given.rounds)
            spark.stop()
    finally:
        shutil.rmtree(folder)


def measure_large(spark: SparkSession, broker: Broker, folder: Path, rows: int, rounds: int) -> None:
    """Measure two partitions: what a record costs."""
    frame = generated(spark, rows, tasks=2).drop("timestamp").persist()
    frame.count()
    kafka = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.compression.type": "lz4"}
    topics = [f"events-{turn}" for turn in range(rounds + 1)]
    for topic in topics:
        broker.create_topic(topic, partitions=PARTITIONS)
    paths, kafka_turns = (f"{folder}/logs-{turn}" for turn in itertools.count()), iter(topics)
    writing: dict[str, Callable[[], object]] = {
        "seglog": lambda: save(frame, next(paths)),
        "kafka": lambda: frame.write.format("kafka").options(topic=next(kafka_turns), **kafka, **PATIENCE).save(),
    }
    tell("write", timed(writing, rounds), rows)
    for path in folder.glob("logs-*"):
        shutil.rmtree(path)
    from_broker = spark.read.format("kafka").options(subscribe=topics[-1], **kafka).load()
    from_files = spark.read.format("seglog").load(f"{broker.log_dir}/{topics[-1]}")
    there = from_files.count()
    if from_broker.count() != there:
        raise ValueError("the broker and its files differ")
    for name, query in QUERIES.items():
        reads = timed({"seglog": partial(query, from_files), "kafka": partial(query, from_broker)}, rounds)
        tell(f"read: {name}", reads, there)
    frame.unpersist()


def measure_small(spark: SparkSession, broker: Broker, folder: Path, _: int, rounds: int) -> None:
    """Measure many partitions of few records: what a partition costs, and not what a record does."""
    topic = "small"
    broker.create_topic(topic, partitions=SMALL_PARTITIONS)
    kafka = {"kafka.bootstrap.servers": broker.bootstrap}
    rows = SMALL_PARTITIONS * SMALL_RECORDS // 2
    frame = generated(spark, rows, tasks=2).drop("timestamp").persist()
    frame.count()
    writer = frame.write.format("seglog").mode("append").option("numPartitions", SMALL_PARTITIONS)
    writing = timed(
        {
            "seglog": lambda: writer.save(f"{folder}/small/events"),
            "kafka": lambda: frame.write.format("kafka").options(topic=topic, **kafka, **PATIENCE).save(),
        },
        rounds,
    )
    tell(f"write {rows:,} rows into {SMALL_PARTITIONS} partitions", writing, rows, target=1)
    reading = timed(
        {
            "seglog": lambda: spark.read.format("seglog").load(f"{broker.log_dir}/{topic}").count(),
            "kafka": lambda: spark.read.format("kafka").options(subscribe=topic, **kafka).load().count(),
        },
        rounds,
    )
    there = (rounds + 1) * rows
    tell(f"read: count of {there:,} in {SMALL_PARTITIONS} partitions", reading, there, target=25)


PARTS: Final[dict[str, Callable[[SparkSession, Broker, Path, int, int], None]]] = {
    "large": measure_large,
    "small": measure_small,
}


def save(frame: DataFrame, log_dir: str) -> None:
    frame.write.format("seglog").mode("append").option("numPartitions", PARTITIONS).save(f"{log_dir}/events")


def timed(queries: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Run queries in turn, once to warm up and then to be timed: seconds of each round."""
    seconds: dict[str, list[float]] = {name: [] for name in queries}
    for turn in range(rounds + 1):
        for name, query in queries.items():
            started = time.perf_counter()
            query()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def tell(what: str, seconds: dict[str, list[float]], rows: int, target: int = TARGET) -> None:
    """Print a row: the query, millions of rows a second, the ratio, what is wanted of it, and its range."""
    ratios = sorted(theirs / ours for ours, theirs in zip(seconds["seglog"], seconds["kafka"], strict=True))
    rate = rows / statistics.median(seconds["seglog"]) / 1e6
    print(
        ROW.format(what, f"{rate:.3g}", f"{statistics.median(ratios):.1f}", target, ratios[0], ratios[-1]), flush=True
    )


if __name__ == "__main__":
    main()
