"""The command ``restore``: its arguments and options."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparklog.cli.commands.arguments import Json, ShowFields
from sparklog.cli.commands.declared import with_options_of
from sparklog.cli.parsing import milliseconds_of
from sparklog.jobs.run.options import LogJobOptions

_FAILED = 1


class _Restore:
    """Options of ``restore`` that have the same names in Python."""

    backup: str | None = typer.Option(
        None,
        metavar="ID",
        help="The backup in a set; by default the newest without damaged logs, or with --to the oldest of that time "
        "or later.",
    )
    for_cluster: str | None = typer.Option(
        None,
        metavar="DIR",
        help="Format DIR, the metadata directory of the controller of a new cluster, so that it knows the topics, and "
        "DST as a broker; DIR may be DST. Each further restore with DIR adds a broker.",
    )
    controller_id: int | None = typer.Option(
        None, metavar="N", help="The node id of a new DIR, if the controller is not the broker."
    )
    topics_script: str | None = typer.Option(
        None, metavar="FILE", help="Write the commands that make the topics in a cluster that exists."
    )
    metadata: str | None = typer.Option(
        None, metavar="DIR", help="The directory with __cluster_metadata-0 of the old cluster; by default SRC."
    )


@with_options_of(_Restore, LogJobOptions)
def restore(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A log directory without a running broker, or a set of backups.")
    ],
    target: Annotated[str, typer.Argument(metavar="DST", help="The new log directory, missing or empty.")],
    to: Annotated[
        str | None,
        typer.Option("--to", help="Cut each log before its first record at or after this time: ISO 8601 (UTC), or ms."),
    ] = None,
    as_json: Json = False,
    _fields: ShowFields = False,
    **given: Any,
) -> None:
    """Restore a log directory, or a backup, to an empty one, internal topics included, as it is or was at a time.

    All logs become visible at once, or none. With --to, open transactions are ended, and groups' offsets are within the
    logs. Exit status 1 if a log is damaged; nothing is restored then.
    """
    from sparklog.cli.work.export import restore as restore_logs

    options = given | {"to": None if to is None else milliseconds_of(to, "--to")}
    if not restore_logs(source, target, options, as_json=as_json):
        raise typer.Exit(_FAILED)
