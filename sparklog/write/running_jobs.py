"""Names jobs, and marks the running ones.

Names of staged files include the job's. It begins with the time of the job, ms in 12 hexadecimal digits, so that files
of a dead job are known by their age. Ten more digits identify the job: they are random for a batch write, and equal for
all writes of a stream, so that a later batch removes the leftovers of an earlier one.

    seglog-<job>-running.staged   empty, while the job runs; a task that finds it gone is one that nobody waits for
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

from sparklog.log import files
from sparklog.log.places import LogDirectory
from sparklog.write.small_files import make_directory

_WORK_DIGITS: Final = 10


def new_job(now_ms: int) -> str:
    """Return a new, unique name for a job."""
    return f"{now_ms:012x}{secrets.token_hex(_WORK_DIGITS // 2)}"


def job_of_stream(application: str, now_ms: int) -> str:
    """Return a name for work of a stream: for one attempt of a task, or for the commit of one batch."""
    return f"{now_ms:012x}{hashlib.sha256(application.encode()).hexdigest()[:_WORK_DIGITS]}"


def is_same_work(job: str, other: str) -> bool:
    """Return whether two names belong to one job, or to one stream."""
    return job[-_WORK_DIGITS:] == other[-_WORK_DIGITS:]


def made_ms(job: str) -> int:
    """Return the time in a job's name, ms since the epoch."""
    return int(job[:12], 16)


def begin(directory: LogDirectory, job: str) -> None:
    """Record that a job runs, before its tasks start."""
    storage = directory.writable
    make_directory(directory)
    with storage.create(_marker(directory, job)):
        pass


def is_running(directory: LogDirectory, job: str) -> bool:
    """Return whether a job has begun and not ended. Files that its tasks stage after its end are never committed."""
    return directory.storage.read_small(_marker(directory, job)) is not None


def end(directory: LogDirectory, job: str) -> None:
    """Record that a job no longer runs, before its leftover files are removed."""
    directory.writable.remove(_marker(directory, job))


def _marker(directory: LogDirectory, job: str) -> str:
    return directory.file(files.running_job_name(job))
