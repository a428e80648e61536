"""`sparklog.describe`: describes logs, many partitions at a time, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sparklog.inspect.describe import PartitionDescription, Scanned, describe_partition, describe_step_by_step
from sparklog.jobs.named_logs import LogsTask, logs_at, tasks_of_logs
from sparklog.jobs.run.job import Amount, Report, Watch, found_by
from sparklog.jobs.run.local import runner_of
from sparklog.log.places import PartitionFolder, foresee
from sparklog.storage.given_options import with_storage_options
from sparklog.storage.looks import map_at_once, one_look
from sparklog.storage.registry import PathText, paths_of

_LOOK_BYTES: Final = 1 << 19
"""Looking at the names and the ends of a log takes about as long as scanning the headers of this many bytes."""


def describe(
    path: PathText | Sequence[PathText],
    *,
    full: bool = False,
    ratio: bool = False,
    processes: int | None = None,
    spark: Any = None,
    watch: Watch | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[PartitionDescription]:
    """Describe logs: their offsets, times, sizes, codecs and formats.

    Other parameters and errors: see `sparklog.verify`.

    Parameters
    ----------
    full : bool
        Scan the header of every batch, so that everything is counted. By default only names, indexes and the batches
        at the ends of segments are read.
    ratio : bool
        Decompress every batch as well, to compute what compression saves.

    Yields
    ------
    PartitionDescription
        One for each log, in the order of the paths and of their partitions. Damage raises no error: it is in ``error``.
    """
    runner = runner_of(processes, spark)
    with with_storage_options(storage_options):
        folders = dict.fromkeys(folder for each in paths_of(path) for folder in logs_at(each).folders)
    return found_by(DescribeJob(tuple(folders), full or ratio, ratio, runner.workers), runner, watch)


@dataclass(frozen=True)
class DescribeJob:
    """Describes logs, as `describe_step_by_step` does; about ``workers`` tasks run at a time."""

    folders: tuple[PartitionFolder, ...]
    is_full: bool = False
    is_decompressed: bool = False
    workers: int = 1

    # Python does much of the work, so threads would wait for each other.
    threads_bytes_max = 0

    def plan(self) -> list[LogsTask]:
        return list(tasks_of_logs(self.folders, self.workers, look_bytes=None if self.is_full else _LOOK_BYTES))

    def run(self, task: LogsTask, report: Report) -> Iterator[PartitionDescription]:
        storages = {folder.storage for folder in task.folders}
        if not self.is_full and any(each.capabilities.is_remote for each in storages):
            with one_look():
                foresee(task.folders)
                described = map_at_once(describe_partition, task.folders, storages)
            yield from described
            return
        for folder in task.folders:
            for event in describe_step_by_step(folder, is_full=self.is_full, is_decompressed=self.is_decompressed):
                if isinstance(event, Scanned):
                    report(Amount(event.bytes))
                else:
                    yield event
