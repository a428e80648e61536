"""Internal topics as tables in Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparklog import views
from sparklog.errors import CorruptCheckpointError, InvalidOptionError, PathNotFoundError
from sparklog.log.files import TopicPartition
from sparklog.log.group_offsets import OffsetCommit
from sparklog.spark.read.view_batches import spark_schema
from sparklog.spark.source import SeglogDataSource
from sparklog.write.group_offsets import commit_group_offsets
from tests.golden import golden_set
from tests.places import directory_at
from tests.system.logs import put, write_log
from tests.topic.internal.test_views import NOT_THERE

GOLDEN = golden_set("v2-internal").log_dir


def load(spark: SparkSession, name: str, path: Path = GOLDEN, **options: Any) -> DataFrame:
    return spark.read.format("seglog").options(view=name, **options).load(str(path))


@pytest.mark.parametrize("history", [False, True])
def test_view_has_the_rows_that_python_reads(spark: SparkSession, history: bool) -> None:
    for name in views.NAMES:
        if name in NOT_THERE:
            continue
        found = load(spark, name, viewHistory=history)
        expected = views.read(GOLDEN, name, history=history)
        assert found.columns == expected.schema.names
        got = found.toArrow()
        for column in expected.schema.names:
            assert got[column].cast(expected.schema.field(column).type).to_pylist() == expected[column].to_pylist()


def test_query_chooses_columns_and_rows(spark: SparkSession) -> None:
    found = (
        load(spark, "consumer_offsets").where("`group` = 'by-hand'").select("partition", "offset").orderBy("partition")
    )
    assert [tuple(row) for row in found.collect()] == [(0, 3), (1, 4)]
    chosen = spark.read.format("seglog").schema("offset long, `group` string").option("view", "consumer_offsets")
    assert {tuple(row) for row in chosen.load(str(GOLDEN)).collect()} >= {(3, "by-hand"), (4, "by-hand")}


def test_each_log_has_its_task(spark: SparkSession, tmp_path: Path) -> None:
    for partition in range(3):
        key = {"group": f"g{partition}", "topic": "t", "partition": 0}
        write_log(tmp_path / f"__consumer_offsets-{partition}", [put("OffsetCommit", key, {"offset": partition}, 4)])
    found = load(spark, "consumer_offsets", tmp_path)
    assert found.rdd.getNumPartitions() == 3
    assert sorted(row["group"] for row in found.collect()) == ["g0", "g1", "g2"]


EVENTS, OTHER = TopicPartition("events", 0), TopicPartition("events", 1)


def committed_by_cluster(path: Path) -> None:
    for partition, group in enumerate(("shared", "cluster")):
        key = {"group": group, "topic": "events", "partition": 0}
        write_log(path / f"__consumer_offsets-{partition}", [put("OffsetCommit", key, {"offset": 1}, 4)])


def committed_here(path: Path) -> None:
    commit_group_offsets(directory_at(path), "shared", {EVENTS: OffsetCommit(4, "m", 8), OTHER: OffsetCommit(2, "", 9)})
    commit_group_offsets(directory_at(path), "ours", {EVENTS: OffsetCommit(7, "", 8)})


@pytest.mark.parametrize(
    ("commits", "offsets"),
    [
        ([committed_by_cluster], {("cluster", 0, 1), ("shared", 0, 1)}),
        ([committed_here], {("ours", 0, 7), ("shared", 0, 4), ("shared", 1, 2)}),
        (
            [committed_by_cluster, committed_here],
            {("cluster", 0, 1), ("ours", 0, 7), ("shared", 0, 4), ("shared", 1, 2)},
        ),
    ],
)
def test_commits_of_our_consumers_are_in_both_views_as_in_python(
    spark: SparkSession, tmp_path: Path, commits: list[Callable[[Path], None]], offsets: set[tuple[str, int, int]]
) -> None:
    for commit in commits:
        commit(tmp_path)
    for name in ("consumer_offsets", "consumer_groups"):
        got, expected = load(spark, name, tmp_path).toArrow(), views.read(tmp_path, name)
        for column in expected.schema.names:
            assert got[column].cast(expected.schema.field(column).type).to_pylist() == expected[column].to_pylist()
    rows = load(spark, "consumer_offsets", tmp_path).select("group", "partition", "offset").collect()
    assert {tuple(row) for row in rows} == offsets
    assert len(rows) == len(offsets)


def test_history_is_of_the_cluster_alone(spark: SparkSession, tmp_path: Path) -> None:
    committed_here(tmp_path)
    with pytest.raises(PathNotFoundError, match=r"__consumer_offsets.*; seglog.offsets is there, and keeps no history"):
        source(path=str(tmp_path), view="consumer_offsets", viewHistory="true").schema()
    committed_by_cluster(tmp_path)
    rows = load(spark, "consumer_offsets", tmp_path, viewHistory=True).select("group", "offset").collect()
    assert {tuple(row) for row in rows} == {("cluster", 1), ("shared", 1)}
    assert len(rows) == 2


@pytest.mark.parametrize("name", ["consumer_offsets", "consumer_groups"])
def test_damaged_file_of_our_commits_is_named_before_the_query_runs(tmp_path: Path, name: str) -> None:
    committed_by_cluster(tmp_path)
    committed_here(tmp_path)
    whole = (tmp_path / "seglog.offsets").read_bytes()
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        (tmp_path / "seglog.offsets").write_bytes(whole[:cut])
        with pytest.raises(CorruptCheckpointError, match=r"seglog\.offsets"):
            source(path=str(tmp_path), view=name).schema()


def source(**options: str) -> SeglogDataSource:
    return SeglogDataSource({"path": str(GOLDEN), **options})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"view": "consumer_offset"}, "no view 'consumer_offset': did you mean 'consumer_offsets'"),
        ({"view": " "}, "view names no view"),
        ({"view": "transactions", "STARTINGOFFSETS": "earliest"}, "the option startingOffsets is for records"),
        ({"view": "transactions", "columns": "key"}, "the option columns is for records"),
        ({"viewHistory": "true"}, "viewHistory is of a view"),
        ({"view": "transactions", "viewHistroy": "true"}, "did you mean 'viewHistory'"),
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(options: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidOptionError, match=reason):
        source(**options).schema()


def test_topic_that_is_not_there_is_said_before_the_query_runs() -> None:
    with pytest.raises(PathNotFoundError, match="__share_group_state"):
        source(view="share_group_state").schema()


@pytest.mark.parametrize(
    ("columns", "reason"),
    [("grup string", "has no column 'grup': did you mean 'group'"), ("partition long", "'partition' of the view")],
)
def test_schema_that_is_no_choice_of_the_columns_is_refused(spark: SparkSession, columns: str, reason: str) -> None:
    schema = spark.createDataFrame([], columns).schema
    with pytest.raises(InvalidOptionError, match=reason):
        source(view="consumer_offsets").reader(schema)


def test_options_of_brokers_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparklog"):
        reader = source(view="transactions", **{"kafka.bootstrap.servers": "h:9092"})
        reader.reader(spark_schema(views.schema("transactions")))
    assert "kafka.bootstrap.servers" in caplog.text


def test_time_later_than_spark_can_hold_is_named(tmp_path: Path) -> None:
    key, value = {"group": "g", "topic": "t", "partition": 0}, {"offset": 1, "commitTimestamp": (1 << 63) - 1}
    write_log(tmp_path / "__consumer_offsets-0", [put("OffsetCommit", key, value, 4)])
    view = SeglogDataSource({"path": str(tmp_path), "view": "consumer_offsets"})
    reader = view.reader(view.schema())
    (task,) = reader.partitions()
    with pytest.raises(InvalidOptionError, match="column 'commit_timestamp' has what Spark cannot hold"):
        list(reader.read(task))
