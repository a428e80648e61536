"""Processes that tests have begun in a session of their own, with all that those have begun."""

from __future__ import annotations

import os
from contextlib import suppress

import psutil


def of_session(session: int) -> list[psutil.Process]:
    """Return the processes of a session: Spark's Python daemon leaves the group of its parent, and not its session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            continue
    return found


def kill_all(session: int) -> None:
    """Kill every process of a session."""
    # Twice: some may have been forked meanwhile.
    for _ in range(2):
        for process in of_session(session):
            kill(process)


def kill(process: psutil.Process) -> None:
    """Kill a process, unless it has ended meanwhile."""
    with suppress(psutil.NoSuchProcess):
        process.kill()
