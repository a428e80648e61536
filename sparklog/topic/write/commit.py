"""Commits the staged files of a job to many partitions: all records become visible, or none.

Under the lock of the log directory, staged files get their offsets, all changes are listed in the journal, whose
writing is the commit, and then the changes are made. A commit that dies is finished by the next one, or by
`recover_log`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.errors import NOTHING_VISIBLE, WILL_BE_VISIBLE, CommitError, PathNotFoundError, SeglogError, outcome
from sparklog.log import files
from sparklog.log.checkpoints import encode_offset_checkpoint
from sparklog.log.config import LogConfig
from sparklog.log.directory_view import DirectoryView, read_offsets
from sparklog.log.files import TopicPartition, parse_partition_folder
from sparklog.log.group_offsets import GroupOffsets
from sparklog.log.journal import Journal, Move, Rename, pending
from sparklog.log.kept_by_stamp import names_in
from sparklog.log.places import LogDirectory, split_path
from sparklog.record.batches.producer_stamps import TransactionProducer
from sparklog.topic.write.configs import topic_config
from sparklog.topic.write.txn_versions import TxnLedger, TxnVersion, read_txn_versions
from sparklog.write.commit_plan import UNBOUND, OffsetBounds, PartitionChange, SmallFiles, plan_commit
from sparklog.write.group_offsets import next_transaction
from sparklog.write.journal import apply_journal, refuse_foreign_changes, write_journal
from sparklog.write.locking import hold, refuse_claimed
from sparklog.write.recovery import recover_log
from sparklog.write.running_jobs import end, is_same_work, made_ms
from sparklog.write.staged_files import StagedRun
from sparklog.write.staged_runs import StagedRuns

_log = logging.getLogger("sparklog")

ORPHAN_AGE_MS: Final = 7 * 24 * 3600 * 1000
"""Staged files of a job older than this are abandoned, and removed."""
_SWEEP_SECONDS: Final = 60.0
"""A commit without tasks looks for abandoned files in a list of the directory that may be as old as this."""


@dataclass(frozen=True)
class CommitRequest:
    """Describes a commit, without the staged files.

    Attributes
    ----------
    job_id : str
        The job's id, from `sparklog.write.running_jobs.new_job`.
    directory : LogDirectory
        The log directory of the topics.
    config : LogConfig
        The caller's properties; they override the stored properties of topics.
    new_topics : mapping of str to int
        Topics to be made, with the number of their partitions.
    topic_id : str or None
        The topic id for ``partition.metadata`` of every partition written to.
    is_overwrite : bool
        Whether to raise the log start offsets to the present ends of the logs.
    overwritten_topics : collection of str
        Topics that are overwritten even if no record is written to them.
    transaction : TxnVersion or None
        The batch of an application that the job writes; if it has been committed before, the job does nothing. See
        `sparklog.topic.write.txn_versions`.
    lock_timeout_seconds : float
        How long to wait for other writers.
    appended : mapping of str to bytes, or to a function
        Bytes by which the commit extends files of the log directory, by file name, or functions that make the bytes
        from the changes to logs by folder. Missing files are made.
    append_positions : mapping of str to int
        Positions for such bytes, by file name, by default the end of the file. Bytes after such a position count as
        never written: they are cut off before the commit is decided.
    replaced : mapping of str to bytes
        The new contents of files of the log directory that the commit replaces, by file name.
    producer : TransactionProducer or None
        The producer, if the staged rows are a transaction; its markers are staged as well.
    bounds : mapping of str to OffsetBounds
        The start and end offsets of logs that get copied batches, by folder name. Missing folders are made.
    stored : mapping of str to mapping of str to str
        The stored properties of topics; see `sparklog.topic.write.configs.stored_configs`.
    group_offsets : mapping of str to mapping of TopicPartition to OffsetCommit
        Offsets of consumer groups that the commit includes.
    has_tasks : bool
        Whether tasks staged the files, in other processes: attempts that failed may have left files of any names.
    """

    job_id: str
    directory: LogDirectory
    config: LogConfig
    new_topics: Mapping[str, int]
    topic_id: str | None = None
    is_overwrite: bool = False
    overwritten_topics: Collection[str] = ()
    transaction: TxnVersion | None = None
    lock_timeout_seconds: float = 600.0
    appended: Mapping[str, bytes | Callable[[Mapping[str, PartitionChange]], bytes]] = field(default_factory=dict)
    append_positions: Mapping[str, int] = field(default_factory=dict)
    replaced: Mapping[str, bytes] = field(default_factory=dict)
    producer: TransactionProducer | None = None
    bounds: Mapping[str, OffsetBounds] = field(default_factory=dict)
    stored: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    group_offsets: GroupOffsets = field(default_factory=dict)
    has_tasks: bool = True


def commit(job: CommitRequest, staged: Sequence[StagedRun], now_ms: int, *, is_held: bool = False) -> Mapping[str, Any]:
    """Commit staged runs: make all their records visible at once.

    Parameters
    ----------
    job : CommitRequest
        The commit, except for its staged runs.
    staged : sequence of StagedRun
        The staged runs of all tasks, from the successful attempt of each.
    now_ms : int
        Wall-clock time, ms since the epoch.
    is_held : bool
        Whether the caller keeps brokers and other writers out, and has finished any decided commit.

    Returns
    -------
    mapping
        A summary in plain values: ``job_id``, ``is_skipped``, ``committed_ms``, and ``partitions``, a list with
        ``topic``, ``partition``, ``first_offset``, ``last_offset``, ``records``, ``batches``, ``bytes`` and
        ``segments`` of each partition that was written to.

    Raises
    ------
    LockedError
        A broker runs on the directory, or other writers took too long.
    CommitError
        The batch's number was written with other rows, or earlier batches of the stream are missing.
    CorruptLogError
        A log to write to is damaged.
    SeglogError
        The ``outcome`` of any error says whether nothing is visible, or all records will be. Once all records are
        visible, nothing is raised.
    """
    directory = job.directory
    with ExitStack() as held:
        with outcome(NOTHING_VISIBLE):
            if not is_held:
                held.enter_context(hold(directory, job.lock_timeout_seconds))
                apply_journal(directory)
            ledger = read_txn_versions(directory)
            is_skipped = job.transaction is not None and ledger.has(job.transaction, directory.path)
            journal = None
            if not is_skipped:
                by_folder = _by_folder(job, staged)
                journal = _planned(job, by_folder, _there(directory, by_folder), ledger, now_ms)
        if journal is not None:
            _decide(directory, journal)
            _finish(directory, journal)
        _clear_after(job, staged, () if journal is None else journal.partitions, now_ms)
    return _summary(job, (), now_ms, is_skipped=True) if journal is None else journal.summary


def _there(directory: LogDirectory, logs: Iterable[str]) -> set[str]:
    """Return the logs that have a folder; refuse a commit to a new log if something else has its folder's name."""
    there, storage = set[str](), directory.storage
    for name in logs:
        path = directory.file(name)
        if storage.is_folder(path):
            there.add(name)
        elif storage.identity(path) is not None or storage.is_link(path):
            raise CommitError(f"{path} is no folder, where a log is to be: remove it")
    return there


def _decide(directory: LogDirectory, journal: Journal) -> None:
    """Write the journal if it can be applied; an error says whether it was written."""
    try:
        # A decided journal must be one that can be finished: otherwise it would keep every later write out.
        refuse_foreign_changes(directory, journal)
        write_journal(directory, journal)
    except SeglogError as error:
        error.outcome = WILL_BE_VISIBLE if _is_decided(directory, journal) else NOTHING_VISIBLE
        raise


def _finish(directory: LogDirectory, journal: Journal) -> None:
    """Apply the journal. A failure after its removal does not fail the write, whose records are all visible by then."""
    try:
        apply_journal(directory, journal)
    except SeglogError as error:
        if _is_decided(directory, journal):
            error.outcome = WILL_BE_VISIBLE
            raise
        _log.warning("all records were written, but files of the commit could not be removed: %s", error)


def _is_decided(directory: LogDirectory, journal: Journal) -> bool:
    found = pending(directory)
    return found is not None and found.commit_id == journal.commit_id


def _clear_after(job: CommitRequest, staged: Sequence[StagedRun], folders: Collection[str], now_ms: int) -> None:
    """Remove the job's leftover files. Its records are visible by now, so no failure may be raised."""
    try:
        if not job.has_tasks:
            for name in {name for run in staged for name in (run.log_name, run.batches_name)}:
                job.directory.writable.remove(job.directory.file(name))
        _clear(job, folders, now_ms)
    except SeglogError as error:
        _log.warning("all records were written, but staged files of the job could not be removed: %s", error)


def abort(job: CommitRequest, now_ms: int) -> None:
    """Remove the staged files of a job, unless its commit was decided."""
    journal = pending(job.directory)
    if journal is not None and is_same_work(journal.commit_id, job.job_id):
        _log.warning("the commit of %s was decided; 'sparklog recover' finishes it", job.directory.path)
        return
    _clear(job, (), now_ms)


def _clear(job: CommitRequest, folders: Collection[str], now_ms: int) -> None:
    """Remove the files of a job."""
    end(job.directory, job.job_id)
    age_seconds = 0.0 if job.has_tasks else _SWEEP_SECONDS
    sweep(job.directory, now_ms, job.job_id, folders=folders, age_seconds=age_seconds)


def sweep(
    directory: LogDirectory,
    now_ms: int,
    job_id: str | None = None,
    orphan_age_ms: int = ORPHAN_AGE_MS,
    *,
    folders: Collection[str] | None = None,
    spared: Collection[str] = (),
    dry_run: bool = False,
    age_seconds: float = 0.0,
) -> list[str]:
    """Remove the staged files of one job, and of all jobs old enough that they must be dead.

    The file that marks a job as running is removed first, so that a task still running knows to remove its own files.

    Parameters
    ----------
    spared : collection of str
        Jobs that are known to be alive.
    folders : collection of str, optional
        The partition folders to look in as well, by default all: earlier versions staged files there.
    age_seconds : float
        How old the list of the directory's names may be.

    Returns
    -------
    list of str
        The removed files, relative to the directory; with ``dry_run``, the files that would be removed.
    """
    names = _staged_names(directory, folders, age_seconds)
    found = [name for name in names if _is_orphan(name, job_id, now_ms - orphan_age_ms, spared)]
    found.sort(key=lambda name: not files.is_running_job(name))
    if not dry_run:
        for name in found:
            directory.writable.remove(directory.file(name))
    return found


def _is_orphan(name: str, job_id: str | None, made_before_ms: int, spared: Collection[str]) -> bool:
    job = files.parse_staged_file(split_path(name)[1])
    if job is None or job in spared:
        return False
    return (job_id is not None and is_same_work(job, job_id)) or made_ms(job) <= made_before_ms


def _staged_names(directory: LogDirectory, folders: Collection[str] | None, age_seconds: float) -> Iterable[str]:
    """List the files in a log directory and in some or all partition folders; warn of folders that cannot be listed."""
    names = names_in(directory, age_seconds=age_seconds)
    yield from names.files
    if folders is None:
        folders = [folder.name for of_topic in names.topics.values() for folder in of_topic.values()]
    for name in folders:
        folder = directory.folder(name)
        try:
            within = directory.storage.names(folder.location)
        except SeglogError as error:
            _log.warning("%s; files that jobs may have staged there are not removed", error)
            continue
        yield from (folder.relative(each.name) for each in within if each.name.endswith(files.STAGED))


def _planned(
    job: CommitRequest,
    by_folder: Mapping[str, Sequence[StagedRun]],
    there: Collection[str],
    ledger: TxnLedger,
    now_ms: int,
) -> Journal:
    """Give the staged runs their offsets, and plan every move of the commit, without changing any visible file.

    Parameters
    ----------
    there : collection of str
        The logs that have a folder; folders of new logs are made after the commit is decided.
    """
    directory, storage = job.directory, job.directory.writable
    own_name = files.staged_name(job.job_id, "commit")
    changes: dict[str, PartitionChange] = {}
    view = DirectoryView(directory)
    with storage.create(directory.file(own_name)) as own, StagedRuns(directory, job.producer) as runs:
        small = SmallFiles(own, own_name)
        for name, of_folder in by_folder.items():
            folder = directory.folder(name)
            refuse_claimed(folder)
            config = topic_config(folder.topic, job.config, job.stored)
            found = recover_log(folder, config, now_ms, view=view, begins_log=False)
            changes[name] = plan_commit(
                folder, found, of_folder, config, runs, small, now_ms, job.topic_id,
                job.bounds.get(name, UNBOUND),
            )  # fmt: skip
        extending = _extending(job, small, changes)
        small.flush()
    alone = [each.log_name for of_folder in by_folder.values() for each in of_folder if each.is_alone]
    storage.sync_files([directory.file(name) for name in [own_name, *alone]])
    moves = [move for each in changes.values() for move in each.moves]
    moves += [*extending, *_of_directory(job, changes, ledger)]
    # Files that a recovery removed must not come back in places where the moves put files.
    storage.sync_folders([directory.path, *(directory.file(name) for name in by_folder if name in there)])
    return Journal(
        commit_id=job.job_id,
        partitions={folder: each.before for folder, each in changes.items()},
        moves=tuple(_unclean_meanwhile(moves) if view.is_clean else moves),
        summary=_summary(job, [(changes[folder], runs) for folder, runs in by_folder.items() if runs], now_ms),
        offsets=next_transaction(directory, job.group_offsets),
    )


def _by_folder(job: CommitRequest, staged: Sequence[StagedRun]) -> dict[str, list[StagedRun]]:
    """Return the staged runs of each log in the order of tasks; logs to be made or emptied are included."""
    touched = {each.folder for each in staged} | _folders_of(job.new_topics) | set(job.bounds)
    if job.is_overwrite:
        topics = {*job.overwritten_topics, *(_named(folder).topic for folder in touched)}
        topics -= {files.TRANSACTION_STATE_TOPIC}
        there = names_in(job.directory).topics
        touched |= {folder.name for topic in topics for folder in there.get(topic, {}).values()}
    found: dict[str, list[StagedRun]] = {folder: [] for folder in sorted(touched, key=_named)}
    for each in sorted(staged, key=lambda each: (each.task, each.number)):
        found[each.folder].append(each)
    return found


def _folders_of(topics: Mapping[str, int]) -> set[str]:
    return {str(TopicPartition(topic, n)) for topic, count in topics.items() for n in range(count)}


def _named(folder: str) -> TopicPartition:
    found = parse_partition_folder(folder)
    if found is None:
        raise CommitError(f"not the folder of a partition: {folder}")
    return found


def _extending(job: CommitRequest, small: SmallFiles, changes: Mapping[str, PartitionChange]) -> list[Move]:
    """Return the moves that extend files of the log directory, after cutting each file to its position."""
    moves: list[Move] = []
    for name, data in job.appended.items():
        position = _cut_file(job.directory, name, job.append_positions.get(name))
        moves.append(small.append(data(changes) if callable(data) else data, name, position))
    return moves


def _cut_file(directory: LogDirectory, name: str, position: int | None) -> int:
    """Cut a file of the log directory to a position, if one is given, and return its size."""
    path = directory.file(name)
    try:
        with directory.storage.open(path) as file:
            size_bytes = file.size_bytes()
    except PathNotFoundError:
        size_bytes = 0
    if position is None or position == size_bytes:
        return size_bytes
    if position > size_bytes:
        raise CommitError(f"{path} has {size_bytes} bytes, and the commit is to extend it from {position} on")
    with directory.writable.open_for_append(path) as writable:
        writable.truncate(position)
        writable.sync()
    return position


def _of_directory(job: CommitRequest, changes: Mapping[str, PartitionChange], ledger: TxnLedger) -> list[Move]:
    """Return the moves that replace files of the log directory; they follow the moves of the logs they describe."""
    moves: list[Move] = []
    raised = {folder: each.before.end_offset for folder, each in changes.items() if _is_overwritten(job, folder)}
    raised.update({folder: each.start_offset for folder, each in job.bounds.items() if each.start_offset is not None})
    if raised:
        known = read_offsets(job.directory, files.LOG_START_CHECKPOINT)
        starts = {**known, **{_named(folder): offset for folder, offset in raised.items()}}
        moves.append(_replacing(job, files.LOG_START_CHECKPOINT, encode_offset_checkpoint(starts)))
    if job.transaction is not None:
        moves.append(_replacing(job, files.TXN_VERSIONS, ledger.after(job.transaction).encode()))
    return [*moves, *(_replacing(job, name, data) for name, data in job.replaced.items())]


def _is_overwritten(job: CommitRequest, folder: str) -> bool:
    """Return whether the commit removes a log's records; never for ``__transaction_state``, to which it adds."""
    return job.is_overwrite and _named(folder).topic != files.TRANSACTION_STATE_TOPIC


def _replacing(job: CommitRequest, name: str, data: bytes) -> Rename:
    """Stage a new version of a file of the log directory, and return the move that replaces the old one."""
    staged_name = files.staged_name(job.job_id, name)
    with job.directory.writable.create(job.directory.file(staged_name), like=job.directory.file(name)) as file:
        file.append(data)
        file.sync()
    return Rename(staged_name, name)


def _unclean_meanwhile(moves: list[Move]) -> list[Move]:
    """Hide the marker of a broker's clean shutdown while the moves are made.

    A broker that starts before they are finished then looks for torn ends of logs, and cuts them.
    """
    return [
        Rename(files.CLEAN_SHUTDOWN, files.MARKER_OF_COMMIT),
        *moves,
        Rename(files.MARKER_OF_COMMIT, files.CLEAN_SHUTDOWN),
    ]


def _summary(
    job: CommitRequest,
    written: Sequence[tuple[PartitionChange, Sequence[StagedRun]]],
    now_ms: int,
    *,
    is_skipped: bool = False,
) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "is_skipped": is_skipped,
        "committed_ms": now_ms,
        "partitions": [_account(change, staged) for change, staged in written],
    }


def _account(change: PartitionChange, staged: Sequence[StagedRun]) -> dict[str, Any]:
    at = _named(staged[0].folder)
    return {
        "topic": at.topic,
        "partition": at.partition,
        "first_offset": change.first_offset,
        "last_offset": change.end_offset - 1,
        "records": sum(each.records for each in staged),
        "batches": sum(each.batches for each in staged),
        "bytes": sum(each.size_bytes for each in staged),
        "segments": list(change.segments),
    }
