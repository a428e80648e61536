"""The wall clock, read in one place; whoever decides by the time is handed it."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Return the time, ms since the epoch."""
    return time.time_ns() // 1_000_000
