"""Logs of record formats 0 and 1: what is appended is what is read, and what has no place in them is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record import memory_records as aiokafka_records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record import memory_records as kafka_records

import sparklog
from sparklog.errors import InvalidOptionError
from sparklog.log.config import LogConfig
from sparklog.record.format.schema import HEADERS_TYPE
from tests.cleaner.logs import findings
from tests.oracle import decode_log

NOW_MS = 1_700_000_000_000
VERSIONS = {0: "0.9.0", 1: "0.10.2"}
CODECS = ("uncompressed", "gzip", "snappy", "lz4")
BYTES = st.none() | st.binary(max_size=60)
ROWS = st.lists(st.tuples(BYTES, BYTES, st.none() | st.integers(1, NOW_MS + 3_600_000)), min_size=1, max_size=60)

Row = tuple[bytes | None, bytes | None, int | None]


def table(rows: list[Row], magic: int) -> pa.Table:
    keys, values, times = zip(*rows, strict=True)
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array([time if magic else None for time in times], pa.int64()),
        }
    )


def ours(folder: Path) -> list[tuple[Any, ...]]:
    with sparklog.open_log(str(folder)) as log:
        found = log.read(columns=["offset", "key", "value", "timestamp"])
    times = found["timestamp"].cast(pa.int64()).to_pylist()
    return [(row["offset"], row["key"], row["value"], time) for row, time in zip(found.to_pylist(), times, strict=True)]


def peers(records: Any) -> list[tuple[Any, ...]]:
    found = []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(row.offset, row.key, row.value, -1 if row.timestamp is None else row.timestamp) for row in batch]
    return found


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=st.lists(ROWS, min_size=1, max_size=3),
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from(CODECS),
    batch_size=st.integers(0, 3000),
)
def test_whatever_is_written_is_read_by_all(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[Row]], magic: int, codec: str, batch_size: int
) -> None:
    folder = tmp_path_factory.mktemp("logs") / "events-0"
    config = LogConfig(
        message_format_version=VERSIONS[magic],
        compression_type=codec,
        batch_size=batch_size,
        index_interval_bytes=200,
        segment_bytes=3000,
    )
    # Opened for each run, so that what was written is recovered as well.
    for rows in runs:
        with sparklog.PartitionLog.open(folder, config, clock=lambda: NOW_MS, rng=lambda: 0) as log:
            log.append(table(rows, magic))
    wanted = [
        (offset, key, value, -1 if not magic else NOW_MS if time is None else time)
        for offset, (key, value, time) in enumerate(row for rows in runs for row in rows)
    ]
    assert ours(folder) == wanted
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    batches = decode_log(data)
    assert {(batch.magic, batch.codec) for batch in batches} == {(magic, config.codec)}
    assert [
        (record.offset, record.key, record.value, record.timestamp) for batch in batches for record in batch.records
    ] == wanted
    if (magic, codec) != (0, "lz4"):  # which the peers cannot read
        assert peers(aiokafka_records.MemoryRecords(data)) == wanted
        assert peers(kafka_records.MemoryRecords(data)) == wanted
    assert findings(folder) == []
    assert not (folder / "leader-epoch-checkpoint").exists()


def append(folder: Path, columns: dict[str, Any], properties: dict[str, str], **options: Any) -> None:
    with sparklog.PartitionLog.open(
        folder, LogConfig.from_properties(properties), clock=lambda: NOW_MS, rng=lambda: 0
    ) as log:
        log.append(pa.table(columns), **options)


VALUE = {"value": [b"v"]}
PRODUCER = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}


@pytest.mark.parametrize(
    ("version", "columns", "properties", "options", "message"),
    [
        ("0.10.2", VALUE, {"compression.type": "zstd"}, {}, "which has no codec zstd: compression.type must be gzip"),
        ("0.10.2", VALUE, {}, PRODUCER, "which has no producers and no transactions"),
        ("0.9.0", VALUE, {}, {**PRODUCER, "is_transactional": True}, "which has no producers and no transactions"),
        ("0.9.0", {**VALUE, "timestamp": [5]}, {}, {}, "which has no timestamps: 1 of 1 records would lose theirs"),
        ("0.9.0", VALUE, {"message.timestamp.type": "LogAppendTime"}, {}, "message.timestamp.type cannot be LogApp"),
        (
            "0.10.2",
            {**VALUE, "headers": pa.array([[{"key": "h", "value": b"x"}]], HEADERS_TYPE)},
            {},
            {},
            "row 0 has headers, and format 1 has no room for them",
        ),
    ],
)
def test_what_a_format_has_no_room_for_is_refused_by_name(
    tmp_path: Path, version: str, columns: Any, properties: dict[str, str], options: Any, message: str
) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        append(tmp_path / "events-0", columns, {**properties, "message.format.version": version}, **options)
    assert ours(tmp_path / "events-0") == []


def test_times_that_say_nothing_are_no_loss(tmp_path: Path) -> None:
    columns = {"value": [b"a", b"b"], "timestamp": pa.array([None, -1], pa.int64())}
    append(tmp_path / "events-0", columns, {"message.format.version": "0.9.0"})
    assert [row[3] for row in ours(tmp_path / "events-0")] == [-1, -1]


def test_time_of_the_append_is_that_of_all_records_of_format_1(tmp_path: Path) -> None:
    for codec in CODECS:
        properties = {"message.timestamp.type": "LogAppendTime", "compression.type": codec}
        columns = {"value": [b"a", b"b"], "timestamp": [5, 6]}
        append(tmp_path / f"{codec}-0", columns, {**properties, "message.format.version": "0.10.2"})
        assert [row[3] for row in ours(tmp_path / f"{codec}-0")] == [NOW_MS, NOW_MS]
        assert findings(tmp_path / f"{codec}-0") == []
