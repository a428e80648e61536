"""Limits how fast a cleaning reads and writes, so that it leaves some of the disk to others."""

from __future__ import annotations

import time
from collections.abc import Callable


class Throttle:
    """Sleeps when more bytes are moved than a rate allows.

    Parameters
    ----------
    bytes_per_second : float
        The limit for bytes read and written, together.
    clock, sleep : callable
        Returns seconds since any fixed time; and sleeps for a number of seconds.
    """

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = bytes_per_second, clock, sleep
        self._due = clock()

    def add(self, size_bytes: int) -> None:
        """Count moved bytes, and sleep until more may be moved."""
        now = self._clock()
        # Idle time earns no credit.
        self._due = max(self._due, now) + size_bytes / self._rate
        if self._due > now:
            self._sleep(self._due - now)
