"""The command ``lag``: its arguments and options."""

from __future__ import annotations

from typing import Annotated

import typer

from sparklog.cli.commands.arguments import Json, ShowFields


def lag(
    path: Annotated[str, typer.Argument(help="The log directory that the query reads, or a topic's path.")],
    checkpoint: Annotated[str, typer.Argument(help="The query's checkpoint.")],
    source: Annotated[str, typer.Option(help="Which of the query's sources, by number or name.")] = "0",
    follow: Annotated[bool, typer.Option("--follow", help="Print it again every two seconds, until interrupted.")] = (
        False
    ),
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Show how far a Spark query is behind, running or stopped: the offsets that it has not committed.

    Reads the checkpoint of a query on seglog, or on Spark's Kafka source with the same topics.
    """
    from sparklog.cli.work.lag import show_lag

    show_lag(path, checkpoint, source, follow=follow, as_json=as_json)
