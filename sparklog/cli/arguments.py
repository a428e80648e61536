"""Arguments and options that several commands take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import typer

from sparklog.cli import fields, tables, views
from sparklog.errors import InvalidOptionError
from sparklog.log.times import iso_milliseconds

_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="A log directory, a topic's path (/logs/events), or a partition's folder."),
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Work on so many partitions side by side; all cores, if there is much to do."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines, whose fields --fields says.")]

Where = Annotated[
    str | None,
    typer.Option("--where", help="Only records that pass, such as \"key = 'user-1' AND headers['kind'] = 'pay'\"."),
]


def _show_fields(context: typer.Context, wanted: bool) -> None:
    if wanted:
        # Without the name of the program.
        _, _, command = context.command_path.partition(" ")
        tables.table(views.FIELDS, fields.rows_of(command.strip()), heading=lambda row: str(row["of"]))
        raise typer.Exit


Fields = Annotated[
    bool,
    typer.Option("--fields", help="Say what the fields of --json are, and stop.", is_eager=True, callback=_show_fields),
]


def milliseconds_of(text: str, option: str) -> int:
    """Read a time that an option was given: ms since the epoch, or ISO 8601, in UTC unless it says otherwise."""
    if text.lstrip("-").isdecimal():
        return int(text)
    time_ms = iso_milliseconds(text)
    if time_ms is None:
        raise InvalidOptionError(f"{option} {text!r} is neither ISO 8601 nor ms since 1970")
    return time_ms


def properties_of(texts: Iterable[str], option: str) -> dict[str, str]:
    """Read properties, ``name=value`` each, that an option was given."""
    properties: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise InvalidOptionError(f"{option} {text!r} is not name=value")
        properties[name] = value
    return properties


def seconds_of(text: str, option: str) -> float:
    """Read a span of time that an option was given: 30s, 5m, 2h or 1d."""
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or not int(number) or unit not in _UNIT_SECONDS:
        raise InvalidOptionError(f"{option} {text!r} is no time such as 30s, 5m, 2h or 1d")
    return float(int(number) * _UNIT_SECONDS[unit])
