"""A query of Spark's own Kafka connector, which is stopped, and one of seglog that goes on from its checkpoint.

    python -m tests.kafka.stream_taken_over LOG_DIR SERVERS

A process of its own, as `tests.kafka.beside_connector`, whose rows it reads. For each version of Spark's offset log it
prints how many rows the first has read, the other, and the other after a restart, and whether that is every row once.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import sparklog
from tests.bench.spark_read import session
from tests.kafka.beside_connector import TOPIC, written
from tests.kafka.jars import connector_jars

Rows = list[tuple[Any, ...]]
PLACE = ("partition", "offset", "key", "value", "timestamp")


def run(stream: DataFrame, checkpoint: Path) -> dict[int, Rows]:
    """Read what there is; return the rows of each batch by its number."""
    found: dict[int, Rows] = {}

    def collect(batch: DataFrame, number: int) -> None:
        found[number] = [tuple(row) for row in batch.select(*PLACE).collect()]

    writer = stream.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return found


def take_over(spark: SparkSession, log_dir: str, connected: dict[str, str], folder: Path, version: int) -> bool:
    """Let one query stop in the midst of a batch, and the other go on, with more rows written in between."""
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", version)
    options = {"subscribe": TOPIC, "maxOffsetsPerTrigger": "1700"}

    def write() -> None:
        written(spark).write.format("kafka").options(topic=TOPIC, **connected).save()

    write()
    kafka = spark.readStream.format("kafka").options(startingOffsets="earliest", **connected, **options).load()
    theirs = run(kafka, folder / "kafka")
    # As if it had been killed in its last batch.
    last = max(theirs)
    del theirs[last]
    (folder / "kafka" / "commits" / str(last)).unlink()
    write()
    starts = sparklog.offsets_of_checkpoint(folder / "kafka")
    seglog = spark.readStream.format("seglog").options(startingOffsets=starts, **options).load(log_dir)
    ours = run(seglog, folder / "seglog")
    write()
    again = run(seglog, folder / "seglog")
    version_line = (folder / "kafka" / "offsets" / "0").read_text().split("\n")[0]
    batches = [*theirs.values(), *ours.values(), *again.values()]
    everything = spark.read.format("kafka").options(subscribe=TOPIC, **connected).load().select(*PLACE).collect()
    rows = [row for batch in batches for row in batch]
    is_same = sorted(rows, key=lambda row: row[:2]) == sorted(map(tuple, everything), key=lambda row: row[:2])
    counts = [sum(map(len, part.values())) for part in (theirs, ours, again)]
    print(f"{version_line}: {counts} rows, {'each once' if is_same else 'DIFFERENT'}")
    return is_same


def main(log_dir: str, servers: str) -> int:
    spark = session(jars=connector_jars())
    spark.sparkContext.setLogLevel("OFF")
    are_same = []
    for version in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            are_same.append(take_over(spark, log_dir, {"kafka.bootstrap.servers": servers}, Path(folder), version))
    spark.stop()
    return 0 if all(are_same) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
