"""Jobs without Spark, for tests: rows are staged as tasks do it, and committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparklog.inspect.verify_segment import Severity
from sparklog.log.config import LogConfig
from sparklog.log.reader import open_log
from sparklog.storage.base import WritableStorage
from sparklog.storage.local_writing import LocalWritableStorage
from sparklog.topic.write.accumulator import RecordAccumulator, TaskAttempt
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.topic.write.target import find_target
from sparklog.topic.write.txn_versions import TxnVersion
from sparklog.write.running_jobs import begin, new_job
from sparklog.write.staged_files import StagedRun
from tests.jobs.verifying import findings_in
from tests.places import directory_at, location_of

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(compression_type="uncompressed", index_interval_bytes=100, batch_size=400)


def rows(values: Sequence[str], **columns: Sequence[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [each.encode() for each in values], **columns})


def stage(
    directory: Path,
    tasks: Sequence[pa.RecordBatch],
    *,
    topic: str = "events",
    partitions: int = 2,
    config: LogConfig = CONFIG,
    storage: WritableStorage | None = None,
    attempt: int = 0,
    is_transactional: bool = False,
    **fields: Any,
) -> tuple[CommitRequest, list[StagedRun]]:
    """Stage what each task writes, explicitly partitioned or not; the job, and what was staged."""
    storage = storage or LocalWritableStorage()
    target = find_target(location_of(directory, storage), topic, partitions, has_topic_column=False)
    job_id = fields.pop("job_id", None) or new_job(NOW_MS)
    begin(directory_at(directory, storage), job_id)
    staged: list[StagedRun] = []
    numbered: TxnVersion | None = fields.get("transaction")
    for number, batch in enumerate(tasks):
        task = TaskAttempt(target, config, "default", job_id, number, attempt, NOW_MS, is_transactional)
        accumulator = RecordAccumulator(replace(task, is_numbered=numbered is not None), clock=lambda: NOW_MS)
        accumulator.append(batch)
        staged += accumulator.finish()
        if numbered is not None:
            numbered = fields["transaction"] = replace(numbered, digest=numbered.digest + accumulator.digest)
    new = {topic: partitions} if target.is_new(topic) else {}
    return CommitRequest(job_id, directory_at(directory), config, new, lock_timeout_seconds=5.0, **fields), staged


def write(directory: Path, tasks: Sequence[pa.RecordBatch], **options: Any) -> Mapping[str, Any]:
    """Stage and commit."""
    job, staged = stage(directory, tasks, **options)
    return commit(job, staged, NOW_MS)


def values(directory: Path) -> dict[str, list[str]]:
    """Return the values of every partition, offsets checked to be dense."""
    found: dict[str, list[str]] = {}
    for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
        with open_log(str(folder)) as log:
            table = log.read(columns=["offset", "value"])
            assert table["offset"].to_pylist() == list(range(log.start_offset, log.end_offset))
        found[folder.name] = [value.decode() for value in table["value"].to_pylist()]
    return found


def findings(directory: Path) -> list[str]:
    """Return what a verification finds wrong."""
    return [str(each) for each in findings_in(directory) if each.severity != Severity.NOTE]
