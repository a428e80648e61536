"""The format ``seglog`` as a user of Spark meets it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import sparklog
from sparklog.errors import InvalidOptionError
from sparklog.log.reads.columns import LOG_SCHEMA
from sparklog.spark.options.schema import CONNECTOR_COLUMNS, SPARK_COLUMNS
from sparklog.spark.source import SeglogDataSource
from sparklog.storage.process import usable_cores
from tests.build import Record, v2_batch, write_partition
from tests.golden import EXAMPLES, GoldenSet, IsolationLevel, golden_set, golden_sets
from tests.spark.rows import consumed, rows_of

SETS = [pytest.param(golden, id=golden.name) for golden in golden_sets()]
LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
FAR_TIMES = "far-times"


def load(spark: SparkSession, path: Path | str, /, **options: Any) -> DataFrame:
    return spark.read.format("seglog").options(**options).load(str(path))


def refusal(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as raised:
        frame.collect()
    return str(raised.value)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Write a log directory with one partition, events-0, of three segments and offsets 0 to 99; return it."""
    write_events(tmp_path / "events-0")
    return tmp_path


def write_events(folder: Path) -> None:
    batches = [
        v2_batch(
            [Record(n, 1_000 * (start + n), b"k%d" % (start + n), b"v%d" % (start + n)) for n in range(10)],
            base_offset=start,
        )
        for start in range(0, 100, 10)
    ]
    write_partition(folder, batches, segment_bytes=4 * len(batches[-1]))


@pytest.fixture
def small_partitions(tmp_path: Path) -> Path:
    """Write partitions of offsets 0 to 99 each, so many that the cores have several each; return their directory."""
    for partition in range(4 + 2 * usable_cores()):
        write_events(tmp_path / f"events-{partition}")
    return tmp_path


# What a consumer reads


@pytest.mark.parametrize("golden", SETS)
def test_golden_directory_reads_as_the_consumer_read_it(spark: SparkSession, golden: GoldenSet) -> None:
    topics = sorted({topic for topic, _ in golden.partitions if topic != FAR_TIMES and not topic.startswith("__")})
    if not topics:
        pytest.skip("internal topics only")
    told = {level: sorted(row for row in consumed(golden, level) if row[0] != FAR_TIMES) for level in LEVELS}
    if told["read_committed"] == told["read_uncommitted"]:
        del told["read_committed"]
    for level, expected in told.items():
        options = {"includeHeaders": "true", "subscribe": ",".join(topics), "kafka.isolation.level": level}
        assert rows_of(load(spark, golden.log_dir, **options)) == expected


def test_internal_topic_reads_when_it_is_named(spark: SparkSession) -> None:
    golden = golden_set("v2-internal")
    topics = tuple(sorted({topic for topic, _ in golden.partitions if topic.startswith("__")}))
    frame = load(spark, golden.log_dir, includeHeaders="true", subscribe=",".join(topics))
    assert rows_of(frame) == sorted(consumed(golden, "read_uncommitted", topics=topics))


def test_time_that_spark_cannot_hold_is_an_error_that_names_the_offset(spark: SparkSession) -> None:
    golden = golden_set("v2-timestamps")
    far = max(golden.records("read_uncommitted", FAR_TIMES), key=lambda record: record["timestamp"])
    message = refusal(load(spark, golden.log_dir / FAR_TIMES))
    assert f"timestamp of the record of far-times-0 at offset {far['offset']} is 9223372036854775807 ms" in message
    frame = spark.read.format("seglog").schema("offset bigint, key binary").load(str(golden.log_dir / FAR_TIMES))
    assert frame.count() == len(golden.records("read_uncommitted", FAR_TIMES))
    near = load(spark, golden.log_dir / FAR_TIMES, endingOffsets=f'{{"far-times":{{"0":{far["offset"]}}}}}')
    assert near.count() == far["offset"]


# Schema


def test_schema_is_the_connectors(spark: SparkSession) -> None:
    expected = StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
        ]
    )
    assert load(spark, EXAMPLES).schema == expected
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    assert load(spark, EXAMPLES, includeHeaders="true").schema == expected.add("headers", ArrayType(header))


def test_columns_are_those_of_a_log_and_the_two_that_name_it() -> None:
    assert set(SPARK_COLUMNS) == {*LOG_SCHEMA.names, "topic", "partition"}
    assert list(SPARK_COLUMNS)[:7] == list(CONNECTOR_COLUMNS)


def test_schema_of_the_user_chooses_columns_in_any_order(spark: SparkSession, events: Path) -> None:
    frame = spark.read.format("seglog").schema("offset bigint, topic string, key binary").load(str(events))
    assert frame.columns == ["offset", "topic", "key"]
    assert sorted(tuple(row) for row in frame.collect()) == [(n, "events", b"k%d" % n) for n in range(100)]
    for ddl in ("topic string", "partition int", "timestampType int", "timestamp timestamp", "offset bigint not null"):
        assert spark.read.format("seglog").schema(ddl).load(str(events)).count() == 100


def test_every_column_can_be_read_by_name(spark: SparkSession) -> None:
    ddl = ", ".join(f"{name} {kind.simpleString()}" for name, kind in reversed(SPARK_COLUMNS.items()))
    by_schema = spark.read.format("seglog").schema(ddl).load(str(EXAMPLES / "shop-orders"))
    by_option = load(spark, EXAMPLES / "shop-orders", columns=",".join(reversed(SPARK_COLUMNS)))
    assert by_option.schema == by_schema.schema
    rows = sorted(by_schema.collect(), key=lambda row: (row["partition"], row["offset"]))
    assert rows == sorted(by_option.collect(), key=lambda row: (row["partition"], row["offset"]))
    assert {row["file"] for row in rows} == {f"{0:020d}.log"}
    assert {row["magic"] for row in rows} == {2}
    assert all(row["is_transactional"] and row["producer_id"] >= 0 for row in rows)


def test_keys_and_values_read_as_strings(spark: SparkSession, tmp_path: Path) -> None:
    text = ["naïve", "", None, "日本"]
    records = [Record(n, 0, None, None if each is None else each.encode()) for n, each in enumerate(text)]
    write_partition(tmp_path / "events-0", [v2_batch(records), v2_batch([Record(0, 0, None, b"\xff")], base_offset=4)])
    ddl, before = "key string, value string", '{"events":{"0":4}}'
    frame = spark.read.format("seglog").schema(ddl).load(str(tmp_path), endingOffsets=before)
    assert [row["value"] for row in frame.collect()] == text
    message = refusal(spark.read.format("seglog").schema(ddl).load(str(tmp_path)))
    assert "value of the record of events-0 at offset 4 is not UTF-8: read the column as binary" in message


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("offset int", "column 'offset' is bigint, not int"),
        ("value int", "column 'value' is binary (or string; other types come by valueFormat), not int"),
        ("headers array<string>", "column 'headers' is array<struct<key:string,value:binary>>, not array<string>"),
        ("ofset bigint", "no column 'ofset': did you mean 'offset'?"),
        ("key binary not null", "column 'key' may be null"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_schema_that_is_no_choice_of_the_columns_is_refused(events: Path, ddl: str, told: str) -> None:
    """Refused here: in Spark (see test_boundary.py), each refusal costs a process, and its imports."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    with pytest.raises(InvalidOptionError) as raised:
        SeglogDataSource(CaseInsensitiveDict({"path": str(events)})).reader(schema)
    assert told in str(raised.value)


@pytest.mark.parametrize("options", [{}, {"view": "consumer_offsets"}])
def test_schema_without_a_column_is_refused_and_not_counted_as_no_rows(
    spark: SparkSession, options: dict[str, str]
) -> None:
    reading = spark.read.format("seglog").schema(StructType([])).options(**options)
    with pytest.raises(PySparkException, match="the schema has no column: name one"):
        reading.load(str(EXAMPLES)).count()


# Paths, options and SQL


def test_every_form_of_path_loads(spark: SparkSession) -> None:
    assert load(spark, EXAMPLES).select("topic").distinct().count() == 2
    assert load(spark, EXAMPLES / "shop-events").select("partition").distinct().count() == 3
    assert load(spark, EXAMPLES / "shop-events-1").select("partition").distinct().count() == 1
    several = spark.read.format("seglog").load([str(EXAMPLES / "shop-events-1"), str(EXAMPLES / "shop-orders")])
    assert several.select("topic", "partition").distinct().count() == 3
    assert load(spark, os.path.relpath(EXAMPLES)).count() == load(spark, EXAMPLES).count()


@pytest.mark.parametrize(
    ("path", "options", "told"),
    [
        ("nowhere", {}, "SEGLOG_PATH_NOT_FOUND] no such path"),
        ("shop-event", {}, "did you mean 'shop-events'?"),
        ("shop-events", {"subscrib": "a"}, "no option 'subscrib': did you mean 'subscribe'?"),
        ("", {"subscribe": "shop-event"}, "no topic 'shop-event' in "),
    ],
)
def test_mistake_is_told_when_the_path_is_loaded(
    spark: SparkSession, path: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(AnalysisException) as raised:
        load(spark, EXAMPLES / path, **options)
    assert told in str(raised.value)


def test_bounds_are_checked_when_the_read_is_planned(spark: SparkSession, events: Path) -> None:
    assert "starting offset can't be latest for batch queries on Kafka" in refusal(
        load(spark, events, startingOffsets="latest")
    )


def test_missing_path_is_told_also_of_a_table_that_loses_its_options(spark: SparkSession, events: Path) -> None:
    with pytest.raises(AnalysisException, match="no path is given"):
        spark.read.format("seglog").load()
    spark.sql(f"CREATE TABLE lost USING seglog OPTIONS (path '{events}')")
    try:
        with pytest.raises(PySparkException) as raised:
            spark.table("lost").count()
        assert "no path is given" in str(raised.value)
        assert "CREATE TEMPORARY VIEW" in str(raised.value)
        assert spark.sql(f"SELECT count(*) FROM lost WITH (path = '{events}')").head()[0] == 100  # type: ignore[index]
        assert spark.read.options(path=str(events)).table("lost").count() == 100
    finally:
        spark.sql("DROP TABLE lost")


def test_view_works_from_sql(spark: SparkSession, events: Path) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW made USING seglog OPTIONS (path '{events}', startingOffsets 'earliest')")
    load(spark, events).createOrReplaceTempView("seen")
    try:
        for view in ("made", "seen"):
            found = spark.sql(f"SELECT count(*), max(offset) FROM {view} WHERE CAST(value AS string) LIKE 'v1%'").head()
            assert found is not None
            assert tuple(found) == (11, 19)
    finally:
        spark.catalog.dropTempView("made")
        spark.catalog.dropTempView("seen")


def test_format_can_be_registered_by_hand(spark: SparkSession, events: Path) -> None:
    sparklog.register(spark)
    assert load(spark, events).count() == 100


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_frame_is_used_twice_whatever_filters_are_pushed_down(spark: SparkSession, events: Path, pushdown: str) -> None:
    conf = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(conf, pushdown)
    try:
        frame = load(spark, events, minPartitions="3")
        assert frame.where("offset >= 90").count() == 10
        assert frame.count() == 100
        assert frame.where("offset >= 90").union(frame).count() == 110
    finally:
        spark.conf.unset(conf)


def test_options_reach_the_plan(spark: SparkSession, events: Path) -> None:
    assert load(spark, events, minPartitions="4").rdd.getNumPartitions() == 4
    assert load(spark, events, maxRecordsPerPartition="30").rdd.getNumPartitions() == 4
    at_time = load(spark, events, startingTimestamp="33000", endingTimestamp="66000")
    assert at_time.agg(sf.min("offset"), sf.max("offset")).head() == (33, 65)
    assert load(spark, events, startingOffsets='{"events":{"0":100}}').count() == 0


def test_batch_larger_than_the_limit_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_partition(tmp_path / "big-0", [v2_batch([Record(0, 0, None, bytes(100_000))], codec="gzip")])
    assert load(spark, tmp_path).count() == 1
    message = refusal(load(spark, tmp_path, **{"max.decompressed.message.bytes": "1000"}))
    assert "SEGLOG_DECOMPRESSED_SIZE" in message


# Damage and loss


def test_damage_names_file_position_and_offset(spark: SparkSession, events: Path) -> None:
    log = sorted((events / "events-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    message = refusal(load(spark, events))
    assert "SEGLOG_CORRUPT_BATCH" in message
    for place in (f"file {log}", "position ", "offset 70"):
        assert place in message


def test_segment_deleted_since_the_plan_is_loss_or_a_warning(spark: SparkSession, events: Path) -> None:
    strict, lenient = load(spark, events), load(spark, events, failOnDataLoss="false")
    assert strict.count() == lenient.count() == 100
    for file in (events / "events-0").glob(f"{0:020d}.*"):
        file.unlink()
    message = refusal(strict)
    assert "SEGLOG_DATA_LOSS" in message
    assert "the log now has offsets [40, 100)" in message
    assert lenient.agg(sf.min("offset"), sf.count("*")).head() == (40, 60)


def test_partition_deleted_since_the_plan_is_loss_or_a_warning(spark: SparkSession, events: Path) -> None:
    strict, lenient = load(spark, events), load(spark, events, failOnDataLoss="false")
    assert strict.count() == lenient.count() == 100
    shutil.rmtree(events / "events-0")
    assert "the partition was deleted" in refusal(strict)
    assert lenient.count() == 0


def test_log_that_grows_is_read_to_where_it_ended(spark: SparkSession, events: Path) -> None:
    frame = load(spark, events)
    assert frame.count() == 100
    last = sorted((events / "events-0").glob("*.log"))[-1]
    with last.open("ab") as log:
        log.write(v2_batch([Record(0, 0, None, b"new")], base_offset=100))
    assert frame.count() == 100
    assert load(spark, events).count() == 101


# Several partitions in a task


def test_packed_partitions_give_the_same_rows_in_fewer_tasks(spark: SparkSession, small_partitions: Path) -> None:
    packed, alone = load(spark, small_partitions), load(spark, small_partitions, packBytes="0")
    partitions = len(list(small_partitions.iterdir()))
    assert alone.rdd.getNumPartitions() == partitions
    assert usable_cores() <= packed.rdd.getNumPartitions() < partitions
    # As they come: neither tasks nor partitions nor records change their order.
    assert packed.collect() == alone.collect()
    assert packed.count() == 100 * partitions


def test_error_in_a_packed_task_names_the_partition(spark: SparkSession, small_partitions: Path) -> None:
    log = sorted((small_partitions / "events-3").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    assert str(log) in refusal(load(spark, small_partitions))


def test_partition_of_a_packed_task_that_is_deleted_is_data_loss_of_it_alone(
    spark: SparkSession, small_partitions: Path
) -> None:
    strict, lenient = load(spark, small_partitions), load(spark, small_partitions, failOnDataLoss="false")
    there = strict.count()
    assert lenient.count() == there
    shutil.rmtree(small_partitions / "events-3")
    assert f"of {small_partitions / 'events-3'} were there when the read was planned" in refusal(strict)
    assert lenient.count() == there - 100
    assert lenient.where("partition = 3").count() == 0
