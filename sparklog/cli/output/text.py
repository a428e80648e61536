"""Formats values for people."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(timestamp: int | None) -> str:
    """Return ms since the epoch as ISO 8601, UTC; as a number if the date would be after the year 9999."""
    if timestamp is None or timestamp < 0:
        return "-"
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except OverflowError:
        return str(timestamp)


def bytes_text(count: int) -> str:
    """Return a number of bytes with a unit."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{count} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def data_text(data: bytes | None) -> str:
    """Return a key or a value as text if it is UTF-8, else hexadecimal; null is ``null``, an empty one ``""``."""
    if data is None:
        return "null"
    if not data:
        return '""'
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def printable(text: str) -> str:
    """Return a text with control characters, which could move a terminal's cursor or worse, as escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def terminal_safe(text: str) -> str:
    """Return JSON with invisible characters as JSON escapes, which mean the same there; ends of lines stay."""
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def counted(number: int, noun: str) -> str:
    """Return a count with its noun, such as "2 files"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
