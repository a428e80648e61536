"""The command ``produce``: its arguments and options."""

from __future__ import annotations

from typing import Annotated

import typer

from sparklog.cli.parsing import InputFormat
from sparklog.errors import InvalidOptionError


def produce(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Log directories that no broker runs on.")],
    topic: Annotated[str, typer.Option("--topic", help="The topic; it must exist.")],
    form: Annotated[
        InputFormat,
        typer.Option("--format", help="Lines, each a value; or JSON lines as dump and export write them."),
    ] = InputFormat.LINES,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", help="The text between the key and the value of a line.")
    ] = None,
    null_marker: Annotated[
        str | None, typer.Option("--null-marker", help="The text of a key or a value that is null.")
    ] = None,
    parse_headers: Annotated[
        bool, typer.Option("--parse-headers", help="A line begins with headers, name:value,name:value, and a tab.")
    ] = False,
) -> None:
    """Write each line of the input as a record: 'sparklog produce /logs --topic events < lines.txt'.

    An object of JSON lines has key, value and headers, and may have timestamp; other fields are ignored. A line that is
    not a record ends the command; the lines before it are written.
    """
    # This loads compiled code, which other commands should not wait for.
    from sparklog.cli.work.produce import LineOptions, write_lines

    if form is not InputFormat.LINES and (key_separator is not None or null_marker is not None or parse_headers):
        raise InvalidOptionError("--key-separator, --null-marker and --parse-headers are for lines that are not JSON")
    write_lines(
        paths, topic, LineOptions(key_separator, null_marker, parse_headers) if form is InputFormat.LINES else None
    )
