"""Internal topics as tables in Spark."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparklog import views
from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.spark.source import SeglogDataSource
from sparklog.spark.view_batches import spark_schema
from tests.golden import golden_set
from tests.system.logs import put, write_log
from tests.topic.test_views import NOT_THERE

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
