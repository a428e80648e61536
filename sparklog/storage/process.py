"""The current process: its number, its cores, its open files, its forks, its environment and its streams."""

from __future__ import annotations

import atexit
import os
import resource
import sys
from collections.abc import Callable
from typing import Any, Generic, TextIO, TypeVar

L = TypeVar("L")


def in_forked_child(action: Callable[[], None]) -> None:
    """Run a function at the start of every process that is forked from this one."""
    os.register_at_fork(after_in_child=action)


def at_exit(action: Callable[[], None]) -> None:
    """Run a function when this process ends by itself, while all modules are there."""
    atexit.register(action)


class ProcessState(Generic[L]):
    """Tables of this process and the lock that guards them; a forked child begins with empty tables and a new lock.

    Parameters
    ----------
    make_lock : callable
        Makes the lock. Another thread may hold the parent's, and the child does not have that thread.
    *tables : dict
        What the lock guards.
    give_up : callable
        Called in the child with each value of the tables, when they are empty.

    Attributes
    ----------
    number : int
        A number that the lock guards as well; 0 at the beginning, in a child too.
    """

    def __init__(
        self, make_lock: Callable[[], L], *tables: dict[Any, Any], give_up: Callable[[Any], None] = lambda _: None
    ) -> None:
        self._make_lock, self._tables, self._give_up = make_lock, tables, give_up
        self.number = 0
        self.lock = make_lock()
        in_forked_child(self._begin_in_child)

    def _begin_in_child(self) -> None:
        self.lock, self.number = self._make_lock(), 0
        inherited = [each for table in self._tables for each in table.values()]
        for table in self._tables:
            table.clear()
        for each in inherited:
            self._give_up(each)


def process_id() -> int:
    """Return the number of this process."""
    return os.getpid()


def end_process(status: int) -> None:
    """End this process at once: no thread of it does anything more."""
    os._exit(status)


def usable_cores() -> int:
    """Return how many of the machine's cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def files_max() -> int:
    """Return how many files this process may have open at a time (``ulimit -n``)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


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
