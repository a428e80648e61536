"""The current process: its number, its cores, its forks, its environment and its streams."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TextIO


def in_forked_child(action: Callable[[], None]) -> None:
    """Run a function at the start of every process that is forked from this one."""
    os.register_at_fork(after_in_child=action)


def process_id() -> int:
    """Return the number of this process."""
    return os.getpid()


def end_process(status: int) -> None:
    """End this process at once: no thread of it does anything more."""
    os._exit(status)


def usable_cores() -> int:
    """Return how many of the machine's cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment_value(name: str) -> str | None:
    """Return the value of an environment variable; None if it is not set."""
    return os.environ.get(name)


def set_environment_value(name: str, value: str) -> None:
    """Set an environment variable of this process and of its children."""
    os.environ[name] = value


def discard_output(stream: TextIO) -> None:
    """Discard everything that is still written to a stream."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)
