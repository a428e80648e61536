"""Bulk jobs on a log directory, loads and copies, that hold the lock of jobs: who lives, and what dead ones have left.

A file that is there while such a job runs, ``seglog-<job>-exclusive.staged``, tells whoever gets the lock whose staged
files are nobody's any more.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack

from sparklog.errors import LockedError
from sparklog.log import files
from sparklog.log.places import LogDirectory
from sparklog.topic.write.commit import ORPHAN_AGE_MS, sweep
from sparklog.write.staging import end


def jobs_of_lock(directory: LogDirectory) -> list[str]:
    """Return the jobs that hold the lock of jobs, or held it when they died."""
    found = (files.parse_exclusive_job(entry.name) for entry in directory.storage.names(directory.path))
    return [job for job in found if job is not None]


def keep_jobs_out(directory: LogDirectory, held: ExitStack) -> bool:
    """Take the lock of jobs, until ``held`` is closed; tell whether it was free. Where no job has left anything it is.

    Whoever needs the lock of writers too takes that one later.
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
    """Remove what jobs have left that held the lock of jobs, which the caller holds now; arguments as of `sweep`."""
    removed: list[str] = []
    for dead in jobs_of_lock(directory):
        if dead in spared:
            continue
        if not dry_run:
            # A task of it that is still at work sees by this that it must remove its own files.
            end(directory, dead)
        removed += sweep(directory, now_ms, dead, orphan_age_ms, folders=(), spared=spared, dry_run=dry_run)
    return removed
