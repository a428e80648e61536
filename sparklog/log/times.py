"""Turns the times that users give into Kafka's: milliseconds since 1970, UTC."""

from __future__ import annotations

import operator
import re
from datetime import UTC, datetime, timedelta
from typing import Final, SupportsIndex

from sparklog.errors import InvalidOptionError

Time = SupportsIndex | datetime
"""What a user may give for a time: ms since the epoch, or a datetime that has a time zone."""

# Python reads dates and times without dashes too, which are as good as numbers.
_DATE: Final = re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9])")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def to_ms(time: Time, argument: str = "timestamp") -> int:
    """Return a time as ms since the epoch; one between two milliseconds as the later of them.

    No record has a time between two milliseconds, so that those at or after the time are the same.

    Raises
    ------
    InvalidOptionError
        It is a datetime without a time zone, which is another time on another machine, or it is neither kind of time.
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
    """Read a time in ISO 8601, which is in UTC unless it says otherwise.

    Returns
    -------
    int or None
        ms since the epoch: the first that are not before the time. None where the text is no such time.
    """
    around = iso_milliseconds_around(text)
    return None if around is None else around[1]


def iso_milliseconds_around(text: str) -> tuple[int, int] | None:
    """Read the same, as the last ms that is not after the time and the first that is not before it."""
    if not _DATE.match(text):
        return None
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    return since // _MS, -(-since // _MS)
