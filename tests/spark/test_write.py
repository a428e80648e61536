"""df.write: rows of a DataFrame into partition logs, through Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.datasource import CaseInsensitiveDict

import sparklog
from sparklog.errors import SeglogError
from sparklog.spark.source import SeglogDataSource
from tests.topic.staged import findings

MS = 1_700_000_000_000
REFUSALS = (SeglogError, PySparkException)


def save(frame: DataFrame, path: Path, mode: str = "append", **options: Any) -> None:
    frame.write.format("seglog").mode(mode).options(**options).save(str(path))


def load(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.read.format("seglog").options(**options).load(str(path))


def refused(frame: DataFrame, path: Path, **options: Any) -> None:
    """Make the writer of a frame as Spark does, here: in Spark, each refusal costs a process, and its imports.

    Where the writer is made all the same, the rows are written by Spark, whose tasks may refuse them.
    """
    given = CaseInsensitiveDict({"path": str(path), **{name: str(each) for name, each in options.items()}})
    SeglogDataSource(given).writer(frame.schema, overwrite=False)
    save(frame, path, **options)


def rows(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    text = F.col("id").cast("string")
    return spark.range(0, count, numPartitions=partitions).select(
        text.alias("key"), F.concat(F.lit("value "), text).alias("value")
    )


def test_what_is_written_is_read(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "logs"
    save(rows(spark, 1000), path, topic="events", numPartitions=3)
    found = load(spark, path)
    assert found.selectExpr("string(key)", "string(value)").exceptAll(rows(spark, 1000)).isEmpty()
    assert found.count() == 1000
    assert [row.topic for row in found.select("topic").distinct().collect()] == ["events"]
    assert findings(path) == []


def test_log_directory_that_is_named_like_a_partition_is_written_to_as_one(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "kafka-logs-1"
    path.mkdir()
    (path / "meta.properties").write_text("version=1\n")
    with pytest.raises(PySparkException, match="topic option required"):
        save(rows(spark, 10), path)
    save(rows(spark, 10), path, topic="events", numPartitions=2)
    assert {each.name for each in path.iterdir() if each.is_dir()} == {"events-0", "events-1"}
    assert not list(path.glob("*.log"))
    assert load(spark, path).select("topic").distinct().collect()[0].topic == "events"
    with pytest.raises(PySparkException, match="is not a log directory: it holds the files of a partition"):
        save(rows(spark, 10), path / "events-0" / "new", numPartitions=1)


def test_directory_of_a_running_broker_that_is_named_like_a_partition_is_left_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "kafka-logs-1"
    path.mkdir()
    for name in (".lock", "meta.properties"):
        (path / name).touch()
    holding = "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True)"
    command = [sys.executable, "-c", f"{holding}; time.sleep(60)", str(path / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        for options in ({}, {"topic": "events", "numPartitions": "1"}):
            with pytest.raises(PySparkException, match=r"topic option required|a broker runs on"):
                save(rows(spark, 10), path, **options)
        broker.kill()
    assert sorted(each.name for each in path.iterdir()) == [".lock", "meta.properties"]
    assert [each.name for each in tmp_path.iterdir()] == ["kafka-logs-1"]


def test_every_column_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        f"""select * from values
        (binary('k'), binary('v'), array(named_struct('key', 'h', 'value', binary('1')),
            named_struct('key', 'h', 'value', cast(null as binary))), timestamp_millis({MS}), 0),
        (null, null, null, timestamp_millis({MS + 1}), 1),
        (binary(''), binary(''), null, timestamp_millis({MS + 2}), 1)
        as (key, value, headers, timestamp, partition)"""
    )
    save(frame, tmp_path / "events", numPartitions=2, includeHeaders="true")
    found = load(spark, tmp_path / "events", includeHeaders="true")
    assert sorted(map(str, found.select(*frame.columns).collect())) == sorted(map(str, frame.collect()))


def test_topic_column_parts_rows_and_the_option_overrides_it(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows(spark, 20).withColumn("topic", F.concat(F.lit("t"), (F.col("key").cast("int") % 3).cast("string")))
    save(frame, tmp_path, numPartitions=2)
    counts = {row.topic: row["count"] for row in load(spark, tmp_path).groupBy("topic").count().collect()}
    assert counts == {"t0": 7, "t1": 7, "t2": 6}
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == [
        f"t{t}-{n}" for t in range(3) for n in range(2)
    ]
    save(frame, tmp_path, topic="one", numPartitions=1)
    assert load(spark, tmp_path / "one").count() == 20


def test_explicit_partition_is_where_the_row_goes(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows(spark, 30).withColumn("partition", (F.col("key").cast("int") % 5).cast("int"))
    save(frame, tmp_path, topic="events", numPartitions=5)
    wrong = load(spark, tmp_path).where("int(string(key)) % 5 != partition")
    assert wrong.count() == 0
    with pytest.raises(PySparkException, match="the topic's partitions are 0 to 4"):
        save(frame.withColumn("partition", F.lit(5)), tmp_path, topic="events")
    assert load(spark, tmp_path).count() == 30


def test_keys_go_where_kafkas_producer_sends_them(spark: SparkSession, tmp_path: Path) -> None:
    """murmur2 of "foobar" is -790332482."""
    save(spark.createDataFrame([("foobar", "v")], "key string, value string"), tmp_path, topic="t", numPartitions=10)
    assert load(spark, tmp_path).first().partition == (-790332482 & 0x7FFFFFFF) % 10  # type: ignore[union-attr]


def test_codec_is_the_one_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    codecs = ["uncompressed", "none", "gzip", "snappy", "lz4", "zstd"]
    for codec in codecs:
        options = {"compression.type": codec, "batch.size": "500"}
        save(rows(spark, 100, 1), tmp_path, topic=f"of-{codec}", numPartitions=1, **options)
    found = load(spark, tmp_path, columns="topic,compression,base_offset").distinct().collect()
    for codec in codecs:
        batches = [row for row in found if row.topic == f"of-{codec}"]
        assert {row.compression for row in batches} == {"none" if codec == "uncompressed" else codec}
        assert len(batches) > 3


def test_options_of_the_kafka_sink_mean_the_same(spark: SparkSession, tmp_path: Path) -> None:
    kafka = {
        "kafka.bootstrap.servers": "nowhere:9092",
        "kafka.compression.type": "zstd",
        "kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
    }
    save(rows(spark, 10, 1), tmp_path, topic="t", numPartitions=5, **kafka)
    counts = load(spark, tmp_path, columns="compression,partition").groupBy("compression", "partition").count()
    assert {(row.compression, row["count"]) for row in counts.collect()} == {("zstd", 2)}


def test_report_says_what_went_where(spark: SparkSession, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    for first in (0, 10):
        save(rows(spark, 10), tmp_path / "logs", topic="t", numPartitions=1, reportPath=str(report))
        (line,) = [json.loads(text) for text in report.read_text().splitlines()]
        assert (line["topic"], line["partition"], line["first_offset"], line["last_offset"]) == (
            "t",
            0,
            first,
            first + 9,
        )
        assert (line["records"], line["segments"]) == (10, [0])
    assert spark.read.json(str(report)).first().records == 10  # type: ignore[union-attr]


def test_rerun_of_a_transaction_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    for version, total in ((1, 10), (1, 10), (2, 20), (1, 20)):
        save(rows(spark, 10), tmp_path, topic="t", numPartitions=2, txnAppId="loader", txnVersion=version)
        assert load(spark, tmp_path).count() == total


def test_transactional_write_is_one_transaction(spark: SparkSession, tmp_path: Path) -> None:
    options: dict[str, Any] = {"topic": "t", "numPartitions": 2, "transactional": "true", "txnAppId": "loader"}
    versions: list[dict[str, Any]] = [{}, {"txnVersion": 1}, {"txnVersion": 1}]
    for version in versions:
        save(rows(spark, 100, 3), tmp_path, "append", **options, **version)
    found = load(
        spark, tmp_path, columns="value,producer_id,producer_epoch,is_transactional", isolationLevel="read_committed"
    )
    assert found.count() == 200
    assert found.select("producer_id", "is_transactional").distinct().count() == 1
    # Each start of the transactional id, and each marker, takes an epoch.
    assert {row.producer_epoch for row in found.select("producer_epoch").distinct().collect()} == {0, 2}
    with sparklog.open_log(tmp_path / "t-0") as log:
        assert log.last_stable_offset == log.end_offset
    assert findings(tmp_path) == []


@pytest.mark.parametrize(("version", "magic", "codec"), [("0.9.0", 0, "uncompressed"), ("0.10.2", 1, "gzip")])
def test_old_message_format_is_written_behind_what_is_there(
    spark: SparkSession, tmp_path: Path, version: str, magic: int, codec: str
) -> None:
    options: dict[str, Any] = {"topic": "t", "numPartitions": 2, "compression.type": codec}
    options["message.format.version"] = version
    for _ in range(2):
        save(rows(spark, 500, 3), tmp_path, **options)
    found = load(spark, tmp_path, columns="key,value,offset,partition,magic,compression")
    assert found.select("magic", "compression").distinct().collect() == [(magic, codec.replace("uncompressed", "none"))]
    twice = rows(spark, 500).union(rows(spark, 500))
    assert found.selectExpr("string(key)", "string(value)").exceptAll(twice).isEmpty()
    assert found.count() == found.select("partition", "offset").distinct().count() == 1000
    assert findings(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"message.format.version": "0.9.0"}, "compression.type must be uncompressed here"),
        ({"message.format.version": "0.10.2", "compression.type": "zstd"}, "which has no codec zstd"),
        ({"message.format.version": "0.10.2", "transactional": "true", "txnAppId": "a"}, "which has no producers"),
        ({"message.format.version": "0.12"}, "message.format.version must be a version of Kafka"),
    ],
)
def test_what_an_old_message_format_does_not_have_is_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(REFUSALS, match=message):
        refused(rows(spark, 10, 1), tmp_path / "logs", topic="t", numPartitions=1, **options)
    assert not list(tmp_path.glob("logs/t-0/*.log"))


def test_overwrite_shows_the_new_rows_behind_the_old_offsets(spark: SparkSession, tmp_path: Path) -> None:
    save(rows(spark, 10), tmp_path, topic="t", numPartitions=1)
    save(rows(spark, 3), tmp_path, "overwrite", topic="t")
    assert [row.offset for row in load(spark, tmp_path).select("offset").collect()] == [10, 11, 12]
    save(rows(spark, 0), tmp_path, "overwrite", topic="t")
    assert load(spark, tmp_path).count() == 0


def test_empty_dataframe_makes_the_topic(spark: SparkSession, tmp_path: Path) -> None:
    save(rows(spark, 0), tmp_path, topic="t", numPartitions=2)
    assert load(spark, tmp_path).count() == 0
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == ["t-0", "t-1"]
    with sparklog.PartitionLog.open(tmp_path / "t-1") as log:
        assert log.end_offset == 0


def test_path_of_a_partition_takes_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    save(rows(spark, 0), tmp_path, topic="t", numPartitions=3)
    save(rows(spark, 7), tmp_path / "t-2")
    assert {row.partition for row in load(spark, tmp_path).collect()} == {2}


def test_failed_job_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows(spark, 100).withColumn("value", F.expr("if(key = '99', repeat('x', 2000), value)"))
    options = {"max.message.bytes": "1000", "compression.type": "uncompressed"}
    with pytest.raises(PySparkException, match=r"a record for t-\d is too large.*max\.message\.bytes is 1000"):
        save(frame, tmp_path / "logs", topic="t", numPartitions=2, **options)
    assert [path for path in (tmp_path / "logs").rglob("*") if path.is_file()] == []
    assert [path.name for path in (tmp_path / "logs").iterdir()] == []


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a log directory with a topic of two partitions, which no test that is given it may change."""
    directory = tmp_path_factory.mktemp("logs")
    for partition in range(2):
        with sparklog.PartitionLog.open(directory / f"there-{partition}"):
            pass
    return directory


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "topic option required when no 'topic' attribute is present"),
        ({"topic": "t"}, "no topic 't' in .*numPartitions"),
        ({"topic": "a/b", "numPartitions": 1}, "not a topic's name: 'a/b'"),
        ({"topic": "t", "numPartitions": 0}, "numPartitions must be positive"),
        ({"topic": "t", "numPartitions": 1, "compression.typ": "lz4"}, "did you mean 'compression.type'"),
        ({"topic": "t", "numPartitions": 1, "compression.type": "brotli"}, "compression.type must be one of"),
        ({"topic": "t", "numPartitions": 1, "txnAppId": "a"}, "txnAppId and txnVersion go together"),
        ({"topic": "t", "numPartitions": 1, "topicId": "short"}, "topicId must be as kafka-topics"),
        ({"topic": "t", "numPartitions": 1, "partitioner": "rundRobin"}, "did you mean 'roundRobin'"),
        ({"topic": "there", "numPartitions": 5}, "there in .* has 2 partitions"),
        ({"topic": "ther"}, "did you mean 'there'"),
    ],
    ids=str,
)
def test_wrong_option_is_named(spark: SparkSession, there: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(REFUSALS, match=message):
        refused(rows(spark, 1), there, **options)
    assert sorted(each.name for each in there.iterdir() if each.is_dir()) == ["there-0", "there-1"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("key", "Required attribute 'value' not found"),
        ("1 as value", "value attribute unsupported type int. value must be a\\(n\\) string or binary"),
        ("value, 1L as partition", "partition attribute unsupported type bigint"),
        ("value, 'x' as timestamp", "timestamp attribute unsupported type string"),
        ("value, date'2020-01-01' as timestamp", "timestamp attribute unsupported type date"),
        ("value, true as timestamp", "timestamp attribute unsupported type boolean"),
        ("value, interval 1 second as timestamp", "timestamp attribute unsupported type interval second"),
        ("value, null as timestamp", "timestamp attribute unsupported type void"),
        ("value, timestamp_micros(-1500) as timestamp", "timestamp of row 0 is -2 ms: Kafka has none before 1970"),
        ("value, timestamp_micros(-500) as timestamp", "in the last millisecond before 1970, which is -1 ms"),
        ("value, 'x' as value", "there are 2 columns 'value', of types string and string: one is wanted"),
        ("value, map('a', 'b') as headers", "headers attribute unsupported type map<string,string>"),
    ],
)
def test_wrong_column_is_named(spark: SparkSession, tmp_path: Path, columns: str, message: str) -> None:
    with pytest.raises(REFUSALS, match=message):
        refused(rows(spark, 1).selectExpr(*columns.split(", ", 1)), tmp_path, topic="t", numPartitions=1)


NTZ = "timestamp_ntz'2026-03-02 09:00:00'"


@pytest.mark.parametrize(
    ("column", "cast"),
    [
        ("1 as value", "CAST(value AS STRING) AS value"),
        ("true as key", "CAST(key AS STRING) AS key"),
        ("named_struct('a', 1) as value", "to_json(value) AS value"),
        ("0L as partition", "CAST(partition AS INT) AS partition"),
        ("'0' as partition", "CAST(partition AS INT) AS partition"),
        ("X'74' as topic", "CAST(topic AS STRING) AS topic"),
        (f"{NTZ} as timestamp", "CAST(timestamp AS TIMESTAMP) AS timestamp"),
        ("'2026-03-02 09:00:00' as timestamp", "CAST(timestamp AS TIMESTAMP) AS timestamp"),
        ("1772442000000 as timestamp", "timestamp_millis(timestamp) AS timestamp"),
        (
            "array(named_struct('key', 'a', 'value', 'b')) as headers",
            "CAST(headers AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
        ),
        (
            "map('a', 'b') as headers",
            "CAST(map_entries(headers) AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
        ),
    ],
)
def test_column_of_another_type_is_written_by_the_cast_that_the_refusal_names(
    spark: SparkSession, tmp_path: Path, column: str, cast: str
) -> None:
    name = cast.rpartition(" ")[2]
    others = [] if name == "value" else ["'v' as value"]
    wrong = spark.range(1).selectExpr(column, *others)
    with pytest.raises(REFUSALS, match=f"{name} attribute unsupported type") as raised:
        refused(wrong, tmp_path / "t", numPartitions=1)
    assert f": write {cast}" in str(raised.value)
    save(wrong.selectExpr(cast, *others and ["value"]), tmp_path / "t", numPartitions=1)
    (row,) = load(spark, tmp_path / "t", includeHeaders="true").collect()
    if name == "headers":
        assert [(header.key, bytes(header.value)) for header in row.headers] == [("a", b"b")]
    elif name == "timestamp":
        assert row.timestamp.timestamp() == 1_772_442_000


@pytest.mark.parametrize("column", ["array(1) as headers", "null as timestamp", "map(1, 2) as headers"])
def test_column_that_no_cast_makes_right_is_named_without_one(spark: SparkSession, tmp_path: Path, column: str) -> None:
    with pytest.raises(REFUSALS, match="attribute unsupported type") as raised:
        refused(spark.range(1).selectExpr("'v' as value", column), tmp_path / "t", numPartitions=1)
    assert ": write " not in str(raised.value)


def test_columns_that_mean_nothing_are_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    save(
        rows(spark, 5).withColumn("offset", F.lit(7)).withColumn("color", F.lit("red")), tmp_path / "t", numPartitions=1
    )
    assert load(spark, tmp_path / "t").count() == 5


def test_missing_path_is_said(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="no path is given"):
        rows(spark, 1).write.format("seglog").mode("append").option("topic", "t").save()


def test_sql_inserts_into_a_path(spark: SparkSession, tmp_path: Path) -> None:
    """Spark hands a source no option of the table; those of the statement it does."""
    spark.sql("create table written (key string, value string) using seglog")
    try:
        spark.sql(f"insert into written with (path='{tmp_path}/t', numPartitions='2') values ('a', 'x'), ('b', 'y')")
        with pytest.raises(PySparkException, match="no path is given"):
            spark.sql("insert into written values ('c', 'z')")
    finally:
        spark.sql("drop table written")
    assert load(spark, tmp_path / "t").count() == 2


def test_partition_column_is_what_the_write_would_choose(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows(spark, 200, 4)
    save(frame, tmp_path / "t", numPartitions=5)
    chosen = {row.key: row.partition for row in sparklog.with_partition(frame, 5).collect()}
    assert chosen == {row.key.decode(): row.partition for row in load(spark, tmp_path / "t").collect()}
    report = tmp_path / "report.json"
    together = sparklog.with_partition(frame, 5).repartition(5, "partition")
    save(together, tmp_path / "t", reportPath=str(report))
    assert load(spark, tmp_path / "t").count() == 400
    keyless = sparklog.with_partition(frame.select("value"), 5, "roundRobin")
    assert {row["count"] for row in keyless.groupBy("partition").count().collect()} == {40}
    with pytest.raises(sparklog.errors.InvalidOptionError, match="a column partition already"):
        sparklog.with_partition(together, 5)


def test_stored_properties_of_a_topic_are_obeyed(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "topics.properties").write_text("a/compression.type=zstd\n")
    frame = spark.createDataFrame([("a", "x" * 500), ("b", "x" * 500)], "topic string, value string")
    frame.write.format("seglog").mode("append").option("numPartitions", 1).save(str(tmp_path))
    found = sparklog.open_topic(tmp_path).read(columns=["topic", "compression"]).to_pylist()
    assert {row["topic"]: row["compression"] for row in found} == {"a": "zstd", "b": "lz4"}
