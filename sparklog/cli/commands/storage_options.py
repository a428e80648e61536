"""The option ``--storage``, which every command that takes paths has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from sparklog.errors import InvalidOptionError
from sparklog.storage.given_options import GivenOptions, parse_storage_options

_NAME = "--storage"


def add_storage_option(command: Any) -> None:
    """Give ``--storage`` to a command, or to all commands of a group."""
    for each in getattr(command, "commands", {}).values():
        add_storage_option(each)
    if not hasattr(command, "commands"):
        command.params.append(_option())


def _option() -> Any:
    """Return the option alone, taken from a command that has no other."""
    holder = typer.Typer(add_completion=False)
    holder.command()(_holder)
    (option,) = (each for each in typer.main.get_command(holder).params if _NAME in each.opts)
    return option


def _put_in_force(context: typer.Context, given: list[str] | None) -> None:
    if given and not context.resilient_parsing:
        options = parse_storage_options(_named(given), refuses_literals=True)
        context.with_resource(_in_force(options))


def _named(given: list[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            # The text may be a secret without its name.
            raise InvalidOptionError(f"{_NAME} takes NAME=VALUE, such as endpoint=https://store.example.org")
        named[name.strip()] = value
    return named


@contextmanager
def _in_force(options: GivenOptions) -> Iterator[None]:
    with options.in_force():
        yield
    options.warn_idle()


def _holder(
    _given: Annotated[
        list[str] | None,
        typer.Option(
            _NAME,
            metavar="NAME=VALUE",
            help="An option of the storage of URLs, such as endpoint=https://...; secrets by env:VARIABLE or "
            "file:/path; may be repeated.",
            callback=_put_in_force,
            expose_value=False,
        ),
    ] = None,
) -> None:
    """Hold the option."""
