"""The values of secret options: references to a variable or a file, and literals that are never shown.

A reference is ``env:VARIABLE`` or ``file:/path``. It travels as it is, and each process that opens a store looks it up;
so nothing that is pickled, logged or shown has the secret. A literal is a `Secret`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sparklog.errors import InvalidOptionError
from sparklog.storage.process import environment_value

SECRET_PREFIX: Final = "secret."
"""The names of secret options begin with it."""

_BYTES_MAX: Final = 1 << 16
_VARIABLE: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_FILE: Final = re.compile(r"file:(/.+)", re.DOTALL)


class Secret(str):
    """Text that neither ``repr`` nor ``str`` nor ``format`` shows. Its pickle has the text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret(...)"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)


def is_reference(text: str) -> bool:
    """Return whether the text of a secret names a variable or a file."""
    return _VARIABLE.fullmatch(text) is not None or _FILE.fullmatch(text) is not None


def looked_up(name: str, value: str) -> str:
    """Return the value of a storage's option as its store takes it; references are looked up in this process.

    Parameters
    ----------
    name : str
        The option's name without ``storage.``; only names that begin with `SECRET_PREFIX` have references.

    Raises
    ------
    InvalidOptionError
        The variable is not set, or the file cannot be read, is empty, or is too large for a key.
    """
    if not name.startswith(SECRET_PREFIX):
        return value
    variable, file = _VARIABLE.fullmatch(value), _FILE.fullmatch(value)
    if variable is not None:
        found = environment_value(variable[1])
        if not found:
            raise InvalidOptionError(
                f"storage.{name} is in the variable {variable[1]}, which is not set in this process: set it where "
                f"sparklog runs; for Spark, in the driver's environment, and with spark.executorEnv.{variable[1]}"
            )
        return found
    return str.__str__(value) if file is None else _content(name, Path(file[1]))


def _content(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidOptionError(
            f"storage.{name} is in the file {path}, which this process cannot read: {error.strerror}"
        ) from None
    if len(content) > _BYTES_MAX:
        raise InvalidOptionError(f"storage.{name} is in the file {path}, which has more than {_BYTES_MAX} bytes")
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        raise InvalidOptionError(f"storage.{name} is in the file {path}, which is not UTF-8") from None
    if not text:
        raise InvalidOptionError(f"storage.{name} is in the file {path}, which is empty")
    return text
