"""Keeps jobs that change a log directory apart, and removes what one that died has staged.

A job holds ``seglog.jobs.lock`` while it runs. Others may write beside it: the commit takes the lock of writers as any
does. A file that is there while the job runs, ``seglog-<job>-exclusive.staged``, tells the next job, which holds the
lock then, whose staged files are nobody's any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.errors import NOTHING_VISIBLE, LockedError, outcome
from sparklog.log import files
from sparklog.log.places import LogDirectory
from sparklog.topic.commit import sweep
from sparklog.write.clock import wall_clock_ms
from sparklog.write.journal import apply_journal
from sparklog.write.locking import hold, refuse_running_broker
from sparklog.write.staging import begin, end


@contextmanager
def exclusive(directory: LogDirectory, job_id: str, timeout_seconds: float) -> Iterator[None]:
    """Keep other jobs out of a log directory, which is made where it is not there, and begin one.

    What a dead job has decided is finished, and what it left is removed.

    Raises
    ------
    LockedError
        Another job, or another writer, took too long; or a broker runs on the directory.
    """
    storage = directory.writable
    with outcome(NOTHING_VISIBLE):
        storage.make_folder(directory.path)
        refuse_running_broker(directory)
        try:
            lock = storage.lock(directory.file(files.JOBS_LOCK), timeout_seconds)
        except LockedError as error:
            raise LockedError(
                f"another job, such as a load or a copy, works on {directory.path}, and did not finish in "
                f"{timeout_seconds:g} s. Nothing was written; repeat it, or wait longer for the lock"
            ) from error
    with lock:
        with outcome(NOTHING_VISIBLE):
            with hold(directory, timeout_seconds):
                apply_journal(directory)
            _sweep_dead(directory)
            with storage.open_for_append(directory.file(files.exclusive_job_name(job_id))):
                pass
            begin(directory, job_id)
        yield


def _sweep_dead(directory: LogDirectory) -> None:
    for entry in directory.storage.names(directory.path):
        dead = files.parse_exclusive_job(entry.name)
        if dead is not None:
            # A task of it that is still at work sees by this that it must remove its own files.
            end(directory, dead)
            sweep(directory, wall_clock_ms(), dead, folders=())
