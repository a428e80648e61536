"""Others read what an export writes: types, nulls, empty values, order, and folders as columns."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset
import pytest

from tests.build import Record, v2_batch, write_partition
from tests.jobs.tables import moved_to

TIMES = (1_700_000_000_000, 1_700_000_000_001, 1_700_003_600_000, 1_700_090_000_000)
VALUES = (b"text", None, b"", b"\xff\x00")
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = ((), (("a", b"1"), ("a", None)), (("", b""),), ())
RECORDS = [
    Record(at, TIMES[at], key=None if at == 2 else b"k%d" % at, value=VALUES[at], headers=HEADERS[at])
    for at in range(4)
]

Rows = list[tuple[Any, ...]]
"""Topic, partition, offset, key, value, time in ms and headers of each record, in the order in which they are read."""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return write_logs(tmp_path / "logs")


def write_logs(folder: Path) -> Path:
    """Write records with all that readers differ about."""
    for name in ("events-0", "events-1", "_odd.topic-10"):
        write_partition(folder / name, [v2_batch(RECORDS)])
    return folder


def expected() -> Rows:
    return [
        (topic, partition, at, record.key, record.value, TIMES[at], [tuple(header) for header in record.headers])
        for topic, partition in (("_odd.topic", 10), ("events", 0), ("events", 1))
        for at, record in enumerate(RECORDS)
    ]


def row(found: dict[str, Any]) -> tuple[Any, ...]:
    headers = [(each["key"], as_bytes(each["value"])) for each in headers_of(found)]
    time = found["timestamp"]
    time_ms = round(time.timestamp() * 1000) if isinstance(time, datetime.datetime) else int(time)
    place = (found["topic"], int(found["partition"]), found["offset"])
    return (*place, as_bytes(found["key"]), as_bytes(found["value"]), time_ms, headers)


def headers_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    headers = none_if_null(found["headers"])
    return [] if headers is None else list(headers)


def none_if_null(value: Any) -> Any:
    return None if value is None or value is pd.NA or (isinstance(value, float) and value != value) else value


def as_bytes(value: Any) -> bytes | None:
    return None if none_if_null(value) is None else bytes(value)


def read_with_duckdb(table: Path) -> Rows:
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        found = connection.execute(
            f'select topic, partition, "offset", key, value, epoch_ms(timestamp) as timestamp, headers '
            f"from read_parquet('{table}/topic=*/**/*.parquet', hive_partitioning = true)"
        )
        names = [column[0] for column in found.description or ()]
        return [row(dict(zip(names, each, strict=True))) for each in found.fetchall()]


def read_with_polars(table: Path) -> Rows:
    found = pl.read_parquet(f"{table}/topic=*/**/*.parquet", hive_partitioning=True)
    return [row(each) for each in found.to_dicts()]


def read_with_pandas(table: Path) -> Rows:
    return [row(each) for each in pd.read_parquet(table).to_dict("records")]


def read_with_pyarrow(table: Path) -> Rows:
    found = pyarrow.dataset.dataset(table, partitioning="hive").to_table()
    return [row(each) for each in found.to_pylist()]


@pytest.mark.parametrize("reader", [read_with_duckdb, read_with_polars, read_with_pandas, read_with_pyarrow])
@pytest.mark.parametrize("by", [["topic", "partition"], ["topic", "partition", "date", "hour"]])
def test_readers_of_parquet(tmp_path: Path, logs: Path, reader: Callable[[Path], Rows], by: list[str]) -> None:
    moved_to(tmp_path / "out", source=logs, topics=["events", "_odd.topic"], partition_by=by)
    assert reader(tmp_path / "out") == expected()


def test_duckdb_reads_text(tmp_path: Path, logs: Path) -> None:
    moved_to(tmp_path / "out", source=logs, topics="events", format="csv", value_format="hex", key_format="hex")
    moved_to(tmp_path / "lines", source=logs, topics="events", format="jsonl")
    with duckdb.connect() as connection:
        found = connection.execute(
            f'select "offset", key, value from read_csv('
            f"'{tmp_path}/out/topic=*/partition=0/*.csv', all_varchar = true, allow_quoted_nulls = false)"
        ).fetchall()
        lines = connection.execute(
            f"select value, value_base64, len(headers) from read_json('{tmp_path}/lines/topic=*/partition=0/*.jsonl')"
        ).fetchall()
    texts = ["74657874", None, "", "ff00"]
    assert found == [(str(at), None if at == 2 else f"k{at}".encode().hex(), texts[at]) for at in range(4)]
    assert lines == [("text", None, 0), (None, None, 2), ("", None, 1), (None, "/wA=", 0)]
