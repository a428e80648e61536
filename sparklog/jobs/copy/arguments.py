"""`sparklog.copy`: checks the arguments, builds a `CopyJob` and runs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.jobs.copy.job import CopyJob, CopyTask
from sparklog.jobs.copy.plan import CopySource
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import runner_of
from sparklog.jobs.run.options import LogJobOptions, MoveArguments, with_options
from sparklog.jobs.source import check_sources, refuse_nested, source_of
from sparklog.jobs.summary import MovedSummary, in_order
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.folders import listed
from sparklog.log.places import LogDirectory
from sparklog.log.properties import taken
from sparklog.storage.capabilities import to_writable
from sparklog.storage.registry import PathText, paths_of
from sparklog.topic.places.discovery import named, place_at
from sparklog.topic.selection import Selection
from sparklog.topic.write.configs import StoredConfigs, stored_configs
from sparklog.write.running_jobs import new_job


@dataclass(frozen=True)
class CopySummary(MovedSummary):
    """The outcome of a copy.

    Attributes
    ----------
    planned : tuple of CopyTask
        The tasks that a dry run would have done.
    replaced_batches : int
        The number of batches whose producer ids were replaced by ids that no cluster reaches.
    """

    planned: tuple[CopyTask, ...] = ()
    replaced_batches: int = 0

    def __repr__(self) -> str:
        return f"CopySummary({self.rows} rows of {self.partitions} partitions, {self.log_bytes} bytes)"


@with_options(Selection, LogJobOptions)
def copy(
    source: PathText | Sequence[PathText],
    target: PathText,
    *,
    renames: Mapping[str, str] | None = None,
    keep_offsets: bool = False,
    keep_producers: bool = False,
    recompress: str | None = None,
    since_last: bool = True,
    without_properties: bool = False,
    config: Mapping[str, str] | None = None,
    **shared: Unpack[MoveArguments],
) -> CopySummary:
    """Copy partition logs to a log directory, in whole batches. Batches copied by an earlier run are skipped.

    Nothing is decompressed; checksums are checked. All batches become visible at once, or none.

    Parameters
    ----------
    source : str, os.PathLike or a sequence of them
        Log directories (all topics except those that begin with ``__``), topic paths, partition folders, patterns.
        Logs of the same partition are merged, one after the other.
    target : str or os.PathLike
        A log directory without a running broker; it is created if it does not exist.
    renames : mapping of str to str, optional
        Topics and their names in the target; other topics keep their names.
    keep_offsets : bool
        Whether batches keep their offsets; by default offsets continue from the end of the target.
    keep_producers : bool
        Whether producers keep their ids, for a restore of the same cluster. By default they keep them only in a topic
        of the same name, in a directory with the same ``cluster.id``; elsewhere they get ids that no cluster reaches.
        With kept ids a broker could take batches of new producers of its cluster for repetitions.
    recompress : str, optional
        The codec that all batches get, by Kafka's name.
    since_last : bool
        Whether batches that were copied before are skipped.
    without_properties : bool
        Whether topics that are new in the target get no stored properties of the source, such as ``retention.ms``.
    config : mapping of str to str, optional
        Properties of the topics, such as ``segment.bytes``; they override those stored in the target
        (``topics.properties``, or the cluster's metadata there). No property changes the bytes of a batch: only
        ``recompress`` does.

    Returns
    -------
    CopySummary

    Raises
    ------
    PathNotFoundError, InvalidOptionError
        Arguments or the stored properties of a topic are wrong; nothing was created.
    LockedError
        A broker runs on the target, or another writer works there.
    CorruptLogError, DataLossError, UnreadableLogError
        The error of the first partition that cannot be copied, with further errors in ``others``; nothing was copied.
    """
    options, selection = taken(LogJobOptions, shared), taken(Selection, shared)
    if selection.on_damage == "best_effort":
        raise InvalidOptionError("a copy takes whole batches with right checksums: on_damage is fail or skip")
    runner = runner_of(options.processes, options.spark)
    # One source per path: the same partition may be in several.
    paths = paths_of(source)
    # Replicas in several directories are one source.
    sources = [source_of(each, selection) for each in ([paths] if selection.merges_replicas else paths)]
    folders = check_sources(sources)
    _refuse_absent(renames or {}, {named(folder).topic for folder in folders})
    location = place_at(target, "target")
    to_writable(*location)
    for directory in {folder.directory for folder in folders}:
        # With other names, logs may be copied within the same directory.
        if location.storage.real(location.path) != directory.storage.real(directory.path):
            refuse_nested(*location, directory)
    now_ms, copied_from = wall_clock_ms(), tuple(CopySource(each, tuple((renames or {}).items())) for each in sources)
    stored = stored_configs(LogDirectory(*location))
    brought = {} if without_properties else _brought(copied_from, LogDirectory(*location), stored)
    job = CopyJob(
        target=location,
        sources=copied_from,
        config=LogConfig.from_properties(config or {}),
        stored=stored | brought,
        brought=brought,
        run_id=new_job(now_ms),
        now_ms=now_ms,
        keeps_offsets=keep_offsets,
        keeps_producers=keep_producers,
        codec=recompress,
        since_last=since_last,
        workers=runner.workers,
        syncs_tasks=options.spark is not None,
        options=options,
    )
    if options.dry_run:
        return CopySummary(job.run_id, (), tuple(job.plan()))
    results = run_job(job, runner, options.watch)
    copied = (each for result in results for each in result.moved)
    return CopySummary(
        job.run_id,
        in_order(each for each in copied if not each.is_empty),
        replaced_batches=sum(result.replaced_batches for result in results),
    )


def _brought(sources: Sequence[CopySource], target: LogDirectory, stored: StoredConfigs) -> dict[str, dict[str, str]]:
    """Return the properties of each topic that is new in the target, from its first source."""
    names = target.storage.names(target.path) if target.storage.is_folder(target.path) else []
    there, brought = {target.folder(each.name).topic for each in names}, dict[str, dict[str, str]]()
    for source in sources:
        folders = source.logs.folders()
        of_directory = {each: stored_configs(each) for each in {folder.directory for folder in folders}}
        for folder in folders:
            topic = source.target_of(named(folder)).topic
            if topic not in there and topic not in stored and topic not in brought:
                brought[topic] = of_directory[folder.directory].get(folder.topic, {})
    return {topic: properties for topic, properties in brought.items() if properties}


def _refuse_absent(renames: Mapping[str, str], topics: Collection[str]) -> None:
    for topic in renames:
        if topic not in topics:
            hint = did_you_mean(topic, sorted(topics), f"there is {listed(sorted(topics))}")
            raise InvalidOptionError(f"renames has the topic {topic!r}, which is not copied; {hint}")
