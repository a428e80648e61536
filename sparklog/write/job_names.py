"""Makes the names of jobs, from their time and a number. They are part of the names of staged files."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

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
