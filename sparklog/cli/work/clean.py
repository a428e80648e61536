"""``clean``: runs the job with the command's options, and makes rows of the removed or removable data."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sparklog.cleaner.partition import Cleaned
from sparklog.cli.output import render, tables
from sparklog.cli.output.fields import CLEANED_PARTITION
from sparklog.cli.output.progress import job_progress
from sparklog.cli.output.text import bytes_text, counted
from sparklog.jobs.clean.arguments import CleanSummary
from sparklog.jobs.clean.arguments import clean as run_clean
from sparklog.jobs.run.job import OF_ONE_PARTITION


def clean(paths: Sequence[str], options: Mapping[str, Any], *, as_json: bool) -> bool:
    """Clean logs, print the removed data, and return whether all were cleaned; damage is reported on stderr.

    Parameters
    ----------
    options : mapping
        The options of `sparklog.jobs.clean.arguments.clean`.
    """
    began = time.monotonic()
    try:
        with job_progress("cleaning") as watch:
            summary = run_clean(paths, watch=watch, **options)
    except OF_ONE_PARTITION as error:
        for each in (error, *error.others):
            render.complain("error", str(each))
        render.complain(
            "note", "the other partitions were cleaned" if not options["dry_run"] else "nothing was changed"
        )
        return False
    for path in summary.removed:
        render.complain("note", f"{path} {'would go' if summary.is_dry else 'went'}, which is no part of a log")
    rows = [_row(each) for each in summary.changed]
    is_rewritten = any(row["rewritten_segments"] for row in rows)
    tables.show_rows(CLEANED_PARTITION.columns[: None if is_rewritten else -2], rows, as_json=as_json)
    if not as_json:
        render.say(_sentence(summary, time.monotonic() - began))
    return True


def _row(each: Cleaned) -> dict[str, Any]:
    return CLEANED_PARTITION.row(
        each,
        first_timestamp=None if each.first_timestamp < 0 else each.first_timestamp,
        last_timestamp=None if each.last_timestamp < 0 else each.last_timestamp,
        rewritten_segments=each.old_segments,
        rewritten_bytes=each.old_bytes,
        erased_offsets=[list(span) for span in each.erased],
    )


def _sentence(summary: CleanSummary, seconds: float) -> str:
    if not summary.changed:
        return f"nothing to clean in {counted(len(summary.partitions), 'partition')}"
    of = f"{bytes_text(summary.freed_bytes)} of {counted(len(summary.changed), 'partition')}"
    erased = sum(each.erased_records for each in summary.partitions)
    if erased:
        of = f"{counted(erased, 'record')} to erase and {of}"
    return f"{of} would go" if summary.is_dry else f"{of} went in {seconds:.1f} s"
