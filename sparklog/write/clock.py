"""The time in the unit that logs have; whoever decides by it is handed it."""

from __future__ import annotations

from sparklog.log.clock import NS_PER_MS, wall_clock_ns


def wall_clock_ms() -> int:
    """Return the time, ms since the epoch."""
    return wall_clock_ns() // NS_PER_MS
