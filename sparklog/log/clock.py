"""Reads the wall clock, in one place, and defines its units."""

from __future__ import annotations

import time
from typing import Final

NS_PER_MS: Final = 1_000_000

wall_clock_ns: Final = time.time_ns
"""Returns the time, ns since the epoch."""


def wall_clock_ms() -> int:
    """Return the time, ms since the epoch."""
    return wall_clock_ns() // NS_PER_MS
