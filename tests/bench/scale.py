"""What grows with many small things: ``python -m tests.bench.scale [PART ...]``.

Each part is measured at three sizes, each with four times the work of the one before. The last column says by what the
time grew, which is 4 where the cost grows with the work; of commits it is the time of the processor, since a disk that
others use as well tells less. For scale: what the disk takes, in the same run, for the same files and nothing else.

    commit   a record to each of many partitions, into an empty directory and into the logs that are there by then
    tasks    many tasks that write to many partitions each, beside the same rows with a task for some partitions
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from sparklog.log.config import LogConfig
from sparklog.topic.write.accumulator import RecordAccumulator, TaskAttempt
from sparklog.topic.write.commit import CommitRequest, commit
from sparklog.topic.write.target import find_target
from sparklog.write.running_jobs import begin, new_job
from sparklog.write.staged_files import StagedRun
from tests.places import directory_at, location_of

NOW_MS = 1_700_000_000_000
COMMITTED = (1_000, 4_000, 16_000)
TASKS = ((25, 100), (50, 200), (100, 400))
ROWS_PER_RUN = 10
SYNCS_AT_ONCE = 16


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    given = arguments.parse_args().parts
    if not PARTS.keys() >= set(given):
        arguments.error(f"the parts are {', '.join(PARTS)}")
    for name in given or PARTS:
        with scratch() as folder:
            Console(width=100).print(PARTS[name](folder))


def measure_commits(folder: Path) -> Table:
    """Commit a record to each of many partitions, twice."""
    table = table_of("A commit of a record to each partition", "s", "s of bare files", "ratio", "CPU ms each", "growth")
    before: dict[str, float] = {}
    for partitions in COMMITTED:
        bare = bare_files(folder / f"bare-{partitions}", partitions)
        for turn in ("first", "later"):
            job, staged = stage(folder / str(partitions), partitions, [np.arange(partitions)])
            before_cpu = time.process_time()
            seconds = timed(partial(commit, job, staged, NOW_MS))
            cpu = time.process_time() - before_cpu
            table.add_row(
                f"{partitions:,} partitions, {turn}",
                f"{seconds:.2f}",
                f"{bare:.2f}",
                f"{seconds / bare:.2f}",
                f"{cpu / partitions * 1e3:.2f}",
                grown(before, turn, cpu),
            )
        shutil.rmtree(folder / str(partitions))
    return table


def measure_tasks(folder: Path) -> Table:
    """Write the same rows by tasks that each have some of all partitions, and by tasks that have all of some."""
    table = table_of(
        "Tasks that write ten rows to each partition", "s", "files a task", "s together", "ratio", "growth"
    )
    before: dict[str, float] = {}
    for tasks, partitions in TASKS:
        each = np.repeat(np.arange(partitions), ROWS_PER_RUN)
        apart = [each] * tasks
        together = [np.repeat(share, ROWS_PER_RUN * tasks) for share in np.array_split(np.arange(partitions), tasks)]
        seconds, files = written(folder / f"apart-{tasks}", partitions, apart)
        at_best, _ = written(folder / f"together-{tasks}", partitions, together)
        table.add_row(
            f"{tasks} tasks x {partitions} partitions",
            f"{seconds:.2f}",
            f"{files / tasks:.1f}",
            f"{at_best:.2f}",
            f"{seconds / at_best:.2f}",
            grown(before, "tasks", seconds),
        )
    return table


PARTS: dict[str, Callable[[Path], Table]] = {"commit": measure_commits, "tasks": measure_tasks}


def table_of(title: str, *columns: str) -> Table:
    table = Table(title=title)
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    return table


def grown(before: dict[str, float], name: str, seconds: float) -> str:
    """Return by what the time of a measurement grew since its last size, and keep it."""
    was, before[name] = before.get(name), seconds
    return "" if was is None else f"x {seconds / was:.1f}"


def written(directory: Path, partitions: int, tasks: list[np.ndarray]) -> tuple[float, int]:
    """Stage and commit; return the seconds that it took, and how many files were staged."""
    files = 0

    def run() -> None:
        nonlocal files
        job, staged = stage(directory, partitions, tasks)
        files = sum(1 for path in directory.iterdir() if path.name.endswith(".staged")) - 1
        commit(job, staged, NOW_MS)

    return timed(run), files


def stage(directory: Path, partitions: int, tasks: list[np.ndarray]) -> tuple[CommitRequest, list[StagedRun]]:
    """Stage rows of 100 bytes; each task is the partitions of its rows."""
    target = find_target(location_of(directory), "events", partitions, has_topic_column=False)
    job_id, config = new_job(NOW_MS), LogConfig()
    begin(target.directory, job_id)
    staged: list[StagedRun] = []
    for number, of_rows in enumerate(tasks):
        rows = pa.record_batch({"value": [b"x" * 100] * len(of_rows), "partition": pa.array(of_rows, pa.int32())})
        task = TaskAttempt(target, config, "default", job_id, number, 0, NOW_MS)
        with RecordAccumulator(task, lambda: NOW_MS) as accumulator:
            accumulator.append(rows)
            staged += accumulator.finish()
    new = {"events": partitions} if target.is_new("events") else {}
    return CommitRequest(job_id, directory_at(directory), config, new), staged


def bare_files(directory: Path, partitions: int) -> float:
    """Make, write and sync the files of as many new partitions, and nothing else; return the seconds that it took."""
    paths = [
        directory / f"events-{n}" / name
        for n in range(partitions)
        for name in ("log", "index", "timeindex", "snapshot", "epochs")
    ]

    def run() -> None:
        for n in range(partitions):
            (directory / f"events-{n}").mkdir(parents=True)
        for path in paths:
            path.write_bytes(b"" if path.name == "index" else b"x" * 100)
        folders = [path.parent for path in paths[::5]]
        with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:
            list(pool.map(sync, [path for path in paths if path.name != "index"], chunksize=64))
            list(pool.map(sync, [*folders, directory], chunksize=64))

    seconds = timed(run)
    shutil.rmtree(directory)
    return seconds


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


@contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="scale-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
