"""Imports the libraries of optional extras when a decoder first needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sparklog.errors import InvalidOptionError


def import_optional(module: str, extra: str) -> Any:
    """Import a library that comes with an extra of sparklog.

    Raises
    ------
    InvalidOptionError
        It is not installed. The error says how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidOptionError(
            f'the format {extra} needs the package {module.partition(".")[0]!r}: pip install "sparklog[{extra}]"'
        ) from error
