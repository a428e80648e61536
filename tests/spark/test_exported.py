"""Spark reads what an export writes, and passes over what is not the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.jobs.tables import moved_to
from tests.jobs.test_peers import expected, row, write_logs


def test_spark_reads_all_formats(tmp_path: Path, spark: SparkSession) -> None:
    given: dict[str, Any] = {
        "source": write_logs(tmp_path / "logs"),
        "topics": ["events", "_odd.topic"],
        "on_decode_error": "dead_letter",
    }
    moved_to(tmp_path / "out", **given)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row(each.asDict(recursive=True)) for each in found.collect()) == sorted(expected())
    moved_to(tmp_path / "text", **given, value_format="string", format="csv")
    assert len(list((tmp_path / "text" / "_dead_letter").iterdir())) == 3
    lines = spark.read.option("header", True).csv(str(tmp_path / "text")).select("topic", "offset", "value")
    in_order = sorted((each.topic, int(each.offset)) for each in lines.collect())
    assert in_order == sorted((topic, at) for topic, *_ in expected()[::4] for at in range(3))
    moved_to(tmp_path / "lines", **given, format="jsonl")
    objects = spark.read.json(str(tmp_path / "lines")).select("topic", "partition", "offset", "value", "value_base64")
    texts = {each.offset: (each.value, each.value_base64) for each in objects.collect() if each.topic == "events"}
    assert texts == {0: ("text", None), 1: (None, None), 2: ("", None), 3: (None, "/wA=")}
