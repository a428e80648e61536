"""Parses options as Spark passes them: names in any case, values as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.log.properties import LONG_MAX, options_of
from sparklog.storage.registry import Location, locate

NO_PATH: Final = (
    "no path is given: say .load('/path/to/logs'), a log directory, a topic's path or a partition's folder. "
    "If this is a table made with CREATE TABLE ... USING seglog, or by saveAsTable: Spark does not hand a table's "
    "options and path on to a Python data source. What saveAsTable has written is in the logs at its path, and is read "
    "with .load(path). Instead of a table, say CREATE TEMPORARY VIEW v USING seglog OPTIONS (path '...'), or "
    "SELECT * FROM t WITH (path = '...'), or spark.read.options(path='...').table('t')"
)

NO_PATH_TO_WRITE: Final = (
    "no path is given: say .save('/path/to/logs'), a log directory, a topic's path or a partition's folder. "
    "If this is a table (saveAsTable, insertInto, CREATE TABLE ... AS SELECT): Spark does not hand a table's path on "
    "to a Python data source, so that nobody could read the table. Write with .save(path), and read with .load(path) "
    "or CREATE TEMPORARY VIEW v USING seglog OPTIONS (path '...')"
)


def read_declared(declaring: Any, given: Mapping[str, str]) -> dict[str, Any]:
    """Parse the given options that a dataclass declares.

    Parameters
    ----------
    declaring : dataclass
        The dataclass, with options declared by `sparklog.log.properties.option`.
    given : mapping of str to str
        The given options, names in lower case.

    Returns
    -------
    dict of str to Any
        Values by the names of the dataclass's fields.
    """
    declared = options_of(declaring).items()
    return {
        field: option.parse(given[option.name.lower()]) for field, option in declared if option.name.lower() in given
    }


def declared_names(declaring: Any) -> list[str]:
    """Return the names of the options that a dataclass declares."""
    return [option.name for option in options_of(declaring).values()]


def refuse_unknown(given: Iterable[str], known: Mapping[str, str], where: str, listed: Iterable[str]) -> None:
    """Raise `InvalidOptionError` for a name that no option has.

    Parameters
    ----------
    given : iterable of str
        Names in lower case.
    known : mapping of str to str
        The known names: in lower case, and as they are spelled.
    where : str
        The operation that the options belong to, for the message.
    listed : iterable of str
        The names to list if none is close to the unknown one.
    """
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known, f"there are {', '.join(listed)}")
            raise InvalidOptionError(f"no option {name!r}{where}: {hint}")


def in_lower_case(given: Mapping[str, str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Return options by names in lower case; an alias also sets the option that it stands for.

    Raises
    ------
    InvalidOptionError
        An option and its alias have values that differ.
    """
    named = {name.lower(): text for name, text in given.items()}
    for alias, name in aliases.items():
        value = named.get(alias)
        if value is not None and named.setdefault(name.lower(), value) != value:
            raise InvalidOptionError(f"{name} is {named[name.lower()]!r} and {alias} is {value!r}: give one of them")
    return named


def location(name: str, text: str) -> Location:
    """Read a path."""
    return locate(text, name)


def location_or_none(name: str, text: str) -> Location | None:
    """Read a path; None if the text is blank, since another option may give the path."""
    return location(name, text) if text.strip() else None


def integer(text: str) -> int | None:
    """Read a whole number of 64 bits; None if the text is not one."""
    number = int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", text) else None
    return number if number is not None and is_long(number) else None


def is_long(number: int) -> bool:
    """Return whether a number fits 64 bits."""
    return -LONG_MAX - 1 <= number <= LONG_MAX
