"""Reading whole partitions, compared with what Kafka's own consumer read from the same files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sparklog.log.reader import LogReader, open_log
from tests.golden import GoldenSet, IsolationLevel, golden_sets
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
