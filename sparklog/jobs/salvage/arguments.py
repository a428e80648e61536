"""`sparklog.salvage`: checks the arguments, builds a `SalvageJob` and runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import pyarrow as pa

from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import runner_of
from sparklog.jobs.run.options import LogJobArguments, LogJobOptions, with_options
from sparklog.jobs.salvage.job import SalvageJob
from sparklog.jobs.salvage.log_copy import LogToSalvage, SalvagedLog
from sparklog.jobs.salvage.record import read_record
from sparklog.jobs.source import refuse_nested
from sparklog.log.clock import wall_clock_ms
from sparklog.log.places import LogDirectory
from sparklog.log.properties import taken
from sparklog.log.reads.damage_table import damage_table
from sparklog.storage.capabilities import to_writable
from sparklog.storage.registry import PathText
from sparklog.topic.places.discovery import discover, log_directories, place_at, places_at
from sparklog.topic.quarantine import Quarantine
from sparklog.topic.selection import PartitionArguments, PartitionSelection, QuarantineOption
from sparklog.write.running_jobs import new_job


class SalvageArguments(PartitionArguments, LogJobArguments, total=False):
    """The options of a salvage that other jobs have as well."""

    quarantine: PathText | None


@dataclass(frozen=True)
class SalvageSummary:
    """The outcome of a salvage.

    Attributes
    ----------
    logs : tuple of SalvagedLog
        All salvaged partitions, sorted; some may be from an earlier run that was stopped.
    planned : tuple of LogToSalvage
        The partitions that a dry run would have salvaged.
    """

    logs: tuple[SalvagedLog, ...]
    planned: tuple[LogToSalvage, ...] = ()

    @property
    def records(self) -> int:
        """The number of records that were kept."""
        return sum(each.records for each in self.logs)

    @property
    def damage(self) -> pa.Table:
        """The table of damage: the bytes and offsets that were lost."""
        return damage_table(stretch for log in self.logs for stretch in log.damage)

    def __repr__(self) -> str:
        return f"SalvageSummary({self.records} records of {len(self.logs)} partitions, {self.damage.num_rows} damages)"


@with_options(PartitionSelection, QuarantineOption, LogJobOptions)
def salvage(
    source: PathText | Sequence[PathText], target: PathText, **shared: Unpack[SalvageArguments]
) -> SalvageSummary:
    """Make a clean log directory from a damaged one, with every batch whose checksum agrees.

    Batches and offsets stay as they are; damage leaves a hole in the offsets. Indexes, snapshots of producers and
    checkpoints are made anew. The source is not changed. A run that was stopped is continued by the same call.

    Parameters
    ----------
    source : str, os.PathLike or a sequence of them
        Log directories (all topics, also internal ones), topic paths, partition folders, patterns.
    target : str or os.PathLike
        A new or empty folder, which becomes a log directory; or that of a salvage that was stopped.

    Returns
    -------
    SalvageSummary
        It has the amounts of each partition, and the table of damage.

    Raises
    ------
    PathNotFoundError, InvalidOptionError
        Arguments are wrong, or the target holds something else; nothing was changed.
    LockedError
        Another job or a broker runs on the target.
    UnreadableLogError, StorageError
        The error of the first partition that cannot be read, with further errors in ``others``; all others are
        salvaged.
    """
    options, selection = taken(LogJobOptions, shared), taken(PartitionSelection, shared)
    runner = runner_of(options.processes, options.spark)
    located = places_at(source, "source")
    found = discover(located)
    is_chosen = selection != PartitionSelection()
    folders = found.select(selection) if is_chosen else list(found.partitions)
    location = place_at(target, "target")
    to_writable(*location)
    directories = {folder.directory for folder in folders}
    for directory in directories:
        refuse_nested(*location, directory)
    kept = taken(QuarantineOption, shared).quarantine
    quarantine = None if kept is None else Quarantine(place_at(kept, "quarantine"))
    if quarantine is not None:
        quarantine.check(directories | {LogDirectory(*location)})
    located_directories, now_ms = log_directories(located), wall_clock_ms()
    job = SalvageJob(
        target=location,
        sources=tuple(place.path for place in located),
        folders=tuple(folders),
        whole=located_directories[0] if len(located_directories) == 1 else None,
        run_id=new_job(now_ms),
        now_ms=now_ms,
        quarantine=quarantine,
        workers=runner.workers,
        options=options,
    )
    if options.dry_run:
        return SalvageSummary((), tuple(piece for task in job.plan() for piece in task.pieces))
    run_job(job, runner, options.watch)
    record = read_record(job.directory)
    logs = {} if record is None else record.logs
    return SalvageSummary(tuple(logs[at] for at in sorted(logs)))
