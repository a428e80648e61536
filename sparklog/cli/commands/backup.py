"""The commands ``mirror`` and ``backup``: their arguments and options."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sparklog.cli.commands.arguments import Json, ShowFields
from sparklog.cli.commands.cut import LockTimeoutSeconds, Yes
from sparklog.cli.commands.declared import with_options_of
from sparklog.cli.parsing import seconds_of
from sparklog.jobs.run.options import LogJobOptions

_FAILED = 1
_MAKE = "make"

SourceDirectory = Annotated[str, typer.Argument(metavar="SRC", help="A log directory; a broker may write to it.")]
BackupSet = Annotated[str, typer.Argument(metavar="SET", help="A set of backups.")]


@with_options_of(LogJobOptions)
def mirror(
    source: SourceDirectory,
    target: Annotated[str, typer.Argument(metavar="DST", help="The mirror; created if missing.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until Ctrl-C.")] = False,
    every: Annotated[
        str, typer.Option("--every", help="With --follow, the time between looks: 1s, 5m, 2h, 1d.")
    ] = "1s",
    as_json: Json = False,
    _fields: ShowFields = False,
    **given: Any,
) -> None:
    """Make a log directory an exact copy of another one, in which a broker may run; or follow it.

    A rerun continues, also after this run was killed. Damaged batches are not copied. Exit status 1 if a log is
    damaged; the others are copied. With --follow, damage is reported once, and the others are followed.
    """
    # Only these commands load the jobs.
    from sparklog.cli.work.backup import mirror as mirror_logs

    if not mirror_logs(
        source, target, given, follow=follow, every_seconds=seconds_of(every, "--every"), as_json=as_json
    ):
        raise typer.Exit(_FAILED)


class _Backups(TyperGroup):
    """The commands of ``backup``; ``backup SRC SET`` without a command makes a backup."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] in (["list"], ["prune"]) else [_MAKE, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        # Usage and errors name the command only "backup".
        return ("" if name == _MAKE else name), command, rest


backup_app = typer.Typer(cls=_Backups, help="Make a backup of a log directory in a set; list or prune the set.")


@backup_app.command(_MAKE)
@with_options_of(LogJobOptions)
def backup(
    source: SourceDirectory,
    target: Annotated[str, typer.Argument(metavar="SET", help="A set of backups of it; created if missing.")],
    as_json: Json = False,
    _fields: ShowFields = False,
    **given: Any,
) -> None:
    """Make a backup of a log directory, in which a broker may run. Only new bytes are stored.

    ``backup list SET`` shows the backups, ``backup prune SET --keep N`` removes old ones, and ``verify --manifest SET``
    checks all. Exit status 1 if a log is damaged: the backup has it up to the damage.
    """
    from sparklog.cli.work.backup import backup as back_up

    if not back_up(source, target, given, as_json=as_json):
        raise typer.Exit(_FAILED)


@backup_app.command("list")
def list_backups(target: BackupSet, as_json: Json = False, _fields: ShowFields = False) -> None:
    """List the backups of a set, the oldest first."""
    from sparklog.cli.work.backup import show_backups

    show_backups(target, as_json=as_json)


@backup_app.command("prune")
def prune(
    target: BackupSet,
    keep: Annotated[int, typer.Option("--keep", min=1, help="How many of the newest whole backups stay.")],
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and change nothing.")] = False,
    lock_timeout_seconds: LockTimeoutSeconds = 60.0,
) -> None:
    """Remove old backups, and the bytes that no other backup has. THESE BACKUPS ARE GONE.

    Says what would go, and asks. A backup with a damaged log does not count for --keep.
    """
    from sparklog.cli.work.backup import prune_if_confirmed

    prune_if_confirmed(target, keep, lock_timeout_seconds, asks=not yes, dry_run=dry_run)
