"""Commands, jobs and streams over directories of many partitions, for `tests.bench.large`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import sparklog
from tests import terminal
from tests.bench.large_logs import PER_TOPIC, RECORDS, new_folder, new_logs, partitions_of, shared_logs
from tests.bench.large_meter import USUAL_FILES, Meter, check, file_limit
from tests.bench.large_streams import follow
from tests.bench.stream import append

_GROUP: Final = "bench"
_ADDED: Final = 10
"""How many records `tests.bench.stream.append` adds to a log."""


def command(*arguments: Any) -> str:
    """Run a command in this process, which must succeed; return its output."""
    ended = terminal.run(*arguments)
    if ended.exit_code != 0:
        raise ValueError(f"{arguments[0]} exits with {ended.exit_code}: {ended.output[-500:]}") from ended.exception
    return ended.stdout


def load(meter: Meter, place: Path, size: int) -> None:
    """Load records into new partitions."""
    at = partitions_of(size)
    rows = pa.table(
        {
            "topic": [topic for topic, _ in at for _ in range(RECORDS)],
            "partition": [partition for _, partition in at for _ in range(RECORDS)],
            "value": [b"x" * 100] * (size * RECORDS),
        }
    )
    with new_folder(place) as folder:
        pq.write_table(rows, folder / "rows.parquet")
        with meter(f"load of {RECORDS} rows each", size, "partition"):
            sparklog.load(folder / "rows.parquet", folder / "logs", num_partitions=PER_TOPIC)


def read(meter: Meter, place: Path, size: int) -> None:
    """Read all partitions in Python."""
    logs = shared_logs(place, size)
    with meter("open_topic and read", size, "partition"), sparklog.open_topic(logs) as topics:
        rows = topics.read(columns="offset").num_rows
    check(rows, RECORDS * size)


def look(meter: Meter, place: Path, size: int) -> None:
    """Run the commands that change nothing."""
    logs = shared_logs(place, size)
    for name, *arguments in (
        ("describe",),
        ("describe", "--json"),
        ("verify",),
        ("recover", "--dry-run"),
        ("clean", "--dry-run", "--retention-ms", "1"),
    ):
        with meter(" ".join((name, *arguments)), size, "partition"):
            command(name, logs, *arguments)


def commit(meter: Meter, place: Path, size: int) -> None:
    """Commit offsets of a group in all partitions, and ask for its lag."""
    with new_logs(place, size) as logs:
        with (
            sparklog.Consumer(logs, group_id=_GROUP, enable_auto_commit=False) as consumer,
            meter("commit of a group in all", size, "partition"),
        ):
            consumer.commit(dict.fromkeys(partitions_of(size), RECORDS // 2))
        with meter("groups --lag", size, "partition"):
            command("groups", logs, "--lag")


def clean_with_few_files(meter: Meter, place: Path, size: int) -> None:
    """Remove all records."""
    with file_limit(USUAL_FILES), new_logs(place, size) as logs:
        with meter(f"clean --retention-ms 1, ulimit -n {USUAL_FILES}", size, "partition"):
            command("clean", logs, "--retention-ms", "1")
        check(sparklog.open_topic(logs).read(columns="offset").num_rows, 0)


def export(meter: Meter, place: Path, size: int) -> None:
    """Export all partitions, and then nothing new."""
    logs = shared_logs(place, size)
    with new_folder(place) as folder:
        for name in ("export", "export, nothing new"):
            with meter(name, size, "partition"):
                sparklog.export(logs, folder / "table")


def copy(meter: Meter, place: Path, size: int) -> None:
    """Copy all partitions, and then nothing new."""
    logs = shared_logs(place, size)
    with new_folder(place) as folder:
        for name in ("copy", "copy, nothing new"):
            with meter(name, size, "partition"):
                sparklog.copy(logs, folder / "logs")


def stream(meter: Meter, place: Path, size: int) -> None:
    """Follow all partitions with a stream."""
    with new_logs(place, size) as logs:

        def add(times: int) -> None:
            for topic, partition in partitions_of(size):
                append(logs / f"{topic}-{partition}", RECORDS + times * _ADDED)

        follow(meter, logs, size, "partition", add, f"{_ADDED} new in each")
