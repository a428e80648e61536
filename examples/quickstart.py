"""Reads a small log directory that a real broker wrote, with Spark and without a broker, and writes another one.

Run it with ``make demo``, or with a log directory of your own: ``python examples/quickstart.py /var/lib/kafka/data``.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Spark's workers need the packages of this Python; by default Spark starts them with the first python on the path.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

EVENTS = ("page_view", "add_to_cart", "checkout", "payment", "refund")
DATA = Path(__file__).parent / "data"
seconds: dict[str, float] = {}


@contextmanager
def timed(what: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[what] = time.perf_counter() - started


def records(spark: SparkSession, path: str) -> DataFrame:
    """Load every topic of a log directory: the columns of Spark's own Kafka source."""
    return spark.read.format("seglog").option("subscribePattern", "shop-.*").option("includeHeaders", "true").load(path)


def events_by_minute(loaded: DataFrame) -> DataFrame:
    """Count the events of each type in each minute."""
    event = F.from_json(F.col("value").cast("string"), "event string").event
    minutes = loaded.where("topic = 'shop-events'").select(
        F.date_trunc("minute", "timestamp").alias("minute"), event.alias("event")
    )
    return minutes.groupBy("minute").pivot("event", list(EVENTS)).count().na.fill(0).orderBy("minute")


def rewrite(spark: SparkSession, orders: DataFrame, directory: str) -> None:
    """Write orders to a new topic, keyed by customer, and read them back."""
    customer = F.from_json(F.col("value").cast("string"), "customer string").customer
    rows = orders.select(F.coalesce(customer, F.col("key").cast("string")).alias("key"), "value", "timestamp")
    to = rows.write.format("seglog").mode("append").option("topic", "orders-by-customer").option("numPartitions", 4)
    to.option("compression.type", "zstd").save(directory)
    written = spark.read.format("seglog").load(directory)
    written.groupBy("topic", "partition").agg(
        F.count("*").alias("orders"), F.min("offset").alias("first"), F.max("offset").alias("last")
    ).orderBy("partition").show()


def main(path: str) -> None:
    with timed("start Spark"):
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("sparklog quickstart")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
    with timed("plan the read"):
        loaded = records(spark, path)
    with timed("first read (compiles the kernels, once a machine)"):
        loaded.orderBy("topic", "partition", "offset").select(
            "topic", "partition", "offset", "timestamp", F.col("key").cast("string"), F.col("value").cast("string")
        ).show(8, truncate=60)
    with timed("events by type and minute"):
        events_by_minute(loaded).show(40, truncate=False)
    with timed("orders, without those of aborted transactions"):
        orders = spark.read.format("seglog").option("isolationLevel", "read_committed").load(f"{path}/shop-orders")
        print(f"orders: {orders.count()} committed, {loaded.where(F.col('topic') == 'shop-orders').count()} in all\n")
    with timed("write the orders into new logs, and read them"), tempfile.TemporaryDirectory() as directory:
        rewrite(spark, orders, directory)
    print("where time went")
    for what, took in seconds.items():
        print(f"{took:8.2f} s  {what}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(DATA))
