"""Gives commands the options that classes list: options that jobs declare, and options of one command."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, get_annotations, signature
from typing import Annotated, Any, Final, Literal

import typer

from sparklog.log.properties import Option, options_of

_TYPES: Final[dict[type, Any]] = {
    bool: bool, int: int | None, float: float | None, str: str | None, tuple: list[str] | None
}  # fmt: skip
"""The types of options by kind, for kinds that a text can express; other options exist only in Python."""


def with_options_of(*listing: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command more options. Its ``**given`` has the options that are given, or have a default.

    Parameters
    ----------
    listing : type
        Dataclasses that also declare options for Python, and classes of typer's options.
    """
    further = [
        each for one in listing for each in (_declared(one) if "__dataclass_fields__" in vars(one) else _own(one))
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        whole = signature(command, eval_str=True)
        kept = [each for each in whole.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        own = {each.name: each.replace(kind=Parameter.KEYWORD_ONLY) for each in kept}
        # In the help, required options come first, and the options of all commands last.
        first = [each for each in own.values() if each.default is Parameter.empty]
        last = [each for each in own.values() if each.default is not Parameter.empty]

        @wraps(command)
        def call(**values: Any) -> None:
            command(**{name: value for name, value in values.items() if value is not None or name in own})

        call.__signature__ = whole.replace(parameters=[*first, *further, *last])  # type: ignore[attr-defined]
        return call

    return decorate


def _own(listing: type) -> list[Parameter]:
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=vars(listing)[name], annotation=annotation)
        for name, annotation in get_annotations(listing, eval_str=True).items()
    ]


def _declared(listing: type) -> list[Parameter]:
    return [_parameter(name, each) for name, each in options_of(listing).items() if each.kind in _TYPES]


def _parameter(name: str, declared: Option) -> Parameter:
    flag = "--" + (declared.spellings[0].name if declared.spellings else name).replace("_", "-")
    # Only the first sentence: the others are for callers from Python.
    said = declared.doc.partition(". ")[0].rstrip(".").replace("``", "")
    given = typer.Option(
        f"{flag}/--no-{flag[2:]}" if declared.default is True else flag,
        help=f"{said}{'; may be repeated' if declared.kind is tuple else ''}.",
        min=declared.at_least if declared.kind in (int, float) else None,
    )
    kind = Literal[declared.choices] if declared.choices else _TYPES[declared.kind]
    default = declared.default if declared.default != () else None
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, given])
