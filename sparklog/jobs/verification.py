"""`sparklog.verify`: verifies logs and log directories, many partitions at a time, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sparklog.errors import InvalidOptionError
from sparklog.inspect.absent import verify_absent, verify_absent_beside
from sparklog.inspect.verify import logs_in, verify_directory, verify_partitions
from sparklog.inspect.verify_log import Event
from sparklog.inspect.verify_segment import Finding, VerifyProgress
from sparklog.jobs.across.faults import verify_across
from sparklog.jobs.clean.keys import Keys, read_keys
from sparklog.jobs.named_logs import LogsTask, NamedLogs, logs_at, tasks_of_logs
from sparklog.jobs.run.job import Amount, Report, Watch, found_by
from sparklog.jobs.run.local import runner_of
from sparklog.log.places import LogDirectory
from sparklog.record.rewrite.matching import KeySet
from sparklog.storage.given_options import with_storage_options
from sparklog.storage.registry import PathText, paths_of


def verify(
    path: PathText | Sequence[PathText],
    *,
    absent: Keys | None = None,
    deep: bool = False,
    processes: int | None = None,
    spark: Any = None,
    watch: Watch | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[Finding]:
    """Check everything in logs: checksums, records, offsets, indexes, epochs, snapshots, checkpoints and names.

    Nothing is changed, and damage is a finding, not an error. A broker may write to the logs meanwhile.

    Parameters
    ----------
    path : str, os.PathLike, or several
        Log directories, topics' paths (``/logs/events``), or partitions' folders.
    absent : str, os.PathLike, or keys, optional
        Keys, given like ``erase`` of `clean`: a record with such a key in any file is an error as well.
    deep : bool
        Whether to compare files with each other, too: the log directories, their checkpoints, and the metadata of the
        cluster if they are there. All paths must be log directories.
    processes : int, optional
        The number of processes on this machine; by default as many as the work is worth.
    spark : SparkSession, optional
        Runs the work on its cluster instead.
    watch : Watch, optional
        Receives the progress of the work.
    storage_options : mapping of str to str, optional
        The options of paths that are URLs, such as ``endpoint``; see `sparklog.place`.

    Yields
    ------
    Finding
        Each has ``severity``, ``code``, ``path``, ``position``, ``offset`` and ``message``, and for its code a
        ``fault``, the possible cause, and a ``command`` that mends it. Findings come path by path, and within a
        path in the order of its partitions; faults across files come last.

    Raises
    ------
    PathNotFoundError
        The path does not exist, or has no log.
    InvalidOptionError
        An argument is wrong.
    """
    runner = runner_of(processes, spark)
    with with_storage_options(storage_options):
        targets = tuple(logs_at(each) for each in paths_of(path))
        keys = None if absent is None else read_keys(absent)
    job = VerifyJob(targets, keys, runner.workers, is_deep=deep)
    return found_by(job, runner, watch)


@dataclass(frozen=True)
class AcrossTask:
    """A task that compares the files of log directories with each other."""

    directories: tuple[LogDirectory, ...]
    name: str = "across files"
    size_bytes: int = 0
    follows: int | None = None


@dataclass(frozen=True)
class VerifyJob:
    """Verifies the logs that some paths name.

    Attributes
    ----------
    absent : KeySet or None
        Keys whose records no file may hold.
    workers : int
        The number of tasks that run at a time, about.
    is_deep : bool
        Whether the files of the log directories are compared with each other.
    """

    targets: tuple[NamedLogs, ...]
    absent: KeySet | None = None
    workers: int = 1
    is_deep: bool = False

    # Python does much of the work, so threads would wait for each other.
    threads_bytes_max = 0

    def plan(self) -> list[LogsTask | AcrossTask]:
        """Return the tasks; raise `InvalidOptionError` if files are to be compared and a path is no log directory."""
        across = [self._across()] if self.is_deep else []
        return [*(task for target in self.targets for task in self._tasks(target)), *across]

    def _across(self) -> AcrossTask:
        for target in self.targets:
            if not target.is_directory:
                raise InvalidOptionError(
                    f"--deep, deep=True, compares the files of log directories, and {target.path} names some logs of "
                    f"one: name the log directory"
                )
        return AcrossTask(tuple({target.path: target.directory for target in self.targets}.values()))

    def _tasks(self, target: NamedLogs) -> Iterator[LogsTask]:
        directory = target.directory if target.is_directory else None
        if directory is not None:
            yield LogsTask(directory.path, directory=directory)
        yield from tasks_of_logs(logs_in(directory) if directory else target.folders, self.workers, directory)
        if self.absent is not None:
            yield from tasks_of_logs(target.folders, self.workers, directory, is_search=True)
            if directory is not None:
                yield LogsTask(directory.path, directory=directory, is_search=True)

    def run(self, task: LogsTask | AcrossTask, report: Report) -> Iterator[Finding]:
        events = verify_across(task.directories) if isinstance(task, AcrossTask) else self._events(task)
        for event in events:
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
