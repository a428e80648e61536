"""``lag``: prints how far a Spark query is behind the logs that it reads, from its checkpoint."""

from __future__ import annotations

import time
from typing import Any, Final

from sparklog.cli.output import render, tables
from sparklog.cli.output.fields import QUERY_LAG
from sparklog.errors import PathNotFoundError
from sparklog.topic.places.discovery import discover
from sparklog.topic.places.live import LiveLogs
from sparklog.topic.streams.checkpoints import committed_offset, lag_of

_LOOKED_EVERY_SECONDS: Final = 2.0


def show_lag(path: str, checkpoint: str, source: str, *, follow: bool, as_json: bool) -> None:
    """Print how far a query is behind; with ``follow``, every two seconds until interrupted."""
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
    """Make a row for each partition of the topics that the query reads."""
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
        render.put_rows(rows)
        return
    tables.table(QUERY_LAG.columns, rows)
    known = [row["lag"] for row in rows if row["lag"] is not None]
    if known:
        average = sum(known) / len(known)
        render.say(f"behind by {sum(known)} offsets in all: {min(known)} to {max(known)}, on average {average:.1f}")
