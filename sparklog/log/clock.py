"""The wall clock, read in one place."""

from __future__ import annotations

import time


def wall_clock_ns() -> int:
    """Return the time, ns since the epoch."""
    return time.time_ns()
