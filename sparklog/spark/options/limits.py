"""Limits the work that an option may cause on the driver: a wrong number is an error, and the driver does not hang."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from sparklog.errors import InvalidOptionError

TASKS_MAX: Final = 100_000
"""The most tasks of a read. Each costs memory in Spark's driver, and some tens of ms in a Python worker."""

NEW_PARTITIONS_MAX: Final = 1_000_000
"""The most partitions that a write creates for a topic. It creates a folder for each at once."""

MATCH_SECONDS_MAX: Final = 10.0
"""The time limit for matching a pattern with the names of topics. A sound pattern takes microseconds."""


@contextmanager
def match_time(name: str, pattern: str) -> Iterator[None]:
    """Limit the time of a block that matches a regular expression, which may backtrack almost without end.

    The matcher checks for signals, and Python handles them in the main thread, which makes the plans. In other threads
    the time is not limited.

    Raises
    ------
    InvalidOptionError
        The block took longer; the error names the option.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def refuse(_signal: int, _frame: FrameType | None) -> None:
        raise InvalidOptionError(
            f"{name} {pattern!r} cannot be matched with the names of the topics in {MATCH_SECONDS_MAX:g} s: "
            f"a repetition within a repetition, such as (a+)+, takes endless time; write it without, or use subscribe"
        )

    before = signal.signal(signal.SIGALRM, refuse)
    signal.setitimer(signal.ITIMER_REAL, MATCH_SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
