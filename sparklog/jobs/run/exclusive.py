"""Keeps other jobs out of a log directory that one job changes, and removes what a dead job has staged.

A job holds ``seglog.jobs.lock`` while it runs. Others may write beside a load, whose commit takes the writers' lock
like any commit; a copy, which continues the offsets of logs, holds that lock throughout. The next job removes what a
dead job has left; see `sparklog.topic.recover`.
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
from sparklog.write.journal import apply_journal
from sparklog.write.locking import hold, refuse_running_broker
from sparklog.write.running_jobs import begin
from sparklog.write.small_files import make_directory


@contextmanager
def exclusive(
    directory: LogDirectory,
    job_id: str,
    timeout_seconds: float,
    *,
    keeps_writers_out: bool = False,
    nothing_done: str = NOTHING_VISIBLE,
) -> Iterator[None]:
    """Keep other jobs out of a log directory while a job runs there; create the directory if it does not exist.

    Commits that a dead job has decided are finished, and its leftovers are removed; so are those of this job.

    Parameters
    ----------
    keeps_writers_out : bool
        Whether to keep other writers out of the directory as well.
    nothing_done : str
        The ``outcome`` of an error before the job begins.

    Raises
    ------
    LockedError
        Another job or writer held its lock for too long, or a broker runs on the directory.
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
            # The next job removes the leftovers. An error here must not replace the job's own error, or its success.
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
