"""Streams over damage and loss: what is said, and that a batch that failed is read again as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

from sparklog.errors import DataLossError
from sparklog.topic.streams.offsets import INITIAL, StreamOffset
from tests.build import control_batch
from tests.log.logs import batch
from tests.spark.stream.test_reader import append, read, reader_of

ALL = ReadAllAvailable()
IN_TRANSACTION: dict[str, Any] = {"transactional": True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}


def test_batch_with_damage_fails_with_its_place_and_is_read_again_when_it_is_repaired(
    spark: SparkSession, tmp_path: Path
) -> None:
    append(tmp_path / "logs" / "t-0", 0, 40)
    log = tmp_path / "logs" / "t-0" / f"{0:020}.log"
    sound = log.read_bytes()
    position = sound.index((20).to_bytes(8, "big"))
    damaged_at = position + 30
    numbers: list[tuple[int, list[int]]] = []

    def start() -> StreamingQuery:
        stream = spark.readStream.format("seglog").option("startingOffsets", "earliest").load(str(tmp_path / "logs"))
        writer = stream.writeStream.foreachBatch(
            lambda rows, number: numbers.append((number, sorted(row.offset for row in rows.collect())))
        )
        return writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()

    log.write_bytes(sound[:damaged_at] + bytes([sound[damaged_at] ^ 1]) + sound[damaged_at + 1 :])
    with pytest.raises(StreamingQueryException) as raised:
        start().awaitTermination()
    said = str(raised.value)
    assert "CorruptBatchError" in said
    assert all(part in said for part in (str(log), f"position {position}", "offset 20"))
    planned = json.loads((tmp_path / "cp" / "offsets" / "0").read_text().splitlines()[-1])
    assert StreamOffset.parse(planned).topics_json() == {"t": {"0": 40}}
    # It is repaired, and meanwhile the log has grown.
    log.write_bytes(sound)
    append(tmp_path / "logs" / "t-0", 40, 10)
    start().awaitTermination()
    assert numbers == [(0, list(range(40))), (1, list(range(40, 50)))]


@pytest.mark.parametrize("fails", [True, False])
def test_new_partition_that_has_lost_its_start_is_data_loss(tmp_path: Path, fails: bool) -> None:
    append(tmp_path / "t-0", 0, 20)
    reader = reader_of(tmp_path, startingOffsets="earliest", failOnDataLoss=str(fails).lower())
    end = reader.latestOffset(INITIAL, ALL)
    append(tmp_path / "t-1", 30, 10)
    after = reader.latestOffset(end, ALL)
    if fails:
        with pytest.raises(DataLossError, match="t-1 is new, and begins at offset 30 and not at 0"):
            read(reader, end, after)
    else:
        assert read(reader, end, after) == [("t-1", 30, 40)]


@pytest.mark.parametrize("fails", [True, False])
def test_log_that_was_cut_after_a_batch_was_planned_is_data_loss(tmp_path: Path, fails: bool) -> None:
    append(tmp_path / "t-0", 0, 40)
    reader = reader_of(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    start = reader.latestOffset(INITIAL, ReadMaxRows(1))
    end = reader.latestOffset(start, ALL)
    (tmp_path / "t-0" / f"{0:020}.log").unlink()
    append(tmp_path / "t-0", 0, 30)
    again = reader_of(tmp_path, failOnDataLoss=str(fails).lower())
    if fails:
        with pytest.raises(DataLossError, match="t-0 is to be read up to offset 40, and its log now ends at 30"):
            read(again, start, end)
    else:
        assert read(again, start, end) == [("t-0", 10, 30)]


def test_nothing_stays_open_between_triggers(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path / f"t-{number}", 0, 20)
    reader = reader_of(tmp_path, startingOffsets="earliest", isolationLevel="read_committed")
    end = reader.latestOffset(INITIAL, ALL)
    tasks = reader.partitions(INITIAL, end)
    assert sum(rows.num_rows for task in tasks for rows in reader.read(task)) == 60
    opened = {each.path for each in psutil.Process().open_files()}
    assert [path for path in opened if path.startswith(str(tmp_path))] == []


# What is read


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"assign": '{"t": [1]}'}, {"t-1"}),
        ({"subscribe": "t,w"}, {"t-0", "t-1", "w-0"}),
        ({"subscribePattern": "[tu]"}, {"t-0", "t-1", "u-0"}),
        ({"subscribePattern": ".*", "excludePattern": "u"}, {"t-0", "t-1", "w-0"}),
        ({}, {"t-0", "t-1", "u-0", "w-0"}),
    ],
)
def test_what_is_chosen_is_read_also_where_it_comes_later(
    tmp_path: Path, given: dict[str, str], expected: set[str]
) -> None:
    append(tmp_path / "t-0", 0, 10)
    append(tmp_path / "u-0", 0, 10)
    reader = reader_of(tmp_path, startingOffsets="earliest", **given)
    end = reader.latestOffset(INITIAL, ALL)
    found = {name for name, *_ in read(reader, INITIAL, end)}
    append(tmp_path / "t-1", 0, 10)
    append(tmp_path / "w-0", 0, 10)
    found |= {name for name, *_ in read(reader, end, reader.latestOffset(end, ALL))}
    assert found == expected


def test_committed_reads_end_at_the_last_stable_offset_and_leave_out_what_was_aborted(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = folder / f"{0:020}.log"
    log.write_bytes(batch(0, 5) + batch(5, 5, **IN_TRANSACTION) + batch(10, 5))
    reader = reader_of(tmp_path, startingOffsets="earliest", isolationLevel="read_committed")

    def offsets(start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        tasks = reader.partitions(start, end)
        return [n for task in tasks for rows in reader.read(task) for n in rows.column("offset").to_pylist()]

    end = reader.latestOffset(INITIAL, ALL)
    assert offsets(INITIAL, end) == [0, 1, 2, 3, 4]
    log.write_bytes(log.read_bytes() + control_batch("abort", 15, 1, 0, 5000))
    after = reader.latestOffset(end, ALL)
    assert offsets(end, after) == [10, 11, 12, 13, 14]
    assert after["t"] == {"0": 16}


@pytest.mark.parametrize("given", [{"maxRecordsPerPartition": 10}, {"minPartitions": 5}])
def test_batch_is_split_as_a_batch_read_is(tmp_path: Path, given: dict[str, int]) -> None:
    append(tmp_path / "t-0", 0, 50)
    reader = reader_of(tmp_path, startingOffsets="earliest", **given)
    end = reader.latestOffset(INITIAL, ALL)
    assert read(reader, INITIAL, end) == [("t-0", first, first + 10) for first in range(0, 50, 10)]
