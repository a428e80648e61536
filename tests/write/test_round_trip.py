"""What is written is what is read, by us and by the decoders that others wrote: rows of every shape."""

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
from sparklog.log.config import LogConfig
from sparklog.record.format.schema import HEADERS_TYPE

NOW_MS = 1_700_000_000_000
BYTES = st.none() | st.binary(max_size=60)
ROWS = st.lists(
    st.tuples(
        BYTES,
        BYTES,
        st.none() | st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=4),
        st.none() | st.integers(0, NOW_MS + 3_600_000),
    ),
    min_size=1,
    max_size=60,
)
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None]


def table(rows: list[Row]) -> pa.Table:
    headers = [
        None if each is None else [{"key": key, "value": value} for key, value in each] for _, _, each, _ in rows
    ]
    return pa.table(
        {
            "key": pa.array([row[0] for row in rows], pa.binary()),
            "value": pa.array([row[1] for row in rows], pa.binary()),
            "headers": pa.array(headers, HEADERS_TYPE),
            "timestamp": pa.array([row[3] for row in rows], pa.int64()),
        }
    )


def plain(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Return the records that rows become: without headers there is no list of them, without a time it is now."""
    return [(key, value, list(headers or []), NOW_MS if ms is None else ms) for key, value, headers, ms in rows]


def ours(folder: Path) -> list[tuple[Any, ...]]:
    with sparklog.open_log(str(folder)) as log:
        found = log.read(columns=["key", "value", "headers", "timestamp"])
    times = found["timestamp"].cast(pa.int64()).to_pylist()
    return [
        (row["key"], row["value"], [(each["key"], each["value"]) for each in row["headers"] or []], ms)
        for row, ms in zip(found.to_pylist(), times, strict=True)
    ]


def peers(records: Any) -> list[tuple[Any, ...]]:
    found = []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(row.key, row.value, list(row.headers), row.timestamp) for row in batch]
    return found


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=st.lists(ROWS, min_size=1, max_size=3), codec=st.sampled_from(CODECS), batch_size=st.integers(0, 3000))
def test_whatever_is_written_is_read_by_all(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[Row]], codec: str, batch_size: int
) -> None:
    folder = tmp_path_factory.mktemp("logs") / "events-0"
    config = LogConfig(compression_type=codec, batch_size=batch_size)
    with sparklog.PartitionLog.open(folder, config, clock=lambda: NOW_MS) as log:
        for rows in runs:
            log.append(table(rows))
    wanted = plain([row for rows in runs for row in rows])
    assert ours(folder) == wanted
    # Times that are far apart are in segments of their own.
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    assert peers(kafka_records.MemoryRecords(data)) == wanted
    assert peers(aiokafka_records.MemoryRecords(data)) == wanted
