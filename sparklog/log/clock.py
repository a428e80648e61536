"""Reads the wall clock, in one place, defines its units, and converts users' times to ms since 1970, UTC."""

from __future__ import annotations

import operator
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final, SupportsIndex

from sparklog.errors import InvalidOptionError

NS_PER_MS: Final = 1_000_000

wall_clock_ns: Final = time.time_ns
"""Returns the time, ns since the epoch."""


def wall_clock_ms() -> int:
    """Return the time, ms since the epoch."""
    return wall_clock_ns() // NS_PER_MS


Time = SupportsIndex | datetime
"""The forms in which a user may give a time: ms since the epoch, or a datetime with a time zone."""

# Python also reads dates and times without dashes, which look like numbers.
_DATE: Final = re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9])")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def to_ms(time: Time, argument: str = "timestamp") -> int:
    """Return a time as ms since the epoch, rounded up.

    No record has a time between two milliseconds, so the same records are at or after the rounded time.

    Raises
    ------
    InvalidOptionError
        It is a datetime without a time zone, whose meaning depends on the machine, or it is no time.
    """
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise InvalidOptionError(
                f"{argument} has no time zone: {time!r}; say which it is in, as in {time!s}+00:00, "
                f"or give it one with .astimezone()"
            )
        return -((_EPOCH - time) // _MS)
    try:
        return operator.index(time)
    except TypeError:
        raise InvalidOptionError(
            f"{argument} must be a datetime with a time zone, or a whole number of ms since 1970, got {time!r}"
        ) from None


def iso_milliseconds(text: str) -> int | None:
    """Parse a time in ISO 8601, in UTC unless it has a zone.

    Returns
    -------
    int or None
        ms since the epoch, rounded up. None if the text is no such time.
    """
    around = iso_milliseconds_around(text)
    return None if around is None else around[1]


def iso_milliseconds_around(text: str) -> tuple[int, int] | None:
    """Return the time rounded down and up to whole milliseconds; None if the text is no such time."""
    if not _DATE.match(text):
        return None
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    return since // _MS, -(-since // _MS)
