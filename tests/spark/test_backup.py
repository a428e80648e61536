"""Mirrors and backups whose tasks run on Spark have what those of this machine have."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import sparklog
from tests.growth import settle
from tests.jobs.mirror.sources import append, assert_equal, files_of_logs, give_topic_id, make_source

LOGS = 5


def write_source(tmp_path: Path) -> Path:
    make_source(tmp_path / "source")
    for number in range(1, LOGS):
        append(tmp_path / "source", 2 * number, f"events-{number}")
    return tmp_path / "source"


def test_logs_are_mirrored_on_spark_as_here(spark: SparkSession, tmp_path: Path) -> None:
    source = write_source(tmp_path)
    for turn in range(2):
        if turn:
            append(source, 3)
            give_topic_id(source, name="events-1")
        found = sparklog.mirror(source, tmp_path / "of_spark", spark=spark, task_bytes=1)
        assert found == sparklog.mirror(source, tmp_path / "here", processes=1)
        assert len(found.logs) == LOGS
        assert found.copied_bytes > 0
        assert files_of_logs(tmp_path / "of_spark") == files_of_logs(tmp_path / "here")
        assert_equal(source, tmp_path / "of_spark")


def test_logs_are_stored_and_checked_on_spark_as_here(spark: SparkSession, tmp_path: Path) -> None:
    source = write_source(tmp_path)
    damaged = min((source / "events-0").glob("*.log"))
    for turn in range(2):
        if turn:
            append(source, 3, "events-1")
            damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
        settle(source)
        found = sparklog.backup(source, tmp_path / "of_spark", spark=spark, task_bytes=1)
        here = sparklog.backup(source, tmp_path / "here", processes=1)
        assert found.manifest is not None
        assert here.manifest is not None
        assert found.new_bytes == here.new_bytes > 0
        assert found.manifest.partitions == here.manifest.partitions
        assert [each.error is None for each in found.manifest.partitions] == [not turn, *([True] * (LOGS - 1))]
    piece = max(path for path in (tmp_path / "of_spark" / "pieces").rglob("*") if path.is_file())
    piece.write_bytes(b"!" + piece.read_bytes()[1:])
    findings = list(sparklog.verify_backups(tmp_path / "of_spark", spark=spark))
    assert findings == list(sparklog.verify_backups(tmp_path / "of_spark", processes=1))
    assert [each.code for each in findings] == ["backup-damaged", "piece-checksum"]
