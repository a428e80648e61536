"""The wall clock, read in one place."""

from __future__ import annotations

import time
from typing import Final

wall_clock_ns: Final = time.time_ns
"""Returns the time, ns since the epoch."""
