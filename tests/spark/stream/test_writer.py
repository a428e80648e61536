"""Streams into partition logs: every batch once, whatever is repeated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.base import PySparkException
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import sparklog
from sparklog.topic.write.txn_versions import read_txn_versions
from tests.places import directory_at


def feed(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number:03}.json").write_text("\n".join(json.dumps(row) for row in rows))


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    schema = "key string, value string, partition int"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def write(rows: DataFrame, to: Path, checkpoint: Path, **options: Any) -> StreamingQuery:
    query = (
        rows.writeStream.format("seglog")
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(to))
    )
    query.awaitTermination()
    return query


def values(path: Path) -> list[bytes]:
    return sorted(sparklog.open_topic(path).read(columns="value").column("value").to_pylist())


def test_batches_are_written_one_behind_the_other_and_once(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        feed(tmp_path / "in", number, [{"key": f"k{n}", "value": f"{number}-{n}"} for n in range(10)])
    query = write(stream_of(spark, tmp_path / "in"), tmp_path / "out" / "t", tmp_path / "cp", numPartitions=2)
    assert values(tmp_path / "out" / "t") == sorted(f"{number}-{n}".encode() for number in range(3) for n in range(10))
    assert read_txn_versions(directory_at(tmp_path / "out")).applications == {str(query.id): 2}
    # Spark does not know that the last batch was committed, and repeats it.
    (last,) = (tmp_path / "cp" / "commits").glob("2")
    last.unlink()
    (tmp_path / "cp" / "commits" / ".2.crc").unlink(missing_ok=True)
    feed(tmp_path / "in", 3, [{"key": "k", "value": "new"}])
    write(stream_of(spark, tmp_path / "in"), tmp_path / "out" / "t", tmp_path / "cp", numPartitions=2)
    assert len(values(tmp_path / "out" / "t")) == 31
    assert [path.name for path in (tmp_path / "out").iterdir() if "staged" in path.name] == []


def test_old_number_with_new_rows_is_an_error_and_not_a_loss(spark: SparkSession, tmp_path: Path) -> None:
    """A checkpoint is restored from an older copy: its next batch has a number that was written with other rows."""
    to, checkpoint = tmp_path / "out" / "t", tmp_path / "cp"

    def run(**options: Any) -> None:
        write(stream_of(spark, tmp_path / "in"), to, checkpoint, numPartitions=1, **options)

    feed(tmp_path / "in", 0, [{"key": "k", "value": "0"}])
    run()
    shutil.copytree(checkpoint, tmp_path / "older")
    feed(tmp_path / "in", 1, [{"key": "k", "value": "lost by the restore"}])
    run()
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "older", checkpoint)
    (tmp_path / "in" / "001.json").unlink()
    feed(tmp_path / "in", 2, [{"key": "k", "value": "new"}])
    with pytest.raises(StreamingQueryException, match=r"batch 1 of .* with 1 rows that differ from these"):
        run()
    assert values(to) == [b"0", b"lost by the restore"]
    assert [path.name for path in (tmp_path / "out").iterdir() if "staged" in path.name] == []
    run(onReplay="skip")
    assert values(to) == [b"0", b"lost by the restore"]


def test_restored_checkpoint_goes_on_where_its_rows_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        feed(tmp_path / "in", number, [{"key": f"k{n}", "value": f"{number}-{n}"} for n in range(10)])
        if number == 1:
            shutil.copytree(tmp_path / "cp", tmp_path / "older")
        write(
            stream_of(spark, tmp_path / "in").repartition(3), tmp_path / "out" / "t", tmp_path / "cp", numPartitions=2
        )
    shutil.rmtree(tmp_path / "cp")
    (tmp_path / "older").rename(tmp_path / "cp")
    feed(tmp_path / "in", 2, [{"key": "k", "value": "new"}])
    write(stream_of(spark, tmp_path / "in"), tmp_path / "out" / "t", tmp_path / "cp", numPartitions=2)
    assert len(values(tmp_path / "out" / "t")) == 21


@pytest.mark.parametrize("is_deleted", [True, False])
def test_sink_that_has_lost_batches_is_not_written_on(spark: SparkSession, tmp_path: Path, is_deleted: bool) -> None:
    out = tmp_path / "out"
    for number in range(3):
        feed(tmp_path / "in", number, [{"key": "k", "value": str(number)}])
        write(stream_of(spark, tmp_path / "in"), out / "t", tmp_path / "cp", numPartitions=1)
        if number == 0 and not is_deleted:
            shutil.copytree(out, tmp_path / "older")
    shutil.rmtree(out)
    if not is_deleted:
        (tmp_path / "older").rename(out)
    feed(tmp_path / "in", 3, [{"key": "k", "value": "3"}])
    missing = "batches 0 to 2" if is_deleted else "batches 1 to 2"
    with pytest.raises(StreamingQueryException, match=f"at batch 3, and .*: the rows of {missing} are missing"):
        write(stream_of(spark, tmp_path / "in"), out / "t", tmp_path / "cp", numPartitions=1)
    rows = stream_of(spark, tmp_path / "in")
    write(rows, out / "t", tmp_path / "cp", numPartitions=1, failOnDataLoss=False)
    assert values(out / "t") == ([b"3"] if is_deleted else [b"0", b"3"])
    feed(tmp_path / "in", 4, [{"key": "k", "value": "4"}])
    write(stream_of(spark, tmp_path / "in"), out / "t", tmp_path / "cp", numPartitions=1)
    assert values(out / "t")[-1] == b"4"


def test_batch_without_rows_advances_the_version_alone(spark: SparkSession, tmp_path: Path) -> None:
    feed(tmp_path / "in", 0, [{"key": "k", "value": "v"}])
    nothing = stream_of(spark, tmp_path / "in").where("value = 'other'")
    query = write(nothing, tmp_path / "out" / "t", tmp_path / "cp", numPartitions=1)
    assert values(tmp_path / "out" / "t") == []
    assert read_txn_versions(directory_at(tmp_path / "out")).applications == {str(query.id): 0}


def test_name_and_version_that_are_given_count_on_from_batch_to_batch(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        feed(tmp_path / "in", number, [{"key": "k", "value": str(number)}])
    options = {"numPartitions": 1, "txnAppId": "mine", "txnVersion": 10}
    write(stream_of(spark, tmp_path / "in"), tmp_path / "out" / "t", tmp_path / "cp", **options)
    assert read_txn_versions(directory_at(tmp_path / "out")).applications == {"mine": 11}
    # A new checkpoint begins with batch 0 again: what was written under these numbers is not written again.
    write(stream_of(spark, tmp_path / "in"), tmp_path / "out" / "t", tmp_path / "cp2", **options)
    assert values(tmp_path / "out" / "t") == [b"0", b"1"]
    # Other rows are not taken for them.
    feed(tmp_path / "other", 0, [{"key": "k", "value": "other"}])
    with pytest.raises(StreamingQueryException, match="batch 10 of mine has been written before"):
        write(stream_of(spark, tmp_path / "other"), tmp_path / "out" / "t", tmp_path / "cp3", **options)


def test_batch_that_is_written_by_a_function_is_there_once_by_its_number(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the function is called again for a batch that it has written, by a query that starts again."""
    for number in range(3):
        feed(tmp_path / "in", number, [{"key": f"k{n}", "value": f"{number}-{n}"} for n in range(10)])
    called: list[int] = []

    def write_batch(batch: DataFrame, number: int) -> None:
        called.append(number)
        batch.write.format("seglog").mode("append").options(numPartitions=2, txnAppId="loader", txnVersion=number).save(
            str(tmp_path / "out" / "t")
        )

    def run() -> None:
        stream_of(spark, tmp_path / "in").writeStream.foreachBatch(write_batch).option(
            "checkpointLocation", str(tmp_path / "cp")
        ).trigger(availableNow=True).start().awaitTermination()

    run()
    (tmp_path / "cp" / "commits" / "2").unlink()
    (tmp_path / "cp" / "commits" / ".2.crc").unlink(missing_ok=True)
    feed(tmp_path / "in", 3, [{"key": "k", "value": "new"}])
    run()
    assert called == [0, 1, 2, 2, 3]
    expected = [f"{number}-{n}".encode() for number in range(3) for n in range(10)]
    assert values(tmp_path / "out" / "t") == sorted([*expected, b"new"])
    assert read_txn_versions(directory_at(tmp_path / "out")).applications == {"loader": 3}


@pytest.mark.parametrize("name", ["txnAppId", "txnVersion"])
def test_name_or_version_alone_is_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    feed(tmp_path / "in", 0, [{"key": "k", "value": "v"}])
    with pytest.raises(PySparkException, match="txnAppId and txnVersion go together: one of them is not given"):
        write(stream_of(spark, tmp_path / "in"), tmp_path / "out" / "t", tmp_path / "cp", numPartitions=1, **{name: 1})


def test_each_batch_of_a_stream_is_a_transaction_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        feed(tmp_path / "in", number, [{"key": "k", "value": str(number)}])
    options = {"numPartitions": 1, "txnAppId": "mine", "transactional": "true"}
    write(stream_of(spark, tmp_path / "in"), tmp_path / "out" / "t", tmp_path / "cp", **options)
    with sparklog.open_log(tmp_path / "out" / "t-0") as log:
        columns = ["value", "offset", "producer_epoch", "is_transactional"]
        found = log.read(columns=columns, isolation_level="read_committed")
        assert found.drop_columns("value").to_pylist() == [
            {"offset": 2 * number, "producer_epoch": 2 * number, "is_transactional": True} for number in range(2)
        ]
        assert log.last_stable_offset == log.end_offset == 4


@pytest.mark.parametrize("mode", ["complete", "append"])
def test_each_output_mode_writes_the_rows_of_each_batch(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    for number in range(2):
        feed(tmp_path / "in", number, [{"key": "k", "value": "v", "partition": 0}])
    rows = stream_of(spark, tmp_path / "in")
    counts = rows.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")
    query = (
        (rows if mode == "append" else counts)
        .writeStream.format("seglog")
        .option("checkpointLocation", str(tmp_path / "cp"))
        .option("numPartitions", 1)
        .outputMode(mode)
        .trigger(availableNow=True)
        .start(str(tmp_path / "out" / "t"))
    )
    query.awaitTermination()
    assert values(tmp_path / "out" / "t") == ([b"v", b"v"] if mode == "append" else [b"1", b"2"])


def test_update_mode_is_sparks_to_refuse(spark: SparkSession, tmp_path: Path) -> None:
    feed(tmp_path / "in", 0, [{"key": "k", "value": "v", "partition": 0}])
    query = (
        stream_of(spark, tmp_path / "in")
        .groupBy("key")
        .count()
        .selectExpr("key", "CAST(count AS STRING) AS value")
        .writeStream.format("seglog")
        .option("checkpointLocation", str(tmp_path / "cp"))
        .outputMode("update")
        .start(str(tmp_path / "out" / "t"))
    )
    with pytest.raises(StreamingQueryException, match="seglog does not support Update mode"):
        query.awaitTermination()


def test_columns_mean_what_they_mean_in_a_batch_write(spark: SparkSession, tmp_path: Path) -> None:
    feed(tmp_path / "in", 0, [{"key": f"k{n}", "value": str(n), "partition": n % 2} for n in range(4)])
    rows = stream_of(spark, tmp_path / "in").selectExpr(
        "key",
        "value",
        "partition",
        "IF(partition = 0, 'even', 'odd') AS topic",
        "timestamp_millis(CAST(value AS INT)) AS timestamp",
        "array(named_struct('key', 'h', 'value', CAST(value AS BINARY))) AS headers",
    )
    write(rows, tmp_path / "out", tmp_path / "cp", numPartitions=2)
    written = spark.read.format("seglog").option("includeHeaders", True).load(str(tmp_path / "out"))
    found = [
        (row.topic, row.partition, bytes(row.key), int(row.timestamp.timestamp() * 1000), row.headers[0].key)
        for row in written.sort("key").collect()
    ]
    assert found == [(("even", "odd")[n % 2], n % 2, b"k%d" % n, n, "h") for n in range(4)]
