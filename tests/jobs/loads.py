"""Loads for tests: files of rows, jobs that load them, and what the logs hold then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import sparklog
from sparklog.jobs.load.job import LoadJob, LoadSummary
from sparklog.jobs.load.mapping import ColumnRoles
from sparklog.jobs.load.row_files import Csv
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.run.options import JobOptions
from sparklog.log.config import LogConfig
from sparklog.storage.base import WritableStorage
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.topic.places.discovery import places_at
from sparklog.topic.write.target import find_target
from sparklog.write.running_jobs import new_job
from tests.places import location_of
from tests.topic.staged import NOW_MS

CONFIG = LogConfig(compression_type="uncompressed", batch_size=400)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def write_parquet(path: Path, table: pa.Table, **options: Any) -> None:
    pq.write_table(table, path, **options)


def write_arrow(path: Path, table: pa.Table) -> None:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write(table)


def write_stream(path: Path, table: pa.Table) -> None:
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write(table)


def strings(values: Sequence[str], **columns: Any) -> pa.Table:
    return pa.table({"value": values, **columns})


def load_job(
    sources: Sequence[Path],
    directory: Path,
    storage: WritableStorage | None = None,
    *,
    topic: str | None = "events",
    partitions: int = 2,
    config: LogConfig = CONFIG,
    again: bool = False,
    workers: int = 2,
    columns: ColumnRoles | None = None,
    job_id: str | None = None,
    syncs_tasks: bool = True,
) -> LoadJob:
    """Return a job that loads files into a topic of a directory, which may be in a double of storage."""
    target = find_target(
        location_of(directory, storage or LocalWritableStorage()), topic, partitions, has_topic_column=topic is None
    )
    return LoadJob(
        sources=places_at(sources),
        format=None,
        target=target,
        config=config,
        partitioner="default",
        columns=columns or ColumnRoles(topic="topic" if topic is None else None),
        csv=Csv(),
        job_id=job_id or new_job(NOW_MS),
        now_ms=NOW_MS,
        workers=workers,
        again=again,
        options=JobOptions(lock_timeout_seconds=5.0),
        syncs_tasks=syncs_tasks,
    )


def run(job: LoadJob, processes: int = 1) -> LoadSummary:
    run_job(job, LocalRunner(processes))
    return job.outcome.summary


def records(folder: Path, *columns: str) -> list[dict[str, Any]]:
    """Return the records of a partition, in the order of their offsets."""
    with sparklog.open_log(folder) as log:
        found: list[dict[str, Any]] = log.read(columns=list(columns or ("key", "value", "headers"))).to_pylist()
        return found


def values(folder: Path) -> list[bytes | None]:
    return [each["value"] for each in records(folder, "value")]


def leftovers(directory: Path) -> list[str]:
    """Return the names of files that a job has staged, and nobody has removed."""
    return sorted(path.name for path in directory.iterdir() if path.name.endswith((".staged", ".tmp")))
