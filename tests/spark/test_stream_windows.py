"""Why `Trigger.AvailableNow` of PySpark 4.1 leaves windows open unless a setting is given: a probe, and what we do.

Spark has a source that cannot promise where it ends read in a single batch, as `Trigger.Once` does, and says so in a
warning: "does not support Trigger.AvailableNow. Falling back to single batch execution". The watermark moves on at the
end of a batch, and a single one is followed by none that would close the windows before it. Sources of Python can
promise it since PySpark 4.2, and ours does there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.functions import window

import sparklog
from tests.spark.trigger_limits import HAS_LIMITS, WRAPPER

# The last second closes all windows but its own.
SECONDS = [*range(200), 10_000_000]
WINDOWS_CLOSED = 20


class Seconds(DataSource):
    """Events of some seconds, from a source without anything of ours."""

    @classmethod
    def name(cls) -> str:
        return "seconds"

    def schema(self) -> str:
        return "timestamp timestamp"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - PySpark's names
        return SecondsReader()


class SecondsReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        return {"next": len(SECONDS)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["next"], end["next"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any]]:
        start, end = partition.value
        yield from ((datetime.fromtimestamp(second, UTC),) for second in SECONDS[start:end])


@pytest.fixture
def wrapping(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    spark.conf.set(WRAPPER, str(request.param).lower())
    yield spark
    spark.conf.unset(WRAPPER)


def windows_of(rows: DataFrame, checkpoint: Path) -> int:
    """Return how many windows one run by `Trigger.AvailableNow` writes."""
    counts = rows.withWatermark("timestamp", "1 hour").groupBy(window("timestamp", "10 seconds")).count()
    out = checkpoint.with_name("out")
    writer = counts.select("count").writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start(str(out)).awaitTermination()
    return rows.sparkSession.read.schema("count bigint").parquet(str(out)).count()


@pytest.mark.parametrize(("wrapping", "expected"), [(False, 0), (True, WINDOWS_CLOSED)], indirect=["wrapping"])
def test_spark_leaves_windows_open_where_a_source_cannot_promise_its_end(
    wrapping: SparkSession, tmp_path: Path, expected: int
) -> None:
    wrapping.dataSource.register(Seconds)
    found = windows_of(wrapping.readStream.format("seconds").load(), tmp_path / "cp")
    assert found == expected, "Spark is mended where it is 20 without the setting: see the top of this file"


@pytest.mark.parametrize("wrapping", [not HAS_LIMITS], indirect=True, ids=["set where it is needed"])
def test_windows_of_logs_are_closed_by_one_run(wrapping: SparkSession, tmp_path: Path) -> None:
    times = pa.array([1000 * second for second in SECONDS], pa.timestamp("ms", "UTC"))
    with sparklog.PartitionLog.open(tmp_path / "logs" / "t-0") as log:
        log.append(pa.table({"value": ["x"] * len(SECONDS), "timestamp": times}))
    rows = wrapping.readStream.format("seglog").option("startingOffsets", "earliest").load(str(tmp_path / "logs"))
    assert windows_of(rows.select("timestamp"), tmp_path / "cp") == WINDOWS_CLOSED
