"""Reading whole partitions, compared with what Kafka's own consumer read from the same files."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import CorruptBatchError, InvalidOptionError
from sparklog.log.reader import LogReader, open_log
from sparklog.record.batches import framing
from tests.golden import GoldenSet, IsolationLevel, golden_sets
from tests.log.logs import write
from tests.oracle import decode_log

PARTITIONS = [
    pytest.param(golden, topic, partition, id=f"{golden.name}/{topic}-{partition}")
    for golden in golden_sets()
    for topic, partition in golden.partitions
]
TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows with plain timestamps, ms."""
    at = table.schema.get_field_index("timestamp")
    found: list[dict[str, Any]] = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()
    return found


def consumed(golden: GoldenSet, level: IsolationLevel, topic: str, partition: int) -> list[dict[str, Any]]:
    return [
        {
            "key": record["key"],
            "value": record["value"],
            "offset": record["offset"],
            "timestamp": record["timestamp"],
            "timestampType": TIMESTAMP_TYPES[record["timestampType"]],
            "headers": [{"key": key, "value": value} for key, value in record["headers"]] or None,
            "leader_epoch": -1 if record["leaderEpoch"] is None else record["leaderEpoch"],
        }
        for record in golden.records(level, topic, partition)
    ]


def opened(golden: GoldenSet, topic: str, partition: int) -> LogReader:
    return open_log(str(golden.partition_dir(topic, partition)))


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(("golden", "topic", "partition"), PARTITIONS)
def test_golden_partition_reads_as_the_consumer_read_it(
    golden: GoldenSet, topic: str, partition: int, level: IsolationLevel
) -> None:
    expected = consumed(golden, level, topic, partition)
    columns = ["key", "value", "offset", "timestamp", "timestampType", "headers", "leader_epoch"]
    with opened(golden, topic, partition) as log:
        assert rows(log.read(columns=columns, isolation_level=level)) == expected


@pytest.mark.parametrize(("golden", "topic", "partition"), PARTITIONS)
def test_golden_partition_has_the_offsets_that_the_broker_told(golden: GoldenSet, topic: str, partition: int) -> None:
    told = golden.offsets[topic, partition]
    with opened(golden, topic, partition) as log:
        assert (log.start_offset, log.end_offset) == (told.beginning, told.end)
        assert log.last_stable_offset == told.last_stable


# A broker looks in one segment only: the first whose largest timestamp is late enough, and that is the file's mtime
# where the cleaner left none in it. Where every record there is too early, below the log start offset or cleaned away,
# it answers that there is none, though later segments have some. Markers count as records here.
BROKER_STOPS_EARLY = {
    "old-compacted/v1-compacted-gzip",
    "v2-compacted/compacted-none",
    "v2-compacted/compacted-transactions-purged",
    "v2-log-start/trimmed-segments",
}


@pytest.mark.parametrize(("golden", "topic", "partition"), PARTITIONS)
def test_golden_partition_finds_times_as_the_broker_did(golden: GoldenSet, topic: str, partition: int) -> None:
    told = golden.offsets[topic, partition].for_times
    if f"{golden.name}/{topic}" in BROKER_STOPS_EARLY:
        logs = sorted(golden.partition_dir(topic, partition).glob("*.log"))
        batches = [batch for path in logs for batch in decode_log(path.read_bytes())]
        records = [r for b in batches for r in b.records if r.offset >= golden.offsets[topic, partition].beginning]
        first = {time: next((r.offset for r in records if r.timestamp >= time), None) for time in told}
        told = {time: first[time] if offset is None else offset for time, offset in told.items()}
    with opened(golden, topic, partition) as log:
        assert {timestamp: log.offset_for_time(timestamp) for timestamp in told} == told


def test_log_tells_what_it_is_without_being_read(tmp_path: Path) -> None:
    write(tmp_path / "events-7")
    log = open_log(tmp_path / "events-7")
    assert (log.topic, log.partition) == ("events", 7)
    assert repr(log) == f"LogReader({str(tmp_path / 'events-7')!r}, offsets [0, 120))"
    assert log.schema == log.read().schema
    assert not hasattr(log, "__len__"), "offsets have gaps: only a read can count records"
    (tmp_path / "events-7").rename(tmp_path / "copy")
    copy = open_log(tmp_path / "copy")
    assert (copy.topic, copy.partition) == ("copy", None)


def test_bounded_read_has_whole_records_and_one_at_least(tmp_path: Path) -> None:
    write(tmp_path / "events-7")
    log = open_log(tmp_path / "events-7")
    every, position, found = log.read(), 0, []
    while rows := log.read(position, max_bytes=1000):
        assert rows.nbytes <= 1000
        found.append(rows)
        position = rows["offset"][-1].as_py() + 1
    assert len(found) > 3
    assert pa.concat_tables(found).equals(every)
    assert log.read(5, max_bytes=1)["offset"].to_pylist() == [5]
    assert log.read(max_bytes=1 << 40).equals(every)
    assert all(batch.num_rows == 1 for batch in log.batches(max_bytes=1))


def test_time_is_a_datetime_as_well_as_milliseconds(tmp_path: Path) -> None:
    write(tmp_path)
    log, at = open_log(tmp_path), datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=1035)
    assert log.offset_for_time(at) == log.offset_for_time(1035) == 35
    assert log.offset_for_time(at - timedelta(microseconds=1)) == 35
    with pytest.raises(InvalidOptionError, match="no time zone"):
        log.offset_for_time(at.replace(tzinfo=None))


def test_single_column_needs_no_list(tmp_path: Path) -> None:
    write(tmp_path)
    assert open_log(tmp_path).read(columns="value") == open_log(tmp_path).read(columns=["value"])
    with pytest.raises(InvalidOptionError, match="no column 'values'"):
        open_log(tmp_path).read(columns="values")


def test_stream_is_all_of_the_log_each_time_that_it_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path)
    log = open_log(tmp_path)
    assert pa.table(log) == pa.table(log) == log.read()


def test_package_lists_its_public_names() -> None:
    assert set(dir(sparklog)) == {*sparklog.__all__, "__version__"}
    assert all(getattr(sparklog, name) is not None for name in dir(sparklog))


def test_old_consumers_are_given_the_starts_of_segments_by_the_times_of_files(tmp_path: Path) -> None:
    """What `Log.legacyFetchOffsetsBefore` of Kafka 2.8 returns for the same segments."""
    folder = tmp_path / "events-0"
    write(folder, 6, segment_bytes=600)
    paths = sorted(folder.glob("*.log"))
    starts = [int(path.stem) for path in paths]
    assert len(starts) == 3
    for path, seconds in zip(paths, (100, 200, 300), strict=True):
        os.utime(path, (seconds, seconds))
    with sparklog.open_log(folder) as log:
        assert log.offsets_before(None, 9) == [60, *reversed(starts)]
        assert log.offsets_before(None, 2) == [60, starts[2]]
        assert log.offsets_before(None, 0) == log.offsets_before(-2, 0) == []
        assert log.offsets_before(-1, 9) == log.offsets_before(None, 9)
        assert log.offsets_before(-1, 2) == [60, starts[2]]
        assert log.offsets_before(-2, 9) == [starts[0]]
        assert log.offsets_before(99_999, 9) == []
        assert log.offsets_before(100_000, 9) == [starts[0]]
        assert log.offsets_before(299_999, 1) == [starts[1]]
        assert log.offsets_before(datetime.fromtimestamp(300, UTC), 9) == [60, *reversed(starts)]
        assert log.offsets_before(300_000, 9, now_ms=400_000) == [*reversed(starts)]
        assert log.offsets_before(400_000, 1, now_ms=400_000) == [60]
        with pytest.raises(InvalidOptionError, match="max_offsets is -1"):
            log.offsets_before(None, -1)
    (folder / f"{60:020d}.log").touch()
    with sparklog.open_log(folder) as log:
        assert log.offsets_before(None, 2) == [60, starts[2]]


def test_no_offset_before_is_below_the_log_start_offset(tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    write(folder, 6, segment_bytes=600)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nevents 0 5\n")
    with sparklog.open_log(folder) as log:
        assert log.offsets_before(None, 9)[-1] == 5


@pytest.mark.parametrize("batches_max", [1, 2, 5])
def test_rows_that_wait_for_later_pieces_keep_their_file_and_come_before_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches_max: int
) -> None:
    write(tmp_path, segment_bytes=1200)
    with open_log(str(tmp_path)) as log:
        whole = log.read(columns=["file", "offset", "value", "position"])
    monkeypatch.setattr(framing, "BATCHES_MAX", batches_max)
    with open_log(str(tmp_path)) as log:
        assert log.read(columns=["file", "offset", "value", "position"]).equals(whole)
        assert log.read(columns=["offset"], end_offset=25)["offset"].to_pylist() == list(range(25))
    second = sorted(tmp_path.glob("*.log"))[1]
    data = bytearray(second.read_bytes())
    data[-3] ^= 1
    second.write_bytes(data)
    found: list[int] = []
    with open_log(str(tmp_path)) as log, pytest.raises(CorruptBatchError) as caught:
        found.extend(offset for batch in log.batches(columns=["offset"]) for offset in batch["offset"].to_pylist())
    assert found == list(range(caught.value.offset or 0))
    assert str(second) in str(caught.value)
