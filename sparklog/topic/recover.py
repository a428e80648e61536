"""Repairs a log directory after a writer died, for ``sparklog recover``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from sparklog.errors import LockedError, SeglogError
from sparklog.log import files
from sparklog.log.config import LogConfig
from sparklog.log.files import JOURNAL, being_written, is_cut_file
from sparklog.log.journal import pending
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.topic.write.commit import ORPHAN_AGE_MS, sweep
from sparklog.write.journal import apply_journal, refuse_foreign_changes
from sparklog.write.locking import hold, refuse_link, refuse_running_broker
from sparklog.write.recovery import recover_log
from sparklog.write.recovery_actions import Action
from sparklog.write.running_jobs import end


@dataclass(frozen=True)
class RecoverOptions:
    """Options of the recovery of a directory.

    Attributes
    ----------
    config : LogConfig
        The configuration with the distance of index entries, for indexes that are rebuilt.
    orphan_age_ms : int
        Staged files of a job older than this are removed.
    truncate : bool
        Cut logs at their first damage even if no crash can have torn them, which loses everything after it.
    drop_cut : bool
        Remove the ``.cut`` files of this and earlier recoveries.
    dry_run : bool
        Change nothing, and only yield the actions.
    lock_timeout_seconds : float
        How long to wait for writers.
    """

    config: LogConfig
    orphan_age_ms: int
    truncate: bool = False
    drop_cut: bool = False
    dry_run: bool = False
    lock_timeout_seconds: float = 60.0


def recover_directory(
    directory: LogDirectory, folders: Sequence[PartitionFolder], options: RecoverOptions, now_ms: int
) -> Iterator[Action | SeglogError]:
    """Finish the decided commit, remove files staged by dead jobs, and recover logs, checking every batch.

    Parameters
    ----------
    directory : LogDirectory
        An existing log directory.
    folders : sequence of PartitionFolder
        The partitions of the directory to recover.

    Yields
    ------
    Action or SeglogError
        An action that was done, or the reason why a log cannot be recovered; that log is unchanged.

    Raises
    ------
    LockedError
        A broker runs on the directory, or a writer holds it.
    CommitError
        The commit cannot be finished.
    InvalidOptionError
        The storage cannot be written to.
    """
    refuse_running_broker(directory)
    with ExitStack() as held:
        are_dead = keep_jobs_out(directory, held)
        if not options.dry_run:
            held.enter_context(hold(directory, options.lock_timeout_seconds))
        yield from _finished(directory, dry_run=options.dry_run)
        yield from _swept(directory, options, now_ms, are_dead=are_dead)
        for folder in folders:
            try:
                refuse_link(folder)
                yield from _recovered(folder, options, now_ms)
            except SeglogError as error:
                yield error


def _swept(directory: LogDirectory, options: RecoverOptions, now_ms: int, *, are_dead: bool) -> Iterator[Action]:
    """Remove files staged by dead jobs: jobs whose lock is free, or that are too old. Live jobs are left alone."""
    age_ms, dry_run = options.orphan_age_ms, options.dry_run
    # In a dry run the files of a decided commit are still staged.
    decided = pending(directory) if dry_run else None
    spared = [] if decided is None else [decided.commit_id]
    removed = sweep_dead_jobs(directory, now_ms, age_ms, spared=spared, dry_run=dry_run) if are_dead else []
    for name in removed:
        yield Action(directory.file(name), "removed, staged by a load or a copy that died")
    undecided = directory.file(being_written(JOURNAL))
    if directory.storage.identity(undecided) is not None:
        if not dry_run:
            directory.writable.remove(undecided)
        yield Action(undecided, "removed, the journal of a commit that was not decided")
    spared += [] if are_dead else jobs_of_lock(directory)
    for name in sweep(directory, now_ms, orphan_age_ms=age_ms, spared=spared, dry_run=dry_run):
        if name not in removed:
            yield Action(directory.file(name), "removed, staged by a job that was never committed")


def _recovered(folder: PartitionFolder, options: RecoverOptions, now_ms: int) -> Iterator[Action]:
    found = recover_log(
        folder,
        options.config,
        now_ms,
        truncate=options.truncate,
        dry_run=options.dry_run,
        is_thorough=True,
        is_quiet=True,
    )
    yield from found.actions
    for entry in folder.storage.entries(folder.location) if options.drop_cut else ():
        if entry.is_file and is_cut_file(entry.name):
            if not options.dry_run:
                folder.writable.remove(folder.file(entry.name))
            yield Action(folder.file(entry.name), "removed, with the bytes that were cut off a segment")


def _finished(directory: LogDirectory, *, dry_run: bool) -> Iterator[Action]:
    journal = pending(directory)
    if journal is None:
        return
    if dry_run:
        refuse_foreign_changes(directory, journal)
    else:
        apply_journal(directory)
    logs = f"{len(journal.partitions)} partition{'s' * (len(journal.partitions) != 1)}"
    yield Action(directory.file(JOURNAL), f"finished, a commit to {logs} that was decided and interrupted")


def jobs_of_lock(directory: LogDirectory) -> list[str]:
    """Return the jobs that hold the lock of jobs, or held it when they died: each has a file while it runs."""
    found = (files.parse_exclusive_job(entry.name) for entry in directory.storage.names(directory.path))
    return [job for job in found if job is not None]


def keep_jobs_out(directory: LogDirectory, held: ExitStack) -> bool:
    """Take the lock of jobs until ``held`` is closed, and return whether it was free; True if no job left a file.

    A caller that also needs the lock of writers must take that one later.
    """
    if not jobs_of_lock(directory):
        return True
    try:
        held.enter_context(directory.writable.lock(directory.file(files.JOBS_LOCK), 0.0))
    except LockedError:
        return False
    return True


def sweep_dead_jobs(
    directory: LogDirectory,
    now_ms: int,
    orphan_age_ms: int = ORPHAN_AGE_MS,
    *,
    spared: Collection[str] = (),
    dry_run: bool = False,
) -> list[str]:
    """Remove the files of jobs that died with the lock of jobs, which the caller holds; for arguments see `sweep`."""
    removed: list[str] = []
    for dead in jobs_of_lock(directory):
        if dead in spared:
            continue
        if not dry_run:
            # A task of the job that is still running sees by this that it must remove its own files.
            end(directory, dead)
        removed += sweep(directory, now_ms, dead, orphan_age_ms, folders=(), spared=spared, dry_run=dry_run)
    return removed
