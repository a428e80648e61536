"""The same queries by Spark's own Kafka connector and by seglog.

    python -m tests.kafka.beside_connector LOG_DIR SERVERS

It is a process of its own, since Spark takes jars only when its JVM is started. Rows are written into a topic by the
connector, and read with every option that both know, from the broker and from its directory; what differs is printed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.bench.spark_read import session
from tests.kafka.jars import connector_jars

TOPIC = "beside.connector-1"
ROWS = 5_000


def written(spark: SparkSession) -> DataFrame:
    """Return rows with keys, values and headers of every kind that the connector writes."""
    n = sf.col("id")
    header = sf.struct(
        sf.concat(sf.lit("h"), n % 3).alias("key"),
        sf.when(n % 2 == 0, sf.encode(n.cast("string"), "UTF-8")).alias("value"),
    )
    return spark.range(0, ROWS, numPartitions=2).select(
        sf.when(n % 7 != 0, sf.concat(sf.lit("key-"), n % 100)).alias("key"),
        sf.when(n % 11 != 0, sf.repeat(n.cast("string"), (n % 9).cast("int"))).alias("value"),
        (n % 3).cast("int").alias("partition"),
        sf.when(n % 5 != 0, sf.array(header, header)).alias("headers"),
    )


def queries(times: list[int]) -> dict[str, dict[str, Any]]:
    """Return options by what they are about; ``times`` are those of records, ms, ascending."""
    early, late = times[len(times) // 3], times[2 * len(times) // 3]
    by_time = {TOPIC: {"0": early, "1": times[0], "2": late}}
    subscribed = {"subscribe": TOPIC}
    offsets = {TOPIC: {"0": 5, "1": -2, "2": 700}}
    ends = {TOPIC: {"0": 1200, "1": -1, "2": 701}}
    return {
        "all": subscribed,
        "headers": {**subscribed, "includeHeaders": True},
        "pattern": {"subscribePattern": r"beside\.[a-z]+-\d"},
        "assign": {"assign": json.dumps({TOPIC: [0, 2]})},
        "offsets": {**subscribed, "startingOffsets": json.dumps(offsets), "endingOffsets": json.dumps(ends)},
        "time": {**subscribed, "startingTimestamp": early, "endingTimestamp": late},
        "time a partition": {**subscribed, "startingOffsetsByTimestamp": json.dumps(by_time)},
        "end by time a partition": {**subscribed, "endingOffsetsByTimestamp": json.dumps(by_time)},
        "after the last": {
            **subscribed,
            "startingTimestamp": times[-1] + 1,
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "split": {**subscribed, "minPartitions": 7},
        "small splits": {**subscribed, "maxRecordsPerPartition": 400},
    }


def main(log_dir: str, servers: str) -> int:
    spark = session(jars=connector_jars())
    connected = {"kafka.bootstrap.servers": servers}
    written(spark).write.format("kafka").options(topic=TOPIC, **connected).save()
    everything = spark.read.format("kafka").options(subscribe=TOPIC, **connected).load()
    times = sorted(int(row[0].timestamp() * 1000) for row in everything.select("timestamp").collect())
    different = 0
    for name, options in queries(times).items():
        by_connector = spark.read.format("kafka").options(**connected, **options).load()
        by_seglog = spark.read.format("seglog").options(**connected, **options).load(log_dir)
        place = ["topic", "partition", "offset"]
        theirs, ours = (frame.orderBy(place).collect() for frame in (by_connector, by_seglog))
        is_same = ours == theirs and by_seglog.schema == by_connector.schema
        different += not is_same
        print(
            f"{name}: {len(theirs)} rows by the connector, {len(ours)} by seglog, {'same' if is_same else 'DIFFERENT'}"
        )
    spark.stop()
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
