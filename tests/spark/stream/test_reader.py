"""Streams of what is written to partition logs: the reader as Spark calls it, and queries."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import sparklog
from sparklog.cli.commands.main import app
from sparklog.errors import DataLossError, InvalidOptionError
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.schema import source_schema
from sparklog.spark.read.decoding import columns_of
from sparklog.spark.stream.reader import SeglogStreamReader
from sparklog.topic.streams.offsets import INITIAL, StreamOffset
from tests.build import Record, v2_batch
from tests.golden import EXAMPLES
from tests.spark.trigger_limits import READ_ALL, READ_SOME, limited, needs_limits

runner = CliRunner()


def append(folder: Path, first: int, count: int, *, batch: int = 10) -> None:
    """Append records with the offsets from one on to the log of a partition, as a broker does."""
    folder.mkdir(parents=True, exist_ok=True)
    logs = sorted(folder.glob("*.log"))
    path = logs[-1] if logs else folder / f"{first:020}.log"
    with path.open("ab") as log:
        for start in range(first, first + count, batch):
            size = min(batch, first + count - start)
            records = [Record(n, 1_000 * (start + n), None, b"%d" % (start + n)) for n in range(size)]
            log.write(v2_batch(records, base_offset=start))


def with_id(folder: Path, topic_id: str) -> None:
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


def reader_of(path: Path, **given: Any) -> SeglogStreamReader:
    options = SeglogOptions.parse_stream({"path": str(path), **{name: str(each) for name, each in given.items()}})
    columns = columns_of(options)
    return SeglogStreamReader(options, source_schema((), include_headers=False), columns)


def read(reader: SeglogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return the ranges of a batch; offsets are JSON in between, as with Spark."""
    tasks = reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    return sorted((each.folder.name, each.start_offset, each.end_offset) for task in tasks for each in task.value)


# Tasks


@pytest.mark.parametrize("pack_bytes", [0, 1 << 25])
def test_tasks_of_a_stream_are_in_the_order_of_topics_and_partitions(tmp_path: Path, pack_bytes: int) -> None:
    folders = [f"{topic}-{number}" for topic in ("a", "b") for number in range(11)]
    for folder in reversed(folders):
        append(tmp_path / folder, 0, 20)
    reader = reader_of(tmp_path, startingOffsets="earliest", packBytes=pack_bytes)
    tasks = reader.partitions(INITIAL, reader.latestOffset(INITIAL, READ_ALL))
    assert [each.folder.name for task in tasks for each in task.value] == folders


# Where a stream begins


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({}, 20),
        ({"startingOffsets": "latest"}, 20),
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": '{"t":{"0":7}}'}, 7),
        ({"startingOffsets": '{"t":{"0":-2}}'}, 0),
        ({"startingOffsets": '{"t":{"0":-1}}'}, 20),
        ({"startingTimestamp": 12_500}, 13),
        ({"startingOffsetsByTimestamp": '{"t":{"0":3000}}'}, 3),
        ({"startingTimestamp": 99_000, "startingOffsetsByTimestampStrategy": "latest"}, 20),
    ],
)
def test_first_batch_reads_from_where_the_stream_began_also_when_it_is_repeated(
    tmp_path: Path, given: dict[str, Any], first: int
) -> None:
    append(tmp_path / "t-0", 0, 20)
    reader = reader_of(tmp_path, **given)
    start = reader.initialOffset()
    end = reader.latestOffset(start, READ_ALL)
    expected = [("t-0", first, 20)] if first < 20 else []
    assert read(reader, start, end) == expected
    # The batch fails, more is written, and another process is asked for the same batch.
    append(tmp_path / "t-0", 20, 5)
    again = reader_of(tmp_path, **given)
    assert again.initialOffset() == start
    assert read(again, start, end) == expected
    after = again.latestOffset(end, READ_ALL)
    assert read(again, end, after) == [("t-0", 20, 25)]
    assert again.latestOffset(after, READ_ALL) == after


def test_time_after_every_record_is_an_error(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 0, 20)
    with pytest.raises(InvalidOptionError, match="No offset matched from request of topic-partition t-0"):
        reader_of(tmp_path, startingTimestamp=99_000).latestOffset(INITIAL, READ_ALL)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_end_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidOptionError, match="not valid in streaming queries"):
        reader_of(tmp_path, **{name: '{"t":{"0":1}}' if name != "endingTimestamp" else "5"})


# What is new


def test_new_partitions_and_topics_are_read_from_their_earliest_offset(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 0, 20)
    reader = reader_of(tmp_path, subscribePattern="t.*", excludePattern="to")
    end = reader.latestOffset(INITIAL, READ_ALL)
    append(tmp_path / "t-1", 0, 10)
    append(tmp_path / "t2-0", 0, 10)
    append(tmp_path / "to-0", 0, 10)
    append(tmp_path / "u-0", 0, 10)
    after = reader.latestOffset(end, READ_ALL)
    assert read(reader, end, after) == [("t-1", 0, 10), ("t2-0", 0, 10)]


def test_torn_end_is_no_part_of_a_batch_until_it_is_whole(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 0, 20)
    reader = reader_of(tmp_path)
    end = reader.latestOffset(INITIAL, READ_ALL)
    whole = v2_batch([Record(0, 1, None, b"v")], base_offset=20)
    log = tmp_path / "t-0" / f"{0:020}.log"
    with log.open("ab") as file:
        file.write(whole[:30])
    assert reader.latestOffset(end, READ_ALL) == end
    with log.open("ab") as file:
        file.write(whole[30:])
    assert read(reader, end, reader.latestOffset(end, READ_ALL)) == [("t-0", 20, 21)]


# How much a trigger reads


@needs_limits
def test_limit_is_shared_by_the_partitions_in_proportion(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 0, 90)
    append(tmp_path / "t-1", 0, 10)
    append(tmp_path / "t-2", 0, 1)
    reader = reader_of(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    assert type(reader.getDefaultReadLimit()) is type(READ_SOME)
    end = reader.latestOffset(INITIAL, READ_SOME)
    # 20 * 90/101 = 17.8, 20 * 10/101 = 1.98, 20 * 1/101 = 0.2: down, but not to nothing.
    assert read(reader, INITIAL, end) == [("t-0", 0, 17), ("t-1", 0, 1), ("t-2", 0, 1)]
    once = reader.latestOffset(end, READ_ALL)
    assert read(reader, end, once) == [("t-0", 17, 90), ("t-1", 1, 10)]


@needs_limits
def test_bytes_are_limited(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 0, 1000)
    size = (tmp_path / "t-0" / f"{0:020}.log").stat().st_size
    reader = reader_of(tmp_path, startingOffsets="earliest", maxBytesPerTrigger=size // 10)
    ((_, _, end),) = read(reader, INITIAL, reader.latestOffset(INITIAL, READ_SOME))
    assert 90 <= end <= 110


@needs_limits
def test_few_offsets_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 1_000_000
    monkeypatch.setattr("sparklog.spark.stream.reader.wall_clock_ms", lambda: now_ms)
    append(tmp_path / "t-0", 0, 20)
    reader = reader_of(tmp_path, startingOffsets="earliest", minOffsetsPerTrigger=15, maxTriggerDelay="10s")
    # The first trigger never waits.
    end = reader.latestOffset(INITIAL, READ_SOME)
    append(tmp_path / "t-0", 20, 14)
    now_ms += 9_999
    assert reader.latestOffset(end, READ_SOME) == end
    now_ms += 1
    after = reader.latestOffset(end, READ_SOME)
    assert read(reader, end, after) == [("t-0", 20, 34)]
    append(tmp_path / "t-0", 34, 15)
    assert read(reader, after, reader.latestOffset(after, READ_SOME)) == [("t-0", 34, 49)]


def test_more_is_wanted_at_least_than_at_most(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"minOffsetPerTrigger\(5\) is higher than the maxOffsetsPerTrigger"):
        reader_of(tmp_path, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=4)


@needs_limits
def test_available_now_reads_what_was_there_when_it_began(tmp_path: Path) -> None:
    append(tmp_path / "t-0", 0, 20)
    reader = reader_of(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=15, minOffsetsPerTrigger=15)
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset(INITIAL, READ_SOME)
    append(tmp_path / "t-0", 20, 5)
    append(tmp_path / "u-0", 0, 5)
    # Five are left, fewer than the least, and are read all the same.
    second = reader.latestOffset(first, READ_SOME)
    assert read(reader, first, second) == [("t-0", 15, 20)]
    assert reader.latestOffset(second, READ_SOME) == second
    more = {"t": {"0": 25}}
    with pytest.raises(DataLossError, match="AvailableNow began with 20"):
        read(reader, second, more)
    with pytest.raises(DataLossError, match="u-0 is to be read up to offset 5"):
        read(reader, second, {**second, "u": {"0": 5}})
    # A batch of before a restart, whose end the log has lost.
    (tmp_path / "t-0" / f"{0:020}.log").unlink()
    append(tmp_path / "t-0", 0, 10)
    reader._logs = None
    with pytest.raises(DataLossError, match="t-0 ends at offset 10, and ended at 20 when AvailableNow"):
        read(reader, first, second)
    shutil.rmtree(tmp_path / "t-0")
    reader._logs = None
    with pytest.raises(DataLossError, match="t-0 is gone since AvailableNow began"):
        read(reader, second, second)


# Data that is gone


def lost(tmp_path: Path, damage: Any) -> tuple[str, list[tuple[str, int, int]]]:
    """Damage a log between two triggers; return the error, and what is read where it is only warned of."""
    found: list[tuple[str, int, int]] = []
    said = ""
    for fails in (True, False):
        folder = tmp_path / str(fails)
        append(folder / "t-0", 0, 20)
        with_id(folder / "t-0", "AAAAAAAAAAAAAAAAAAAAAQ")
        append(folder / "t-1", 0, 20)
        reader = reader_of(folder, startingOffsets="earliest", failOnDataLoss=str(fails).lower())
        end = reader.latestOffset(INITIAL, READ_ALL)
        damage(folder / "t-0")
        after = reader.latestOffset(end, READ_ALL)
        if fails:
            with pytest.raises(DataLossError) as raised:
                read(reader, end, after)
            said = str(raised.value)
        else:
            found = read(reader, end, after)
    return said, found


def test_partition_that_is_gone(tmp_path: Path) -> None:
    said, found = lost(tmp_path, shutil.rmtree)
    assert "t-0 is gone, and was read up to offset 20" in said
    assert "failOnDataLoss" in said
    assert found == []


def test_topic_that_was_made_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    def remake(folder: Path) -> None:
        shutil.rmtree(folder)
        append(folder, 0, 30)
        with_id(folder, "AAAAAAAAAAAAAAAAAAAAAg")

    said, found = lost(tmp_path, remake)
    assert "the topic of t-0 was deleted and made again: it has another id than when it was read" in said
    assert found == [("t-0", 0, 30)]


def test_retention_that_overtook_the_stream(tmp_path: Path) -> None:
    def age(folder: Path) -> None:
        (folder / f"{0:020}.log").unlink()
        append(folder, 50, 10)

    said, found = lost(tmp_path, age)
    assert "offsets [20, 50) of t-0 were deleted before they were read" in said
    assert found == [("t-0", 50, 60)]


def test_log_that_was_cut(tmp_path: Path) -> None:
    def cut(folder: Path) -> None:
        (folder / f"{0:020}.log").unlink()
        append(folder, 0, 10)

    said, found = lost(tmp_path, cut)
    assert "t-0 is to be read from offset 20, and ended at 10" in said
    assert found == []


def test_loss_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparklog"):
        lost(tmp_path, shutil.rmtree)
    assert any("t-0 is gone" in record.getMessage() for record in caplog.records)


# Queries


def test_query_reads_what_a_batch_reads_and_goes_on_after_a_stop(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "logs" / "t-0", 0, 20)
    append(tmp_path / "logs" / "t-1", 0, 7)
    out = tmp_path / "out"

    def run() -> list[tuple[int, int, bytes]]:
        query = (
            spark.readStream.format("seglog")
            .option("startingOffsets", "earliest")
            .options(**limited(maxOffsetsPerTrigger=10))
            .load(str(tmp_path / "logs"))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "cp"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        query.awaitTermination()
        rows = spark.read.parquet(str(out)).select("partition", "offset", "value").collect()
        return sorted((row.partition, row.offset, bytes(row.value)) for row in rows)

    assert run() == [(0, n, b"%d" % n) for n in range(20)] + [(1, n, b"%d" % n) for n in range(7)]
    append(tmp_path / "logs" / "t-1", 7, 5)
    assert run() == [(0, n, b"%d" % n) for n in range(20)] + [(1, n, b"%d" % n) for n in range(12)]
    last = sorted((tmp_path / "cp" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))[-1]
    kept = json.loads(last.read_text().splitlines()[-1])
    assert StreamOffset.parse(kept).topics_json() == {"t": {"0": 20, "1": 12}}


def test_from_log_to_log_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "logs" / "t-0", 0, 50)
    query = (
        spark.readStream.format("seglog")
        .option("startingOffsets", "earliest")
        .options(**limited(maxOffsetsPerTrigger=20))
        .load(str(tmp_path / "logs"))
        .select("key", "value")
        .writeStream.format("seglog")
        .option("checkpointLocation", str(tmp_path / "cp"))
        .option("numPartitions", 1)
        .trigger(availableNow=True)
        .start(str(tmp_path / "out" / "u"))
    )
    query.awaitTermination()
    rows = spark.read.format("seglog").load(str(tmp_path / "out")).sort("offset").collect()
    assert [bytes(row.value) for row in rows] == [b"%d" % n for n in range(50)]


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"continuous": "1 second"}, "seglog does not support continuous processing"),
        ({"realTime": "5 seconds"}, "INPUT_STREAM_NOT_SUPPORTED"),
    ],
)
def test_other_triggers_than_of_batches_are_refused_by_spark(
    spark: SparkSession, tmp_path: Path, trigger: dict[str, Any], said: str
) -> None:
    append(tmp_path / "logs" / "t-0", 0, 5)
    writer = spark.readStream.format("seglog").load(str(tmp_path / "logs")).writeStream.format("console")
    writer = writer.outputMode("update").option("checkpointLocation", str(tmp_path / "cp"))
    with pytest.raises(PySparkException, match=said):
        writer.trigger(**trigger).start().awaitTermination(60)


def test_lag_of_a_running_and_of_a_stopped_query(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "logs" / "t-0", 0, 20)
    query = (
        spark.readStream.format("seglog")
        .option("startingOffsets", "earliest")
        .options(**limited(maxOffsetsPerTrigger=15))
        .load(str(tmp_path / "logs"))
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "cp"))
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    append(tmp_path / "logs" / "t-0", 20, 10)
    query = (
        spark.readStream.format("seglog")
        .options(**limited(maxOffsetsPerTrigger=4))
        .load(str(tmp_path / "logs"))
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "cp"))
        .start()
    )
    query.processAllAvailable()
    lag = sparklog.stream_lag(query)
    query.stop()
    assert lag is not None
    assert (lag.partitions, lag.total, lag.least, lag.most, lag.average) == ({("t", 0): 0}, 0, 0, 0, 0.0)
    append(tmp_path / "logs" / "t-1", 0, 6)
    done = runner.invoke(app, ["lag", str(tmp_path / "logs"), str(tmp_path / "cp"), "--json"])
    assert [json.loads(line) for line in done.output.splitlines()] == [
        {"topic": "t", "partition": 0, "offset": 30, "end_offset": 30, "lag": 0},
        {"topic": "t", "partition": 1, "offset": None, "end_offset": 6, "lag": 6},
    ]
    table = runner.invoke(app, ["lag", str(tmp_path / "logs"), str(tmp_path / "cp")]).output
    assert "behind by 6 offsets in all: 0 to 6, on average 3.0" in table


@pytest.mark.parametrize("written", [json.dumps, str], ids=["json", "as PySpark 4.1 writes it"])
def test_lag_of_each_partition_is_what_the_progress_says(written: Callable[[Any], str]) -> None:
    class Query:
        lastProgress = {  # noqa: N815, RUF012
            "sources": [
                {
                    "endOffset": written({"t": {"0": 5, "1": 9}}),
                    "latestOffset": written({"t": {"0": 15, "1": 9, "2": 2}}),
                },
                {"endOffset": written(None), "latestOffset": written(None)},
            ]
        }

    lag = sparklog.stream_lag(Query())  # type: ignore[arg-type]
    assert lag is not None
    assert (lag.partitions, lag.total, lag.most, lag.average) == ({("t", 0): 10, ("t", 1): 0, ("t", 2): 2}, 12, 10, 4.0)
    assert sparklog.stream_lag(Query(), 1) is None  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="has 2 sources"):
        sparklog.stream_lag(Query(), 2)  # type: ignore[arg-type]


def test_stream_begins_where_a_group_is(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "data")
    reader = reader_of(tmp_path / "data", startingOffsetsByGroup="dashboard", subscribe="shop-events")
    end = reader.latestOffset(INITIAL, READ_ALL)
    behind = {
        (row["topic"], row["partition"]): (row["current_offset"], row["log_end_offset"])
        for row in sparklog.views.lag(tmp_path / "data", groups=["dashboard"]).to_pylist()
        if row["topic"] == "shop-events" and row["lag"]
    }
    assert behind
    found = {tuple(name.rsplit("-", 1)): offsets for name, *offsets in read(reader, INITIAL, end)}
    assert {(topic, int(n)): tuple(offsets) for (topic, n), offsets in found.items()} == behind


def test_filter_chooses_what_a_stream_reads_and_its_offsets_go_on(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "t-0", 0, 30)
    append(tmp_path / "t-1", 0, 30)
    reader = reader_of(tmp_path, startingOffsets="earliest", where="partition = 1 AND offset >= 20")
    end = reader.latestOffset(INITIAL, READ_ALL)
    assert end["t"] == {"0": 30, "1": 30}
    assert read(reader, INITIAL, end) == [("t-1", 20, 30)]
    assert reader.latestOffset(end, READ_ALL) == end


def test_view_is_no_stream(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "t-0", 0, 5)
    with pytest.raises(PySparkException, match="view"):
        spark.readStream.format("seglog").option("view", "consumer_offsets").load(str(EXAMPLES)).writeStream.format(
            "noop"
        ).option("checkpointLocation", str(tmp_path / "cp")).start().processAllAvailable()
