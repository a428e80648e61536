"""The commands ``delete-records`` and ``truncate``: their arguments and options."""

from __future__ import annotations

from typing import Annotated

import typer

from sparklog.cli.commands.arguments import Json, ShowFields
from sparklog.cli.parsing import milliseconds_of
from sparklog.errors import InvalidOptionError

_FAILED = 1

PartitionPath = Annotated[str, typer.Argument(metavar="PATH", help="A partition's folder, <topic>-<partition>.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
LockTimeoutSeconds = Annotated[
    float, typer.Option(min=0, help="How long to wait for other writers; a running broker is an error at once.")
]


def delete_records(
    path: PartitionPath,
    before_offset: Annotated[
        int | None,
        typer.Option("--before-offset", min=-1, help="Delete records before this offset; -1 is the log's end."),
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option("--before-time", help="Delete records before the first at or after: ISO 8601 (UTC), or ms."),
    ] = None,
    yes: Yes = False,
    lock_timeout_seconds: LockTimeoutSeconds = 60.0,
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Delete the first records of a partition, as kafka-delete-records does: its log start offset is raised.

    Says what would go, and asks; no leaves everything unchanged. The segment with the new start stays whole: readers
    skip the records before it. Exit status 1 if the log is damaged: it stays unchanged.
    """
    # This loads compiled code, which other commands should not wait for.
    from sparklog.cli.work.cut import delete_if_confirmed

    if (before_offset is None) == (before_time is None):
        raise InvalidOptionError("say which records to delete by one of --before-offset and --before-time")
    time_ms = None if before_time is None else milliseconds_of(before_time, "--before-time")
    if not delete_if_confirmed(path, before_offset, time_ms, lock_timeout_seconds, asks=not yes, as_json=as_json):
        raise typer.Exit(_FAILED)


def truncate(
    path: PartitionPath,
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="The first offset to cut off.")],
    yes: Yes = False,
    lock_timeout_seconds: LockTimeoutSeconds = 60.0,
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Cut off the end of a partition's log, from an offset on. THESE RECORDS ARE GONE.

    Says what would go, and asks; no leaves everything unchanged. Batches go whole, so the log may end before the
    offset. Exit status 1 if the log is damaged: it stays unchanged.
    """
    from sparklog.cli.work.cut import truncate_if_confirmed

    if not truncate_if_confirmed(path, offset, lock_timeout_seconds, asks=not yes, as_json=as_json):
        raise typer.Exit(_FAILED)
