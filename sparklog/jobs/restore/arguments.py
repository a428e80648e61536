"""`sparklog.restore`: checks the arguments, builds a `RestoreJob` and runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Unpack

from sparklog.errors import InvalidOptionError, PathNotFoundError
from sparklog.inspect.describe import describe_directory
from sparklog.jobs.backup.arguments import set_at
from sparklog.jobs.backup.as_directory import BackupStorage, backup_to_restore
from sparklog.jobs.backup.checking import refuse_damaged_backup
from sparklog.jobs.backup.manifest import SET_MARK, new_backup_id
from sparklog.jobs.copy.job import CopyJob, CopyTask
from sparklog.jobs.copy.plan import CopySource
from sparklog.jobs.restore.cluster import NodeFormat, outline, read_cluster
from sparklog.jobs.restore.job import RestoreJob
from sparklog.jobs.restore.nodes import TopicOutline
from sparklog.jobs.restore.script import script_of
from sparklog.jobs.run.job import run_job
from sparklog.jobs.run.local import runner_of
from sparklog.jobs.run.options import LogJobArguments, LogJobOptions, with_options
from sparklog.jobs.source import refuse_nested, source_of
from sparklog.jobs.summary import MovedSummary, in_order
from sparklog.log.clock import Time, to_ms, wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.places import LogDirectory, split_path
from sparklog.log.properties import taken
from sparklog.storage.capabilities import to_writable
from sparklog.storage.registry import Location, PathText
from sparklog.topic.places.discovery import discover, place_at
from sparklog.topic.selection import Selection
from sparklog.topic.transactions.coordinators import taken_producer_ids
from sparklog.topic.transactions.ids import PRODUCER_IDS_FROM
from sparklog.topic.write.configs import stored_configs
from sparklog.write.running_jobs import new_job
from sparklog.write.small_files import write_atomically

_NODE_ID_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True)
class RestoreSummary(MovedSummary):
    """The outcome of a restore.

    Attributes
    ----------
    cluster_id : str or None
        The cluster that a node was formatted for.
    planned : tuple of CopyTask
        The tasks that a dry run would have done.
    """

    cluster_id: str | None = None
    planned: tuple[CopyTask, ...] = ()

    def __repr__(self) -> str:
        return f"RestoreSummary({self.rows} rows of {self.partitions} partitions, {self.log_bytes} bytes)"


@with_options(LogJobOptions)
def restore(
    source: PathText,
    target: PathText,
    *,
    to: Time | None = None,
    backup: str | None = None,
    for_cluster: PathText | None = None,
    controller_id: int | None = None,
    topics_script: PathText | None = None,
    metadata: PathText | None = None,
    **shared: Unpack[LogJobArguments],
) -> RestoreSummary:
    """Restore a log directory, or a backup, to an empty one, internal topics included, as it is or was at a time.

    Offsets and producers stay. All logs become visible at once, or none; the source does not change.

    Parameters
    ----------
    source : str or os.PathLike
        A log directory without a running broker, or a copy of one; or a set of backups.
    target : str or os.PathLike
        The new log directory: missing, empty, or only formatted by ``kafka-storage``.
    to : int or datetime, optional
        The time at which every log is cut, before its first record at or after it: ms since the epoch, or a datetime
        with a time zone. Open transactions are then ended, and groups' offsets are within the logs.
    backup : str, optional
        The id of a backup in the set; by default the newest without damaged logs. With ``to`` it is the oldest of them
        that was made at or after the time, if there is one.
    for_cluster : str or os.PathLike, optional
        The metadata directory (``metadata.log.dir``) of the controller of a new cluster; it may be the target. Both are
        formatted, so that the controller knows the topics, and the target is a broker with its logs. Each further
        restore with this directory adds a broker.
    controller_id : int, optional
        The node id of a new metadata directory, if the controller is not the broker.
    topics_script : str or os.PathLike, optional
        A file for the commands that make the topics in a cluster that exists.
    metadata : str or os.PathLike, optional
        The directory with ``__cluster_metadata-0`` of the source's cluster, which has the configs of topics; by default
        the source.

    Returns
    -------
    RestoreSummary

    Raises
    ------
    PathNotFoundError, InvalidOptionError
        An argument is wrong, the target is not empty, or the node was started before; nothing was restored.
    LockedError
        A broker runs on the target, or another writer works there.
    CorruptLogError, DataLossError, UnreadableLogError
        The error of the first log that cannot be restored, with further errors in ``others``; nothing was restored.
    """
    options, location = taken(LogJobOptions, shared), place_at(target, "target")
    runner, time_ms = runner_of(options.processes, options.spark), None if to is None else to_ms(to, "to")
    theirs, directory = LogDirectory(*place_at(source, "source")), LogDirectory(*location)
    of_set = _backup_at(theirs, backup, time_ms)
    found = theirs if of_set is None else of_set.directory
    read_from = Location(found.storage, found.path)
    folders = [each for each in discover([read_from]).partitions if each.directory == found]
    if not folders:
        raise PathNotFoundError(f"{found.path} is no log directory with logs: restore a whole one")
    to_writable(*location)
    refuse_nested(*location, theirs)
    of_cluster = found if metadata is None else LogDirectory(*place_at(metadata, "metadata"))
    cluster = read_cluster(of_cluster)
    if metadata is not None and cluster is None:
        raise PathNotFoundError(f"no metadata of a cluster in {of_cluster.path}")
    topics = outline(folders, cluster)
    node = None
    if for_cluster is not None:
        place = LogDirectory(*place_at(for_cluster, "for_cluster"))
        refuse_nested(place.storage, place.path, theirs)
        taken_ids = [each for of in {found, of_cluster} for each in taken_producer_ids(of) if each < PRODUCER_IDS_FROM]
        features, next_id = {} if cluster is None else cluster.features, max(taken_ids, default=-1) + 1
        of_source, number = describe_directory(found), _node_id(controller_id)
        node = NodeFormat(place, directory, tuple(topics), of_source, features, next_id, number)
        node.plan()
    elif controller_id is not None:
        raise InvalidOptionError("controller_id is the controller of a new cluster: give for_cluster as well")
    job = RestoreJob(_copy_of(read_from, location, of_cluster, topics, time_ms, options), time_ms, node)
    if options.dry_run:
        return RestoreSummary(job.copy.run_id, (), planned=tuple(job.plan()))
    if of_set is not None and not job.is_done():
        refuse_damaged_backup(of_set.place, of_set.manifest, runner, options.watch)
    if topics_script is not None:
        # Before the logs: a wrong path should not be found after hours.
        storage, path = place_at(topics_script, "topics_script")
        to_writable(storage, path)
        parent, name = split_path(path)
        write_atomically(LogDirectory(storage, parent), name, script_of(topics).encode())
    results = run_job(job, runner, options.watch)
    moved = (each for result in results for each in result.copied.moved if each.end_offset > each.start_offset)
    # A dead run may have formatted the node, which keeps the ids that it got then.
    cluster_id = None if node is None else describe_directory(directory).cluster_id
    return RestoreSummary(job.copy.run_id, in_order(moved), cluster_id)


def _node_id(given: int | None) -> int | None:
    is_number = isinstance(given, int) and not isinstance(given, bool)
    if given is not None and not (is_number and 0 <= given <= _NODE_ID_MAX):
        raise InvalidOptionError(f"controller_id is {given!r}, and must be a node id, from 0 to {_NODE_ID_MAX}")
    return given


def _backup_at(source: LogDirectory, backup: str | None, to_ms: int | None) -> BackupStorage | None:
    """Return the backup to restore; None if the source is a log directory."""
    if backup is None and source.storage.identity(source.file(SET_MARK)) is None:
        return None
    if not isinstance(backup, str | None):
        raise InvalidOptionError(f"backup is {backup!r}, and must be the id of a backup, such as {new_backup_id(0)}")
    return backup_to_restore(set_at(Location(source.storage, source.path)), backup, to_ms)


def _copy_of(
    source: Location,
    target: Location,
    of_cluster: LogDirectory,
    topics: Sequence[TopicOutline],
    to_ms: int | None,
    options: LogJobOptions,
) -> CopyJob:
    names, now_ms = tuple(each.name for each in topics), wall_clock_ms()
    found = source_of(source, Selection(names, isolation_level="read_uncommitted", end_time=to_ms))
    stored = {**stored_configs(of_cluster), **stored_configs(LogDirectory(*source))}
    return CopyJob(
        target=target,
        sources=(CopySource(found),),
        config=LogConfig(),
        run_id=new_job(now_ms),
        now_ms=now_ms,
        stored=stored,
        brought=stored,
        keeps_offsets=True,
        keeps_producers=True,
        cuts_batches=to_ms is not None,
        since_last=False,
        workers=runner_of(options.processes, options.spark).workers,
        syncs_tasks=options.spark is not None,
        options=options,
    )
