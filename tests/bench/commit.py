"""What a commit itself costs, by what is already in the log: ``python -m tests.bench.commit``.

A quarter of a GiB is staged, not timed, and committed, timed: stamped, synced, journalled, put in place. That is done
again and again on the same partition, whose log grows, so that the last line shows what the first did if a commit does
not care how long the log is. For scale: the time of syncing a plain file of the same size.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from sparklog.log.config import LogConfig
from sparklog.record.encode.batches import BatchSettings, encode_batches
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.write.running_jobs import begin, new_job
from sparklog.write.staging import TaskStage
from tests.places import directory_at

RUN_ROWS = 500_000
RUNS = 4
COMMITS = 8
NOW_MS = 1_700_000_000_000


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="commit-"))
    try:
        measure(folder)
    finally:
        shutil.rmtree(folder)


def measure(directory: Path) -> None:
    config = LogConfig(compression_type="uncompressed")
    rows = pa.record_batch({"value": [b"x" * 100] * RUN_ROWS, "timestamp": pa.array([NOW_MS] * RUN_ROWS)})
    settings = BatchSettings(codec="none")
    table = Table(title="A commit, by what is already in the log")
    for title in ("in the log", "committed", "s a GiB", "ms a 1,000 batches", "of syncing as much"):
        table.add_column(title, justify="right")
    for turn in range(COMMITS):
        job_id = new_job(NOW_MS)
        stage = TaskStage(directory_at(directory), job_id, 0, 0, config)
        begin(directory_at(directory), job_id)
        for _ in range(RUNS):
            encoded = encode_batches(rows, settings, stage.end_offset("events-0"))
            stage.append(encoded, ["events-0"], [len(encoded.headers)], NOW_MS)
        staged = stage.finish()
        size_bytes, batches = sum(each.size_bytes for each in staged), sum(each.batches for each in staged)
        plain = synced(directory.parent / f"{directory.name}.plain", size_bytes)
        started = time.perf_counter()
        commit(CommitRequest(job_id, directory_at(directory), config, {}), staged, NOW_MS)
        took = time.perf_counter() - started
        table.add_row(
            f"{turn * size_bytes / 2**30:.2f} GiB",
            f"{size_bytes / 2**30:.2f} GiB",
            f"{took / size_bytes * 2**30:.2f}",
            f"{took / batches * 1e6:.0f}",
            f"{took / plain:.2f}",
        )
    Console(width=100).print(table)


def synced(path: Path, size_bytes: int) -> float:
    """Write a plain file and return how long it took to sync it."""
    piece = os.urandom(1 << 20)
    with path.open("wb") as file:
        for _ in range(size_bytes >> 20):
            file.write(piece)
        file.flush()
        started = time.perf_counter()
        os.fsync(file.fileno())
    path.unlink()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
