"""Arguments and options that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

from sparklog.cli.output import fields, tables
from sparklog.cli.output.columns import FIELD_COLUMNS

Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="A log directory, a topic's path (/logs/events), or a partition's folder."),
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Number of partitions to work on in parallel; all cores, if there is much to do."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines; --fields lists their fields.")]

EscapeFormulas = Annotated[
    bool,
    typer.Option("--escape-formulas", help="Put ' before CSV text that a spreadsheet would take for a formula."),
]
WhereText = Annotated[
    str | None,
    typer.Option("--where", help="Only records that pass, such as \"key = 'user-1' AND headers['kind'] = 'pay'\"."),
]


def _show_fields(context: typer.Context, wanted: bool) -> None:
    if wanted:
        # The command's path without the name of the program.
        _, _, command = context.command_path.partition(" ")
        tables.table(FIELD_COLUMNS, fields.rows_of_fields(command.strip()), heading=lambda row: str(row["of"]))
        raise typer.Exit


ShowFields = Annotated[
    bool,
    typer.Option("--fields", help="List the fields of --json, and stop.", is_eager=True, callback=_show_fields),
]
