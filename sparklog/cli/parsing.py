"""The values of options: words to choose from, and how times, spans of time and properties are parsed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from sparklog.errors import InvalidOptionError
from sparklog.log.clock import iso_milliseconds


class IsolationLevels(StrEnum):
    """The values of ``--isolation-level``."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Format(StrEnum):
    """The values of ``--format``."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    RAW = "raw"


class InputFormat(StrEnum):
    """The values of ``--format`` of ``produce``: the form of the input."""

    LINES = "lines"
    JSON_LINES = "jsonl"


_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def milliseconds_of(text: str, option: str) -> int:
    """Parse an option's time: ms since the epoch, or ISO 8601, in UTC unless it has an offset."""
    if text.lstrip("-").isdecimal():
        return int(text)
    time_ms = iso_milliseconds(text)
    if time_ms is None:
        raise InvalidOptionError(f"{option} {text!r} is neither ISO 8601 nor ms since 1970")
    return time_ms


def properties_of(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parse an option's properties, ``name=value`` each."""
    properties: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise InvalidOptionError(f"{option} {text!r} is not name=value")
        properties[name] = value
    return properties


def seconds_of(text: str, option: str) -> float:
    """Parse an option's span of time: 30s, 5m, 2h or 1d."""
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or not int(number) or unit not in _UNIT_SECONDS:
        raise InvalidOptionError(f"{option} {text!r} is no time such as 30s, 5m, 2h or 1d")
    return float(int(number) * _UNIT_SECONDS[unit])
