"""``salvage``: runs the job with the command's options, and makes a row for each salvaged partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sparklog.cli.output import render, tables
from sparklog.cli.output.fields import LOG_TO_SALVAGE, SALVAGED_PARTITION
from sparklog.cli.output.progress import job_progress
from sparklog.cli.output.text import bytes_text, counted
from sparklog.jobs.run.job import OF_ONE_PARTITION
from sparklog.jobs.salvage.arguments import SalvageSummary
from sparklog.jobs.salvage.arguments import salvage as run_salvage


def salvage(
    sources: Sequence[str], target: str, options: Mapping[str, Any], *, as_json: bool, limit: int | None = None
) -> bool:
    """Salvage logs, print the kept and lost amounts of each partition, and return whether all were salvaged.

    Parameters
    ----------
    options : mapping
        The options of `sparklog.jobs.salvage.arguments.salvage`.
    limit : int or None
        See `sparklog.cli.output.tables.limited_table`.
    """
    if options["dry_run"]:
        planned = run_salvage(sources, target, **options).planned
        rows = [LOG_TO_SALVAGE.row(each, topic=each.folder.topic, partition=each.folder.partition) for each in planned]
        tables.show_rows(LOG_TO_SALVAGE.columns, rows, as_json=as_json)
        return True
    try:
        with job_progress("salvaging") as watch:
            summary = run_salvage(sources, target, watch=watch, **options)
    except OF_ONE_PARTITION as error:
        for each in (error, *error.others):
            render.complain("error", str(each))
        render.complain("note", "all other partitions are salvaged: repeat the command, or choose with --partitions")
        return False
    rows = [SALVAGED_PARTITION.row(each, damage=[asdict(stretch) for stretch in each.damage]) for each in summary.logs]
    if as_json:
        render.put_rows(rows)
        return True
    tables.limited_table(SALVAGED_PARTITION.columns, rows, limit, noun="partition")
    render.say(_sentence(summary))
    if any(each.open_transactions for each in summary.logs):
        render.complain(
            "note",
            f"transactions are open, perhaps since the damage took their ends: 'sparklog transactions {target} "
            f"--hanging' lists them, and --abort ends them",
        )
    return True


def _sentence(summary: SalvageSummary) -> str:
    kept = f"{counted(summary.records, 'record')} of {counted(len(summary.logs), 'partition')} kept"
    places = sum(len(each.damage) for each in summary.logs)
    if not places:
        return f"{kept}, nothing was damaged"
    lost_bytes, lost_offsets = (
        sum(getattr(each, of) for each in summary.logs) for of in ("lost_bytes", "lost_offsets")
    )
    return f"{kept}; lost in {counted(places, 'place')}: {bytes_text(lost_bytes)} and {counted(lost_offsets, 'offset')}"
