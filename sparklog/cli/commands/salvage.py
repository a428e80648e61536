"""The command ``salvage``: its arguments, and its options, which have the same names in Python."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparklog.cli.commands.arguments import Json, ShowFields
from sparklog.cli.commands.declared import with_options_of
from sparklog.cli.commands.jobs import Sources
from sparklog.jobs.run.options import LogJobOptions
from sparklog.topic.selection import PartitionSelection, QuarantineOption

_FAILED = 1


@with_options_of(PartitionSelection, QuarantineOption, LogJobOptions)
def salvage(
    sources: Sources,
    target: Annotated[str, typer.Argument(metavar="DST", help="A new or empty folder, which becomes a log directory.")],
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, help="Show at most this number of partitions; 20 on a terminal.")
    ] = None,
    as_json: Json = False,
    _fields: ShowFields = False,
    **given: Any,
) -> None:
    """Make a clean log directory from a damaged one: every batch whose checksum agrees, and holes where damage was.

    Batches and offsets stay as they are, internal topics come along, and SRC is not changed. The file
    seglog.salvage.jsonl in DST has the table of damage. The same command continues a run that was stopped. Exit
    status 1 if a partition cannot be read; the others are salvaged.
    """
    from sparklog.cli.work.export import partition_of
    from sparklog.cli.work.salvage import salvage as salvage_logs

    options = given | {"partitions": [partition_of(each) for each in given.get("partitions", ())]}
    if not salvage_logs(sources, target, options, as_json=as_json, limit=limit):
        raise typer.Exit(_FAILED)
