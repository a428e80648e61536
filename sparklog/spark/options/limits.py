"""Bounds on the work that an option may ask of the driver: a wrong number is an error, and not a driver that hangs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from sparklog.errors import InvalidOptionError

TASKS_MAX: Final = 100_000
"""The most tasks of a read. Each costs memory of Spark's driver, and some tens of ms of a Python worker."""

NEW_PARTITIONS_MAX: Final = 1_000_000
"""The most partitions of a topic that a write makes; a folder is made for each at once."""

MATCH_SECONDS_MAX: Final = 10.0
"""How long it may take to match a pattern with the names of topics. A sound pattern takes microseconds."""


@contextmanager
def match_time(name: str, pattern: str) -> Iterator[None]:
    """Bound the time of a block that matches a regular expression, which may backtrack for longer than anybody waits.

    The matcher looks for signals, and Python hears them in the main thread, which plans are made in. In other threads
    the time is not bounded.

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
