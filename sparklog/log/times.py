"""Times as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

# Python reads dates and times without dashes too, which are as good as numbers.
_DATE: Final = re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9])")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_milliseconds(text: str) -> int | None:
    """Read a time in ISO 8601, which is in UTC unless it says otherwise.

    Returns
    -------
    int or None
        ms since the epoch: the first that are not before the time. None where the text is no such time.
    """
    if not _DATE.match(text):
        return None
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return -((_EPOCH - time) // timedelta(milliseconds=1))
