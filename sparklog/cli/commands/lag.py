"""The options of ``lag``."""

from __future__ import annotations

from typing import Annotated

import typer

from sparklog.cli.commands.arguments import Fields, Json


def lag(
    path: Annotated[str, typer.Argument(help="The log directory that the query reads, or a topic's path.")],
    checkpoint: Annotated[str, typer.Argument(help="The query's checkpoint.")],
    source: Annotated[str, typer.Option(help="Which of the query's sources, by number or name.")] = "0",
    follow: Annotated[bool, typer.Option("--follow", help="Print it again every two seconds, until interrupted.")] = (
        False
    ),
    as_json: Json = False,
    _fields: Fields = False,
) -> None:
    """Show how far a query of Spark is behind, whether it runs or is stopped: offsets that it has not committed.

    It reads the checkpoint of a query of seglog, or of Spark's Kafka source on the same topics.
    """
    from sparklog.cli.work.lag import show_lag

    show_lag(path, checkpoint, source, follow=follow, as_json=as_json)
