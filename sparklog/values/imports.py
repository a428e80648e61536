"""Imports by name: a decoder or a partitioner of the user, and the libraries of optional extras."""

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


def import_optional(module: str, package: str, extra: str) -> Any:
    """Import a module of a library that comes with an extra of sparklog.

    Parameters
    ----------
    module : str
        The module, such as ``google.protobuf.descriptor_pb2``.
    package : str
        The library's name on the package index.
    extra : str
        The extra, named like the format.

    Raises
    ------
    InvalidOptionError
        It is not installed. The error says how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidOptionError(
            f'the format {extra} needs the package {package}: pip install "sparklog[{extra}]"'
        ) from error
