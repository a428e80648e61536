"""Reads, views and streams of damaged logs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog.errors import CorruptLogError, InvalidOptionError
from sparklog.log.reads.damage_table import DAMAGE_SCHEMA
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.schema import source_schema
from sparklog.spark.options.warnings import warn_batch
from sparklog.spark.read.batches import read_ranges
from sparklog.spark.read.decoding import ReadColumns
from sparklog.spark.read.plan import plan_batch
from sparklog.spark.stream.reader import SeglogStreamReader
from sparklog.topic.quarantine import DAMAGE_FILE
from sparklog.topic.streams.offsets import INITIAL
from tests.build import control_batch, write_partition
from tests.jobs.dead_disk import make_dead_disk, overwrite
from tests.log.logs import batch, batches, only_log
from tests.spark.stream.test_reader import reader_of
from tests.spark.trigger_limits import READ_ALL

Offsets = list[int]


def flip(folder: Path, made: list[bytes], number: int) -> None:
    """Damage the value of the last record of a batch."""
    position = sum(map(len, made[: number + 1])) - 3
    overwrite(only_log(folder), position, bytes([only_log(folder).read_bytes()[position] ^ 1]))


# Batch reads


def test_read_gives_every_record_of_a_dead_disk_and_the_view_what_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    logs, kept = tmp_path / "logs", tmp_path / "q"
    sound = make_dead_disk(logs)
    reader = spark.read.format("seglog").option("onDamage", "SKIP").option("quarantine", str(kept))
    rows = reader.option("packBytes", 0).option("maxRecordsPerPartition", 100).load(str(logs))
    assert sorted((row["topic"], row["offset"]) for row in rows.collect()) == sorted(sound)

    view = spark.read.format("seglog").option("view", "damage").load(str(logs))
    assert view.columns == DAMAGE_SCHEMA.names
    with sparklog.open_topic(logs, on_damage="skip") as topic:
        expected = topic.damage().to_pylist()
    assert sorted(tuple(row) for row in view.collect()) == sorted(tuple(row.values()) for row in expected)
    assert view.rdd.getNumPartitions() == 8
    assert view.where("topic = 'flipped'").select("reason").count() == 1
    of_topic = spark.read.format("seglog").option("view", "damage").option("subscribe", "zeros").load(str(logs))
    assert {row["topic"] for row in of_topic.collect()} == {"zeros"}

    lines = [json.loads(line) for line in (kept / DAMAGE_FILE).read_bytes().splitlines()]
    read = {(line["topic"], line["position"], line["length_bytes"]) for line in lines}
    assert read == {(row["topic"], row["position"], row["length_bytes"]) for row in expected}


def test_log_without_a_sound_batch_is_told_of(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("lost-0", "sound-0"):
        write_partition(tmp_path / "logs" / name, batches(3))
    overwrite(only_log(tmp_path / "logs" / "lost-0"), 0, b"\xee" * len(b"".join(batches(3))))
    given = {"path": str(tmp_path / "logs"), "onDamage": "skip", "minPartitions": "4"}
    options = SeglogOptions.parse(given | {"quarantine": str(tmp_path / "q")})
    tasks = plan_batch(options)
    assert [(each.folder.name, each.size) for task in tasks for each in task][-1] == ("lost-0", 0)
    assert sum(each.size for task in tasks for each in task) == 30
    schema = source_schema((), include_headers=False)
    with caplog.at_level(logging.WARNING):
        assert sum(batch.num_rows for batch in read_ranges(tasks[-1], options, schema, ReadColumns())) == 0
    assert caplog.text.count("1 damaged stretches were skipped") == 1
    (line,) = (tmp_path / "q" / DAMAGE_FILE).read_text().splitlines()
    assert json.loads(line)["position"] == 0

    # A log that is only empty needs no task.
    write_partition(tmp_path / "logs" / "empty-0", [])
    assert len(plan_batch(options)) == len(tasks)
    assert spark.read.format("seglog").options(**given).load().count() == 30
    view = spark.read.format("seglog").option("view", "damage").load(given["path"])
    assert [(row["topic"], row["position"]) for row in view.collect()] == [("lost", 0)]


def test_salvage_runs_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    make_dead_disk(logs)
    here = sparklog.salvage(logs, tmp_path / "here", quarantine=tmp_path / "q1", processes=1)
    there = sparklog.salvage(logs, tmp_path / "there", quarantine=tmp_path / "q2", spark=spark, task_bytes=1)
    assert (there.records, there.damage) == (here.records, here.damage)
    assert here.damage.num_rows > 0
    for one, other in ((tmp_path / "here", tmp_path / "there"), (tmp_path / "q1", tmp_path / "q2")):
        files = {str(path.relative_to(one)): path.read_bytes() for path in one.glob("*/*")}
        assert files == {str(path.relative_to(other)): path.read_bytes() for path in other.glob("*/*")}
        assert files


def test_damage_is_an_error_unless_it_is_skipped(tmp_path: Path) -> None:
    folder, made = tmp_path / "events-0", batches(3)
    write_partition(folder, made)
    overwrite(only_log(folder), 0, b"\xee" * 40)
    with pytest.raises(CorruptLogError):
        plan_batch(SeglogOptions.parse({"path": str(tmp_path), "isolationLevel": "read_committed"}))
    for more in (
        {},
        {"isolationLevel": "read_committed"},
        {"where": "timestamp >= 1001"},
        {"startingTimestamp": "1001"},
    ):
        options = SeglogOptions.parse({"path": str(tmp_path), "onDamage": "skip", **more})
        ((found,),) = plan_batch(options)
        assert found.end_offset == 30


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"onDamage": "ignore"}, "fail, skip, best_effort"),
        ({"unknown": "keep"}, "set onDamage"),
        ({"quarantine": "/tmp/q"}, "set onDamage"),
        ({"onDamage": "skip", "unknown": "maybe"}, "drop or keep"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        SeglogOptions.parse({"path": "/logs", **given})


def test_quarantine_in_the_log_directory_is_refused(tmp_path: Path) -> None:
    write_partition(tmp_path / "events-0", batches(3))
    given = {"path": str(tmp_path), "onDamage": "skip", "quarantine": str(tmp_path / "q")}
    with pytest.raises(InvalidOptionError, match="in the log directory"):
        plan_batch(SeglogOptions.parse(given))


def test_unknown_without_read_committed_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    warn_batch({"onDamage": "skip", "unknown": "keep"}, ["offset"])
    assert "the option unknown does nothing here" in caplog.text


def test_records_whose_marker_is_lost_are_left_out_or_kept(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    made = [
        batch(0, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        control_batch("commit", 10, 7),
        batch(11),
    ]
    write_partition(folder, made)
    overwrite(only_log(folder), len(made[0]) + 62, b"\xee\xee")
    with sparklog.open_topic(tmp_path, on_damage="skip") as topic:
        read = {
            unknown: topic.read(columns="offset", isolation_level="read_committed", unknown=unknown)[
                "offset"
            ].to_pylist()
            for unknown in ("drop", "keep")
        }
    assert read == {"drop": list(range(11, 21)), "keep": [*range(10), *range(11, 21)]}


# Streams


def read_batch(reader: SeglogStreamReader, start: dict[str, Any]) -> tuple[Offsets, dict[str, Any]]:
    """Read what a trigger reads; return the offsets of its records, and where it ends."""
    end = json.loads(json.dumps(reader.latestOffset(start, READ_ALL)))
    offsets = [
        offset
        for task in reader.partitions(start, end)
        for read in reader.read(task)
        for offset in read.column("offset").to_pylist()
    ]
    return offsets, end


def append(folder: Path, data: bytes) -> None:
    with only_log(folder).open("ab") as file:
        file.write(data)


def test_stream_goes_on_behind_damage_and_waits_for_what_follows_damage_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, made = tmp_path / "logs" / "events-0", batches(8)
    write_partition(folder, made[:4])
    flip(folder, made, 1)
    reader = reader_of(tmp_path / "logs", startingOffsets="earliest", onDamage="skip", quarantine=tmp_path / "q")
    with caplog.at_level(logging.WARNING):
        offsets, end = read_batch(reader, INITIAL)
    assert offsets == [*range(10), *range(20, 40)]
    assert caplog.text.count("1 damaged stretches were skipped") == 1
    # A batch that is only being written is no damage: it is read once it is whole.
    append(folder, made[4][:100])
    assert read_batch(reader, end) == ([], end)
    append(folder, made[4][100:])
    offsets, end = read_batch(reader, end)
    assert offsets == list(range(40, 50))
    # A damaged batch at the end: the stream waits, and nothing is skipped but that batch.
    append(folder, made[5])
    flip(folder, made, 5)
    assert read_batch(reader, end) == ([], end)
    append(folder, made[6][:70])
    assert read_batch(reader, end) == ([], end)
    append(folder, made[6][70:] + made[7])
    offsets, end = read_batch(reader_of(tmp_path / "logs", onDamage="skip", quarantine=tmp_path / "q"), end)
    assert offsets == list(range(60, 80))
    lines = [json.loads(line) for line in (tmp_path / "q" / DAMAGE_FILE).read_bytes().splitlines()]
    assert {line["first_offset"] for line in lines} == {10, 50}


def test_stream_waits_where_what_it_has_read_is_damaged_since(tmp_path: Path) -> None:
    folder, made = tmp_path / "events-0", batches(6)
    write_partition(folder, made[:4])
    given: dict[str, Any] = {"startingOffsets": "earliest", "onDamage": "skip"}
    _, end = read_batch(reader_of(tmp_path, **given), INITIAL)
    flip(folder, made, 3)
    assert read_batch(reader_of(tmp_path, **given), end) == ([], end)
    append(folder, made[4] + made[5])
    assert read_batch(reader_of(tmp_path, **given), end)[0] == list(range(40, 60))


def test_stream_without_the_option_stops_at_damage(tmp_path: Path) -> None:
    folder, made = tmp_path / "events-0", batches(4)
    write_partition(folder, made)
    flip(folder, made, 1)
    with pytest.raises(CorruptLogError):
        read_batch(reader_of(tmp_path, startingOffsets="earliest"), INITIAL)
