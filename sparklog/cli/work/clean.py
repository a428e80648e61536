"""``clean``: runs the job with the command's options, and makes rows of the removed or removable data."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from sparklog.cleaner.partition import Cleaned
from sparklog.cli.output import render, tables
from sparklog.cli.output.fields import CLEANED_PARTITION, CLEANED_TOPIC
from sparklog.cli.output.progress import job_progress
from sparklog.cli.output.text import bytes_text, counted
from sparklog.jobs.clean.arguments import CleanSummary
from sparklog.jobs.clean.arguments import clean as run_clean
from sparklog.jobs.run.job import OF_ONE_PARTITION

_SUMS: Final = ("dropped_segments", "dropped_offsets", "dropped_bytes", "rewritten_bytes", "new_bytes")


def clean(
    paths: Sequence[str], options: Mapping[str, Any], *, as_json: bool, limit: int | None = None, verbose: bool = False
) -> bool:
    """Clean logs, print the removed data, and return whether all were cleaned; damage is reported on stderr.

    The sum comes first, then a line for each topic. JSON has a line for each partition.

    Parameters
    ----------
    options : mapping
        The options of `sparklog.jobs.clean.arguments.clean`.
    limit : int or None
        See `sparklog.cli.output.tables.limited_table`.
    verbose : bool
        Whether the table has a line for each partition, without a limit by default.
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
    if as_json:
        render.put_rows(rows)
        return True
    render.say(_sentence(summary, time.monotonic() - began))
    shown_columns = slice(None if any(row["rewritten_segments"] for row in rows) else -2)
    if verbose:
        most = len(rows) if limit is None else limit
        tables.limited_table(CLEANED_PARTITION.columns[shown_columns], rows, most, noun="partition")
    else:
        remedy = "--limit shows them, --verbose shows each partition"
        tables.limited_table(CLEANED_TOPIC[shown_columns], list(_topics(rows)), limit, noun="topic", remedy=remedy)
    return True


def _topics(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Fold the partitions of each topic into one row."""
    for topic, group in groupby(rows, key=lambda row: row["topic"]):
        of_topic = list(group)
        times = [row["first_timestamp"] for row in of_topic], [row["last_timestamp"] for row in of_topic]
        first, last = ([each for each in column if each is not None] for column in times)
        yield {
            "topic": topic,
            "partitions": len(of_topic),
            **{name: sum(row[name] for row in of_topic) for name in _SUMS},
            "first_timestamp": min(first, default=None),
            "last_timestamp": max(last, default=None),
            "reasons": list(dict.fromkeys(reason for row in of_topic for reason in row["reasons"])),
        }


def _row(each: Cleaned) -> dict[str, Any]:
    return CLEANED_PARTITION.row(
        each,
        first_timestamp=None if each.first_timestamp < 0 else each.first_timestamp,
        last_timestamp=None if each.last_timestamp < 0 else each.last_timestamp,
        rewritten_segments=each.old_segments,
        rewritten_bytes=each.old_bytes,
        erased_offsets=[list(span) for span in each.erased],
        reasons=list(each.reasons),
    )


def _sentence(summary: CleanSummary, seconds: float) -> str:
    if not summary.changed:
        return f"nothing to clean in {counted(len(summary.partitions), 'partition')}"
    of = f"{bytes_text(summary.freed_bytes)} of {counted(len(summary.changed), 'partition')}"
    erased = sum(each.erased_records for each in summary.partitions)
    if erased:
        of = f"{counted(erased, 'record')} to erase and {of}"
    return f"{of} would go" if summary.is_dry else f"{of} went in {seconds:.1f} s"
