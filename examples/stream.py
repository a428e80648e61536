"""Runs a live pipeline without a broker: a writer appends sales to a log, and a stream writes their sums to another.

python examples/stream.py [FOLDER]
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparklog

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/sparklog-stream")
shutil.rmtree(folder, ignore_errors=True)
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = (
    SparkSession.builder.master("local[2]")
    .appName("sparklog stream")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.python.unix.domain.socket.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
sparklog.register(spark)


def sell(seconds: float, products: tuple[str, ...] = ("beans", "grinder", "cups")) -> None:
    """Append some sales ten times a second, as an edge device would."""
    until = time.monotonic() + seconds
    with sparklog.PartitionLog.open(folder / "shop" / "sales-0") as log:
        while time.monotonic() < until:
            sales = [(random.choice(products), random.randint(5, 90)) for _ in range(20)]
            for product, price in sales:
                sold[product] += price
            values = [json.dumps({"product": product, "price": price}) for product, price in sales]
            log.append(pa.table({"value": values}))
            time.sleep(0.1)


sold: Counter[str] = Counter()
writer = threading.Thread(target=sell, args=(20,))
writer.start()
while not (folder / "shop" / "sales-0").exists():
    time.sleep(0.05)
totals = (
    spark.readStream.format("seglog")
    .option("startingOffsets", "earliest")
    .option("valueFormat", "json")
    .option("valueSchema", "product string, price bigint")
    .load(str(folder / "shop"))
    .groupBy("value.product")
    .agg(F.sum("value.price").cast("string").alias("value"))
    .withColumnRenamed("product", "key")
    .writeStream.format("seglog")
    .outputMode("complete")
    .option("checkpointLocation", str(folder / "checkpoint"))
    .option("numPartitions", 1)
    .trigger(processingTime="1 second")
    .start(str(folder / "sums" / "totals"))
)


def print_lag() -> None:
    lag = sparklog.stream_lag(totals)
    print("the query has not begun yet" if lag is None else f"the query is {lag.total} sales behind")


while writer.is_alive():
    time.sleep(2)
    print_lag()
totals.processAllAvailable()
print_lag()
totals.stop()
rows = sparklog.open_topic(folder / "sums" / "totals").read(columns=["key", "value"]).to_pylist()
totals_now = {row["key"].decode(): int(row["value"]) for row in rows}  # the last row of each key counts
print(f"sold: {sorted(sold.items())}")
print(f"says the stream: {sorted(totals_now.items())}")
spark.stop()
