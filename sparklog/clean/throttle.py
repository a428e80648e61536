"""Keeps a cleaning from using all of a disk: it sleeps where more bytes were read and written than a rate allows."""

from __future__ import annotations

import time
from collections.abc import Callable


class Throttle:
    """Lets so many bytes a second pass.

    Parameters
    ----------
    bytes_per_second : float
        Of what is read and written, together.
    clock, sleep : callable
        Seconds, from any time on; and waits for so many of them.
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
        """Say that so many bytes were moved; return when more may be."""
        now = self._clock()
        # Time in which nothing was moved is not made up for.
        self._due = max(self._due, now) + size_bytes / self._rate
        if self._due > now:
            self._sleep(self._due - now)
