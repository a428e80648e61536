"""`sparklog.diff`: compares the logs of several directories, many partitions at a time, and changes nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from sparklog.errors import InvalidOptionError
from sparklog.inspect.diff import COPIES_MAX, Compared, DiffRow, diff_copies
from sparklog.jobs.named_logs import NamedLogs, bytes_of_log, logs_at
from sparklog.jobs.run.job import Amount, PiecesTask, Report, Watch, found_by
from sparklog.jobs.run.local import runner_of
from sparklog.jobs.run.shares import task_slices
from sparklog.log.places import PartitionFolder
from sparklog.storage.given_options import with_storage_options
from sparklog.storage.registry import PathText

_TASK_BYTES: Final = 1 << 28


def diff(
    *paths: PathText,
    processes: int | None = None,
    spark: Any = None,
    watch: Watch | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[DiffRow]:
    """Compare the logs of several log directories by their offsets and bytes, and say where they differ.

    Nothing is changed, and damage in a copy is a row, not an error. Batches are compared whole and not decoded: copies
    that were compressed or compacted differently are divergent. Equal bytes are not checked: `sparklog.verify` does.

    Parameters
    ----------
    *paths : str or os.PathLike
        Two or more log directories, such as the brokers' that hold the replicas; or in each the path of a topic or the
        folder of a partition, which may have different names.
    processes : int, optional
        The number of processes on this machine; by default as many as the work is worth.
    spark : SparkSession, optional
        Runs the work on its cluster instead.
    watch : Watch, optional
        Receives the progress of the work.

    Yields
    ------
    DiffRow
        Each has ``topic``, ``partition``, ``start_offset``, ``end_offset``, ``kind``, ``copies`` and ``reason``. Rows
        come partition by partition; ranges are in the order of offsets, equal ones included. Two directories are equal
        if all rows are ``equal``.

    Raises
    ------
    PathNotFoundError
        A path does not exist, or has no log.
    InvalidOptionError
        Fewer than two paths, or more than 26, or two paths to the same logs.
    """
    runner = runner_of(processes, spark)
    with with_storage_options(storage_options):
        targets = tuple(logs_at(path) for path in paths)
    return found_by(DiffJob(targets, runner.workers), runner, watch)


@dataclass(frozen=True)
class CopiesOfLog:
    """The copies of one partition's log.

    Attributes
    ----------
    folders : tuple of (PartitionFolder or None)
        The folder in each directory; None where there is none.
    log_bytes : int
        The bytes of all of their segments.
    """

    name: str
    folders: tuple[PartitionFolder | None, ...]
    log_bytes: int


@dataclass(frozen=True)
class DiffJob:
    """Compares the logs that some paths name; about ``workers`` tasks run at a time."""

    targets: tuple[NamedLogs, ...]
    workers: int = 1

    # Python does much of the work, so threads would wait for each other.
    threads_bytes_max = 0

    def __post_init__(self) -> None:
        if not 2 <= len(self.targets) <= COPIES_MAX:
            raise InvalidOptionError(f"2 to {COPIES_MAX} paths can be compared, and {len(self.targets)} are given")
        for one, other in combinations(self.targets, 2):
            if one.location == other.location or _identity(one) == _identity(other) is not None:
                raise InvalidOptionError(f"{one.path} and {other.path} are the same: name different directories")

    def plan(self) -> list[PiecesTask[CopiesOfLog]]:
        by_key: dict[Hashable, list[PartitionFolder | None]] = {}
        for number, target in enumerate(self.targets):
            for folder in target.folders:
                by_key.setdefault(self._key(folder), [None] * len(self.targets))[number] = folder
        copies = [_copies_of(tuple(folders)) for folders in by_key.values()]
        copies.sort(key=lambda each: each.name)
        slices = task_slices([each.log_bytes for each in copies], _TASK_BYTES, self.workers)
        return [PiecesTask(number, tuple(copies[rows])) for number, rows in enumerate(slices)]

    def _key(self, folder: PartitionFolder) -> Hashable:
        """Return the same value for copies: partitions of the same name, unless each path names one topic or log."""
        if all(len(target.folders) == 1 and not target.is_directory for target in self.targets):
            return None
        if all(_names_one_topic(target) for target in self.targets):
            return folder.partition
        return folder.name

    def run(self, task: PiecesTask[CopiesOfLog], report: Report) -> Iterator[DiffRow]:
        for copies in task.pieces:
            for found in diff_copies(copies.folders):
                if isinstance(found, Compared):
                    report(Amount(found.size_bytes))
                else:
                    yield found


def _identity(target: NamedLogs) -> tuple[int, int] | None:
    return target.location.storage.identity(target.path)


def _names_one_topic(target: NamedLogs) -> bool:
    return not target.is_directory and len({folder.topic for folder in target.folders}) == 1


def _copies_of(folders: tuple[PartitionFolder | None, ...]) -> CopiesOfLog:
    there = [folder for folder in folders if folder is not None]
    return CopiesOfLog(there[0].name, folders, sum(bytes_of_log(folder) for folder in there))
