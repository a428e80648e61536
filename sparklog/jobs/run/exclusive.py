"""Keeps jobs that change a log directory apart, and removes what one that died has staged.

A job holds ``seglog.jobs.lock`` while it runs. Others may write beside a load, whose commit takes the lock of writers
as any does; a copy, which counts offsets on from the ends of logs, holds that lock too. The next job removes what one
that died has left; see `sparklog.topic.recover`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from sparklog.errors import NOTHING_VISIBLE, LockedError, SeglogError, outcome
from sparklog.log import files
from sparklog.log.clock import wall_clock_ms
from sparklog.log.journal import pending
from sparklog.log.places import LogDirectory
from sparklog.storage.base import HeldLock
from sparklog.topic.recover import sweep_dead_jobs
from sparklog.write.directories import make_directory
from sparklog.write.journal import apply_journal
from sparklog.write.locking import hold, refuse_running_broker
from sparklog.write.staging import begin


@contextmanager
def exclusive(
    directory: LogDirectory,
    job_id: str,
    timeout_seconds: float,
    *,
    keeps_writers_out: bool = False,
    nothing_done: str = NOTHING_VISIBLE,
) -> Iterator[None]:
    """Keep other jobs out of a log directory, which is made where it is not there; begin one, and end it.

    What a dead job has decided is finished, and what it left is removed; so is what this one leaves.

    Parameters
    ----------
    keeps_writers_out : bool
        Whether no other writer may change the directory either, until the end.
    nothing_done : str
        The outcome of an error before the job begins.

    Raises
    ------
    LockedError
        Another job, or another writer, took too long; or a broker runs on the directory.
    """
    with ExitStack() as held:
        with outcome(nothing_done):
            make_directory(directory)
            refuse_running_broker(directory)
            held.enter_context(_of_jobs(directory, timeout_seconds))
            with ExitStack() as writers:
                writers.enter_context(hold(directory, timeout_seconds))
                apply_journal(directory)
                if keeps_writers_out:
                    held.push(writers.pop_all())
            sweep_dead_jobs(directory, wall_clock_ms())
            with directory.writable.create(directory.file(files.exclusive_job_name(job_id))):
                pass
            begin(directory, job_id)
        try:
            yield
        finally:
            # What is left is removed by the next job. That is not what went wrong, or all went well.
            with suppress(SeglogError):
                journal = pending(directory)
                if journal is None or journal.commit_id != job_id:
                    sweep_dead_jobs(directory, wall_clock_ms())


def _of_jobs(directory: LogDirectory, timeout_seconds: float) -> HeldLock:
    try:
        return directory.writable.lock(directory.file(files.JOBS_LOCK), timeout_seconds)
    except LockedError as error:
        raise LockedError(
            f"another job, such as a load or a copy, works on {directory.path}, and did not finish in "
            f"{timeout_seconds:g} s. Nothing was written; repeat it, or wait longer for the lock"
        ) from error
