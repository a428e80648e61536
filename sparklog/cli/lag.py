"""``lag``: prints how far a query of Spark is behind the logs that it reads, by its checkpoint."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer

from sparklog.cli import render, tables, views
from sparklog.cli.arguments import Fields, Json
from sparklog.errors import PathNotFoundError
from sparklog.topic.discovery import discover
from sparklog.topic.live import LiveLogs
from sparklog.topic.stream_checkpoint import committed_offset, lag_of

_LOOKED_EVERY_SECONDS: Final = 2.0


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
    logs = LiveLogs(is_committed=False)
    try:
        while True:
            _print(_rows(path, checkpoint, source, logs), as_json=as_json)
            if not follow:
                return
            if not render.flushed():
                raise BrokenPipeError
            time.sleep(_LOOKED_EVERY_SECONDS)
    except KeyboardInterrupt:
        return


def _rows(path: str, checkpoint: str, source: str, logs: LiveLogs) -> list[dict[str, Any]]:
    """Make a row of each partition of the topics that the query reads."""
    read = committed_offset(checkpoint, source)
    topics = {at.topic for at in read.offsets}
    found = logs.look(folder for folder in discover([path]).partitions if folder.topic in topics)
    if topics and not found:
        raise PathNotFoundError(f"none of the topics that the query reads is at {path}: {', '.join(sorted(topics))}")
    ends = {at: each.latest for at, each in found.items()}
    behind = lag_of(read, ends)
    return [
        {
            "topic": at.topic,
            "partition": at.partition,
            "offset": read.offsets.get(at),
            "end_offset": ends.get(at),
            "lag": behind.get(at),
        }
        for at in sorted(ends.keys() | read.offsets.keys())
    ]


def _print(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        render.json_lines(rows)
        return
    tables.table(views.LAG, rows)
    known = [row["lag"] for row in rows if row["lag"] is not None]
    if known:
        average = sum(known) / len(known)
        render.say(f"behind by {sum(known)} offsets in all: {min(known)} to {max(known)}, on average {average:.1f}")
