"""Translates the topic property ``message.format.version``, a version of Kafka, to the record format that it writes.

Source: apache/kafka 3, ApiVersion.java (MetadataVersion.java).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from sparklog.errors import InvalidOptionError

NEWEST: Final = "3.0-IV1"
"""The property's default in Kafka 3, the last to have it."""

TAKES: Final = "a version of Kafka, such as 0.9.0, 0.10.2 or 2.8"

_VERSION: Final = re.compile(
    r"(?:0\.(?:(8)\.[0-2]|(9)\.0|(10)\.[0-2]|11\.0)|[1-9]\d?\.\d{1,2})(?:-IV\d|\.\d{1,2}){0,2}"
)


@lru_cache(maxsize=64)
def magic_of(version: str) -> int:
    """Return the record format (magic) that a version of Kafka writes.

    Raises
    ------
    InvalidOptionError
        There is no such version.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        raise InvalidOptionError(f"message.format.version must be {TAKES}, got {version!r}")
    is_8, is_9, is_10 = found.groups()
    if is_10:
        return 1
    return 0 if is_8 or is_9 else 2
