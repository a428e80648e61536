"""Streams of a live log directory, at twenty triggers a minute, until a file says that nothing more will be written.

    python -m tests.kafka.stream_soak LOG_DIR OUT

There is a query for each isolation level, which writes its rows to OUT/<level>. A process of its own, whose memory and
open files `tests.kafka.test_stream_soak` watches.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from tests.bench.spark_read import session

LEVELS: Final = ("read_uncommitted", "read_committed")
TOPICS: Final = ("events", "payments", "table")
TRIGGER: Final = "3 seconds"
LAST: Final = "nothing-more"
"""The file that says so."""


def main(log_dir: str, out: str) -> None:
    spark = session()

    def started(level: str) -> StreamingQuery:
        rows = (
            spark.readStream.format("seglog")
            .option("subscribe", ",".join(TOPICS))
            .option("startingOffsets", "earliest")
            .option("isolationLevel", level)
            .load(log_dir)
        )
        return (
            rows.select("topic", "partition", "offset", "key", "value")
            .coalesce(1)
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{out}/checkpoint-{level}")
            .trigger(processingTime=TRIGGER)
            .start(f"{out}/{level}")
        )

    queries = [started(level) for level in LEVELS]
    while not (Path(out) / LAST).exists():
        time.sleep(1)
        for query in queries:
            if not query.isActive:
                query.awaitTermination()
    for query in queries:
        query.processAllAvailable()
        query.stop()
        print(query.lastProgress["batchId"] if query.lastProgress else None)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
