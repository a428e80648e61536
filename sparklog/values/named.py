"""Imports a user's decoder or partitioner by its name, ``package.module:name``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sparklog.errors import InvalidOptionError


def imported(name: str, what: str) -> Any:
    """Import a callable.

    Parameters
    ----------
    name : str
        ``package.module:name``.
    what : str
        Its role, for errors, such as "the decoder".

    Raises
    ------
    InvalidOptionError
        It cannot be imported, does not exist, or cannot be called.
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = import_module(module_name)
    except Exception as error:
        raise InvalidOptionError(f"{what} {name!r} cannot be imported: {error!r}") from error
    found: Any = getattr(module, attribute, None)
    if not callable(found):
        missing = "cannot be called" if hasattr(module, attribute) else f"is not in {module.__file__}"
        raise InvalidOptionError(f"{what} {name!r} cannot be used: {attribute!r} {missing}")
    return found
