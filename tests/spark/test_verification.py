"""Logs that are verified and described on Spark: what is found is what this machine finds."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import sparklog
from sparklog.inspect.verify_segment import Severity
from tests.build import Record, v2_batch, write_partition


def damaged_logs(directory: Path) -> Path:
    for number in range(6):
        batch = v2_batch([Record(row, 0, b"k", b"v" * number) for row in range(9)], base_offset=0)
        folder = directory / f"events-{number}"
        write_partition(folder, [batch])
        if number % 2:
            (folder / f"{0:020d}.log").write_bytes(batch[:-1] + bytes([batch[-1] ^ 1]))
    return directory


def test_logs_are_verified_on_spark_as_here(spark: SparkSession, tmp_path: Path) -> None:
    logs = damaged_logs(tmp_path)
    found = list(sparklog.verify(logs, spark=spark, absent=["k"]))
    assert found == list(sparklog.verify(logs, processes=1, absent=["k"]))
    errors = {Path(each.path).parent.name for each in found if each.severity is Severity.ERROR}
    assert errors == {f"events-{number}" for number in range(6)}


def test_logs_are_described_on_spark_as_here(spark: SparkSession, tmp_path: Path) -> None:
    logs = damaged_logs(tmp_path)
    found = list(sparklog.describe(logs, full=True, spark=spark))
    assert found == list(sparklog.describe(logs, full=True, processes=1))
    assert [each.stats.records for each in found] == [9] * 6


def test_logs_are_compared_on_spark_as_here(spark: SparkSession, tmp_path: Path) -> None:
    logs, copy = damaged_logs(tmp_path / "logs"), tmp_path / "copy"
    for number in range(6):
        write_partition(copy / f"events-{number}", [v2_batch([Record(0, 0, b"k", b"v" * number)])])
    found = list(sparklog.diff(logs, copy, spark=spark))
    assert found == list(sparklog.diff(logs, copy, processes=1))
    assert {row.partition for row in found if row.kind == "damaged"} == {1, 3, 5}
