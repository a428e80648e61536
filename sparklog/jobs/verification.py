"""`sparklog.verify`: verifies logs and log directories, many partitions at a time, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sparklog.inspect.absent import verify_absent, verify_absent_beside
from sparklog.inspect.verify import logs_in, verify_directory, verify_partitions
from sparklog.inspect.verify_log import Event
from sparklog.inspect.verify_segment import Finding, VerifyProgress
from sparklog.jobs.clean.keys import Keys, read_keys
from sparklog.jobs.named_logs import LogsTask, NamedLogs, logs_at, tasks_of_logs
from sparklog.jobs.run.job import Amount, Report, Watch, found_by
from sparklog.jobs.run.local import runner_of
from sparklog.record.rewrite.matching import KeySet
from sparklog.storage.registry import PathText, paths_of


def verify(
    path: PathText | Sequence[PathText],
    *,
    absent: Keys | None = None,
    processes: int | None = None,
    spark: Any = None,
    watch: Watch | None = None,
) -> Iterator[Finding]:
    """Check everything in logs: checksums, records, offsets, indexes, epochs, snapshots, checkpoints and names.

    Nothing is changed, and damage is a finding, not an error. A broker may write to the logs meanwhile.

    Parameters
    ----------
    path : str, os.PathLike, or several
        Log directories, topics' paths (``/logs/events``), or partitions' folders.
    absent : str, os.PathLike, or keys, optional
        Keys, given like ``erase`` of `clean`: a record with such a key in any file is an error as well.
    processes : int, optional
        The number of processes on this machine; by default as many as the work is worth.
    spark : SparkSession, optional
        Runs the work on its cluster instead.
    watch : Watch, optional
        Receives the progress of the work.

    Yields
    ------
    Finding
        Each has ``severity``, ``code``, ``path``, ``position``, ``offset`` and ``message``. Findings come path by path,
        and within a path in the order of its partitions.

    Raises
    ------
    PathNotFoundError
        The path does not exist, or has no log.
    InvalidOptionError
        An argument is wrong.
    """
    runner = runner_of(processes, spark)
    targets = tuple(logs_at(each) for each in paths_of(path))
    return found_by(VerifyJob(targets, None if absent is None else read_keys(absent), runner.workers), runner, watch)


@dataclass(frozen=True)
class VerifyJob:
    """Verifies the logs that some paths name.

    Attributes
    ----------
    absent : KeySet or None
        Keys whose records no file may hold.
    workers : int
        The number of tasks that run at a time, about.
    """

    targets: tuple[NamedLogs, ...]
    absent: KeySet | None = None
    workers: int = 1

    # Python does much of the work, so threads would wait for each other.
    threads_bytes_max = 0

    def plan(self) -> list[LogsTask]:
        return [task for target in self.targets for task in self._tasks(target)]

    def _tasks(self, target: NamedLogs) -> Iterator[LogsTask]:
        directory = target.directory if target.is_directory else None
        if directory is not None:
            yield LogsTask(directory.path, directory=directory)
        yield from tasks_of_logs(logs_in(directory) if directory else target.folders, self.workers, directory)
        if self.absent is not None:
            yield from tasks_of_logs(target.folders, self.workers, directory, is_search=True)
            if directory is not None:
                yield LogsTask(directory.path, directory=directory, is_search=True)

    def run(self, task: LogsTask, report: Report) -> Iterator[Finding]:
        for event in self._events(task):
            if isinstance(event, VerifyProgress):
                report(Amount(event.checked_bytes))
            else:
                yield event

    def _events(self, task: LogsTask) -> Iterator[Event]:
        directory, keys = task.directory, self.absent if task.is_search else None
        if directory is not None and not task.folders:
            return verify_directory(directory) if keys is None else verify_absent_beside(keys, directory)
        if keys is None:
            return verify_partitions(task.folders, directory)
        return chain.from_iterable(verify_absent(keys, each, looks_aside=directory is None) for each in task.folders)
