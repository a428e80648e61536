"""``mirror`` and ``backup``: run the jobs with the commands' options, and print their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparklog.cli.output import render, tables
from sparklog.cli.output.fields import BACKUP, MIRROR_PASS
from sparklog.cli.output.progress import job_progress
from sparklog.cli.output.text import bytes_text, counted
from sparklog.errors import PathNotFoundError
from sparklog.jobs.backup.arguments import BackupSummary, PruneSummary, backups_in, prune_backups
from sparklog.jobs.backup.arguments import backup as run_backup
from sparklog.jobs.backup.manifest import BackupManifest
from sparklog.jobs.mirror.arguments import mirror as run_mirror
from sparklog.jobs.mirror.job import MirrorSummary
from sparklog.jobs.run.job import OF_ONE_PARTITION


def mirror(
    source: str, target: str, options: Mapping[str, Any], *, follow: bool, every_seconds: float, as_json: bool
) -> bool:
    """Mirror a log directory once or until it is interrupted; return whether all logs of a single run are sound."""
    first = [True]

    def show(summary: MirrorSummary) -> None:
        for error in summary.errors if follow else ():
            if not isinstance(error, PathNotFoundError):
                render.complain("error", str(error))
        if as_json:
            render.put_rows([_pass_row(summary)])
        elif summary.copied_bytes or first[0]:
            render.say(_pass_sentence(summary, is_dry=bool(options.get("dry_run"))))
        first[0] = False
        if not render.flushed():
            raise BrokenPipeError

    try:
        with job_progress("mirroring", has_records=False) as watch:
            summary = run_mirror(
                source,
                target,
                follow=follow,
                interval_seconds=every_seconds,
                each_pass=show if follow else None,
                watch=None if follow else watch,
                **options,
            )
    except OF_ONE_PARTITION as error:
        for each in (error, *error.others):
            render.complain("error", str(each))
        render.complain("note", "the other logs were mirrored")
        return False
    if not follow or options.get("dry_run"):
        show(summary)
    return True


def _pass_row(summary: MirrorSummary) -> dict[str, Any]:
    return MIRROR_PASS.row(summary, logs=len(summary.logs), errors=[str(each) for each in summary.errors])


def _pass_sentence(summary: MirrorSummary, *, is_dry: bool) -> str:
    behind = f"{bytes_text(summary.behind_bytes)} and {counted(summary.behind_offsets, 'offset')} behind"
    if is_dry:
        return f"the mirror is {behind}"
    return f"{bytes_text(summary.copied_bytes)} of {counted(len(summary.logs), 'log')} copied: the mirror was {behind}"


def backup(source: str, target: str, options: Mapping[str, Any], *, as_json: bool) -> bool:
    """Make a backup, and return whether all logs are sound."""
    with job_progress("storing", has_records=False) as watch:
        summary = run_backup(source, target, watch=watch, **options)
    manifest = summary.manifest
    if manifest is None:
        render.say(f"at most {bytes_text(summary.new_bytes)} would be stored")
        return True
    for each in manifest.partitions:
        if each.error is not None:
            render.complain(
                "error", f"{each.topic_partition} is in the backup up to offset {each.end_offset}: {each.error}"
            )
    if as_json:
        render.put_rows([_backup_row(manifest) | {"new_bytes": summary.new_bytes}])
    else:
        render.say(_backup_sentence(manifest, summary))
    return manifest.is_whole


def _backup_sentence(manifest: BackupManifest, summary: BackupSummary) -> str:
    what = f"{counted(len(manifest.partitions), 'partition')}, {bytes_text(manifest.size_bytes)}"
    return f"backup {manifest.backup_id}: {what}; {bytes_text(summary.new_bytes)} of batches are new"


def show_backups(target: str, *, as_json: bool) -> None:
    """Print a row for each backup of a set."""
    tables.show_rows(BACKUP.columns, [_backup_row(each) for each in backups_in(target)], as_json=as_json)


def _backup_row(manifest: BackupManifest) -> dict[str, Any]:
    return BACKUP.row(
        manifest,
        partitions=len(manifest.partitions),
        groups=len(manifest.groups),
        damaged_partitions=sum(each.error is not None for each in manifest.partitions),
        new_bytes=None,
    )


def prune_if_confirmed(target: str, keep: int, lock_timeout_seconds: float, *, asks: bool, dry_run: bool) -> None:
    """Remove old backups of a set, if the user confirms."""
    planned = prune_backups(target, keep=keep, dry_run=True)
    what = _what_goes(planned)
    if dry_run:
        render.say(f"{what} would go")
    elif not asks or render.confirmed(f"{what} would go. Remove them?"):
        done = prune_backups(target, keep=keep, lock_timeout_seconds=lock_timeout_seconds)
        render.say(f"{_what_goes(done)} went")
    else:
        render.say("nothing was changed")


def _what_goes(summary: PruneSummary) -> str:
    return f"{counted(len(summary.removed), 'backup')}, {bytes_text(summary.freed_bytes)}"
