"""Replicas of a partition in several log directories, read by Spark as one log."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.errors import InvalidOptionError
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.read.plan import plan_batch
from sparklog.spark.read.views import check_view_options
from tests.log.replicas import Copy, expected, run, written
from tests.log.scans.test_of_replicas import damage, flip, zero_all

END = 45


def replicas(tmp_path: Path) -> list[str]:
    new = Copy(run(0, 36) + run(36, END, 4), ((0, 0), (4, 36)), high_watermark=42, segment_bytes=3000)
    old = Copy(run(0, END), high_watermark=30, segment_bytes=3000)
    directories = written(tmp_path, old, new, new)
    for number, directory in enumerate(directories):
        damage(directory, {number, number + 3, number + 6}, flip)
    return [str(directory) for directory in directories]


def test_replicas_are_read_as_one_log_by_many_tasks(spark: SparkSession, tmp_path: Path) -> None:
    directories = replicas(tmp_path)
    for given, end in (({}, 42), ({"replicas.min": "2"}, END)):
        frame = spark.read.format("seglog").options(replicas="merge", minPartitions="4", **given).load(directories)
        rows = frame.selectExpr("offset", "split(CAST(value AS STRING), ':')[0] AS value").collect()
        assert sorted(tuple(row) for row in rows) == expected((0, 36, 0), (36, end, 4))


def test_ranges_of_tasks_have_the_folders_of_all_replicas(tmp_path: Path) -> None:
    directories = replicas(tmp_path)
    given = {"paths": json.dumps(directories), "replicas": "MERGE", "minPartitions": "4"}
    tasks = pickle.loads(pickle.dumps(plan_batch(SeglogOptions.parse(given))))
    ranges = [each for task in tasks for each in task]
    assert [ranges[0].start_offset, ranges[-1].end_offset, len(ranges)] == [0, 42, 4]
    for each in ranges:
        assert [copy.directory.path for copy in each.folder.copies] == directories


def test_view_of_damage_has_what_no_replica_can_give(spark: SparkSession, tmp_path: Path) -> None:
    directories = replicas(tmp_path)
    frame = spark.read.format("seglog").options(view="damage", replicas="merge").load(directories)
    assert frame.collect() == []
    for directory in directories:
        damage(Path(directory), {4}, zero_all)
    (row,) = spark.read.format("seglog").options(view="damage", replicas="merge").load(directories).collect()
    assert (row.first_offset, row.end_offset, "no replica has these offsets" in row.reason) == (12, 15, True)


def test_replicas_are_not_for_streams_and_views_of_internal_topics(tmp_path: Path) -> None:
    given = {"path": str(tmp_path), "replicas": "merge"}
    with pytest.raises(InvalidOptionError, match="batch queries only"):
        SeglogOptions.parse_stream(given)
    with pytest.raises(InvalidOptionError, match="the option replicas is for records, and the view consumer_offsets"):
        check_view_options({**given, "view": "consumer_offsets"}, SeglogOptions(view="consumer_offsets"))
    with pytest.raises(InvalidOptionError, match=r"replicas\.min"):
        SeglogOptions.parse({**given, "replicas.min": "1.5"})
    with pytest.raises(InvalidOptionError, match="replicas are not merged"):
        plan_batch(SeglogOptions.parse({"path": str(tmp_path), "replicas.min": "2"}))
