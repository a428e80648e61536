"""Imports the libraries of optional extras when a decoder first needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sparklog.errors import InvalidOptionError


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
