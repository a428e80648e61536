"""How options are declared, and how the text that Spark hands over is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

from sparklog.errors import InvalidOptionError
from sparklog.storage.registry import locate

LONG_MAX: Final = (1 << 63) - 1
_SHOWN_MAX: Final = 200

NO_PATH: Final = (
    "no path is given: say .load('/path/to/logs'), a log directory, a topic's path or a partition's folder. "
    "If this is a table made with CREATE TABLE ... USING seglog: Spark does not hand a table's options and path on to "
    "a Python data source. Instead, say CREATE TEMPORARY VIEW v USING seglog OPTIONS (path '...'), or "
    "SELECT * FROM t WITH (path = '...'), or spark.read.options(path='...').table('t')"
)


def option(name: str, default: Any, parse: Callable[[str, str], Any], doc: str) -> Any:
    """Declare an option: its name, what it is when it is not given, how its text is read, and what it does."""
    return field(default=default, metadata={"name": name, "parse": parse, "doc": doc})


def text(_: str, given: str) -> str:
    return given


def location(name: str, text: str) -> str:
    return locate(text, name).path


def location_or_none(name: str, text: str) -> str:
    """Read a path that may be given elsewhere, and then is empty here."""
    return location(name, text) if text.strip() else ""


def boolean(name: str, text: str) -> bool:
    return choice("true", "false")(name, text) == "true"


def choice(*words: str) -> Callable[[str, str], str]:
    def parse(name: str, text: str) -> str:
        if text.strip().lower() not in words:
            raise InvalidOptionError(f"{name} must be {' or '.join(words)}, got {text!r}")
        return text.strip().lower()

    return parse


def positive(message: str, at_most: int = LONG_MAX) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        number = integer(text)
        if number is None:
            raise InvalidOptionError(f"{name} must be a whole number, got {shown(text)!r}")
        if number <= 0:
            raise InvalidOptionError(message)
        if number > at_most:
            raise InvalidOptionError(f"{name} must be at most {at_most}, got {number}")
        return number

    return parse


def integer(text: str) -> int | None:
    """Read a number of 64 bits; None where the text is none."""
    number = int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", text) else None
    return number if number is not None and is_long(number) else None


def is_long(number: int) -> bool:
    return -LONG_MAX - 1 <= number <= LONG_MAX


def shown(text: str) -> str:
    """Return a text as a message shows it: cut where it is long."""
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}... ({len(text)} characters)"


def whole(name: str, given: str) -> int:
    """Read a number that is not negative."""
    number = integer(given)
    if number is None or number < 0:
        raise InvalidOptionError(f"{name} must be a whole number, 0 or more, got {given!r}")
    return number
