"""Copies for tests: jobs over log directories on this machine, and what they must leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparklog.jobs.copy.job import CopyJob
from sparklog.jobs.copy.plan import CopySource
from sparklog.jobs.ledger import Moved, commits
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.run.options import LogJobOptions
from sparklog.jobs.source import LogSource
from sparklog.log.config import LogConfig
from sparklog.log.files import JOBS_LEDGER, TRANSACTION_INDEX
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.producer_snapshots import snapshots_of
from sparklog.log.producer_state import AbortedTransaction, Producers, encode_aborted
from sparklog.log.reader import IsolationLevel, open_log
from sparklog.log.windows import Window
from sparklog.storage.base import Storage
from sparklog.topic.selection import Selection
from sparklog.write.running_jobs import new_job
from tests.places import LOCAL, folder_at, location_of
from tests.topic.staged import NOW_MS

CONFIG = LogConfig()
FIELDS = ["timestamp", "timestampType", "key", "value", "headers"]


def source(
    path: Path,
    isolation_level: IsolationLevel = "read_uncommitted",
    renames: Mapping[str, str] | None = None,
    **fields: Any,
) -> CopySource:
    return CopySource(
        LogSource((str(path),), Selection(isolation_level=isolation_level, **fields)), tuple((renames or {}).items())
    )


def copy_job(target: Path, *sources: CopySource, storage: Storage = LOCAL, **fields: Any) -> CopyJob:
    job = {
        "config": CONFIG,
        "run_id": new_job(NOW_MS),
        "now_ms": NOW_MS,
        "options": LogJobOptions(lock_timeout_seconds=5.0),
        **fields,
    }
    return CopyJob(location_of(target, storage), sources, **job)


def copy(target: Path, *sources: CopySource, **fields: Any) -> None:
    """Copy in this process."""
    run_job(copy_job(target, *sources, **fields), LocalRunner(1))


def records(
    folder: Path, isolation_level: IsolationLevel = "read_uncommitted", columns: Sequence[str] = FIELDS
) -> list[tuple[Any, ...]]:
    """Return the records of a log, each as a tuple of the columns."""
    with open_log(str(folder)) as log:
        table = log.read(columns=list(columns), isolation_level=isolation_level)
    # As numbers, since there are times that no calendar of Python has.
    values = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in table.columns
    ]
    return list(zip(*values, strict=True))


def moved(target: Path) -> list[Moved]:
    """Return the lines of the ledger of a target, but for commits."""
    found = commits(LOCAL, str(target / JOBS_LEDGER))
    return [entry for each in found for entry in each.entries if isinstance(entry, Moved)]


def refuse_wrong_state(folder: Path) -> None:
    """Fail unless snapshots and transaction indexes are what the batches come to, by the rules of a broker."""
    layout = read_layout(folder_at(folder))
    snapshots = snapshots_of(folder_at(folder))
    assert not layout.segments or layout.end_offset == 0 or snapshots[0][0] == layout.end_offset
    for offset, path in snapshots:
        assert _producers_at(layout, offset).encode() == Path(path).read_bytes(), path
    producers = Producers()
    for segment in layout.segments:
        aborted: list[AbortedTransaction] = []
        with segment.open() as log:
            for window in log.windows(log.start):
                aborted += producers.fold(window)
        index = Path(segment.path(TRANSACTION_INDEX))
        assert encode_aborted(aborted) == (index.read_bytes() if index.exists() else b""), str(index)


def _producers_at(layout: PartitionLayout, offset: int) -> Producers:
    producers = Producers()
    for segment in layout.segments:
        with segment.open() as log:
            for window in log.windows(log.start):
                is_before = window.headers.column("last_offset") < offset
                producers.fold(Window(window.buffer, window.headers.where(is_before)))
    return producers
