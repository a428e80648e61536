"""The same streams by Spark's own Kafka connector and by seglog: rows, and the bounds of each batch.

    python -m tests.kafka.streams_beside_connector LOG_DIR SERVERS

A process of its own, as `tests.kafka.beside_connector`, whose rows it reads. What differs is printed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparklog.topic.streams.offsets import StreamOffset
from tests.bench.spark_read import session
from tests.kafka.beside_connector import TOPIC, written
from tests.kafka.jars import connector_jars

Batches = list[tuple[dict[str, dict[str, int]], list[Any]]]
"""Of each batch with rows the offsets at its end, and its rows."""


def queries(times: list[int]) -> dict[str, dict[str, Any]]:
    """Return options by what they are about; ``times`` are those of records, ms, ascending."""
    early, late = times[len(times) // 3], times[2 * len(times) // 3]
    by_time = json.dumps({TOPIC: {"0": early, "1": times[0], "2": late}})
    starts: dict[str, dict[str, Any]] = {
        "earliest": {"startingOffsets": "earliest"},
        "offsets": {"startingOffsets": json.dumps({TOPIC: {"0": 5, "1": -2, "2": 700}})},
        "some at the end": {"startingOffsets": json.dumps({TOPIC: {"0": -1, "1": 100, "2": -1}})},
        "time": {"startingTimestamp": early},
        "time a partition": {"startingOffsetsByTimestamp": by_time},
        "after the last": {"startingTimestamp": times[-1] + 1, "startingOffsetsByTimestampStrategy": "latest"},
        "latest": {"startingOffsets": "latest"},
        "no start": {},
    }
    rates: dict[str, dict[str, Any]] = {
        "all": {},
        "1,700 a trigger": {"maxOffsetsPerTrigger": 1_700},
        "999 a trigger, split": {"maxOffsetsPerTrigger": 999, "minPartitions": 7},
    }
    found: dict[str, dict[str, Any]] = {
        f"{start}, {rate}": {"subscribe": TOPIC, **starts[start], **rates[rate]} for start in starts for rate in rates
    }
    earliest: dict[str, Any] = {"startingOffsets": "earliest"}
    return {
        **found,
        "pattern": {"subscribePattern": r"beside\.[a-z]+-\d", "maxOffsetsPerTrigger": 2_500, **earliest},
        "assign": {"assign": json.dumps({TOPIC: [0, 2]}), "maxOffsetsPerTrigger": 1_234, **earliest},
        "headers": {"subscribe": TOPIC, "includeHeaders": True, **earliest},
        "committed": {"subscribe": TOPIC, "kafka.isolation.level": "read_committed", **earliest},
        "small splits": {"subscribe": TOPIC, "maxRecordsPerPartition": 400, **earliest},
        "more than there is": {"subscribe": TOPIC, "maxOffsetsPerTrigger": 10**12, **earliest},
    }


def batches(stream: DataFrame, *, once: bool) -> Batches:
    """Run a stream over what there is; batches without rows are left out."""
    rows: dict[int, list[Any]] = {}

    def collect(batch: DataFrame, number: int) -> None:
        rows[number] = batch.orderBy("topic", "partition", "offset").collect()

    with tempfile.TemporaryDirectory() as checkpoint:
        triggered: dict[str, Any] = {"once": True} if once else {"availableNow": True}
        writer = stream.writeStream.foreachBatch(collect).option("checkpointLocation", checkpoint)
        writer.trigger(**triggered).start().awaitTermination()
        logged = {
            number: StreamOffset.parse(
                json.loads((Path(checkpoint) / "offsets" / str(number)).read_text().split("\n")[2])
            )
            for number in rows
        }
    return [(logged[number].topics_json(), rows[number]) for number in sorted(rows) if rows[number]]


def main(log_dir: str, servers: str) -> int:
    spark: SparkSession = session(jars=connector_jars())
    spark.sparkContext.setLogLevel("OFF")
    connected = {"kafka.bootstrap.servers": servers}
    written(spark).write.format("kafka").options(topic=TOPIC, **connected).save()
    everything = spark.read.format("kafka").options(subscribe=TOPIC, **connected).load()
    times = sorted(int(row[0].timestamp() * 1000) for row in everything.select("timestamp").collect())
    different = 0
    for number, (name, options) in enumerate(queries(times).items()):
        theirs, ours = (
            batches(spark.readStream.format(kind).options(**connected, **options).load(path), once=number % 5 == 4)
            for kind, path in (("kafka", None), ("seglog", log_dir))
        )
        is_same = ours == theirs
        different += not is_same
        counts = [len(rows) for _, rows in theirs]
        print(
            f"{name}: {counts} by the connector, {[len(rows) for _, rows in ours]} by seglog, "
            f"{'same' if is_same else 'DIFFERENT'}"
        )
        if not is_same:
            print([end for end, _ in theirs], [end for end, _ in ours])
    spark.stop()
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
