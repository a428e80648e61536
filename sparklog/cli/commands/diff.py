"""The command ``diff``: its arguments and options."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from sparklog.cli.commands.arguments import Json, Processes, ShowFields
from sparklog.cli.output import render
from sparklog.cli.output.progress import job_progress
from sparklog.jobs.named_logs import logs_at

_DIFFERENT = 1


def diff(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH PATH...", help="Log directories; or a topic's path, or a partition's folder, in each."
        ),
    ],
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help="Print at most this number of rows; by default 500, with --json all."),
    ] = None,
    processes: Processes = None,
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Compare copies of logs, such as the replicas of several brokers, by their offsets and bytes.

    Says for each partition which ranges of offsets are equal, missing in a copy, divergent or damaged, and whether log
    starts, ends, leader epochs or topic ids differ. Whole batches are compared, and nothing is decoded. Changes
    nothing. Exit status 0 if all copies are equal, 1 if any differ.
    """
    from sparklog.cli.work.diff import ROWS_SHOWN_MAX, DiffOutcome, differences, first_differences, print_outcome

    targets = [logs_at(path) for path in paths]
    with job_progress("comparing", has_records=False) as bar:
        outcome = DiffOutcome(bar)
        rows = differences(targets, outcome, processes)
        if as_json:
            render.put_rows(islice(rows, limit))
        shown = [] if as_json else first_differences(rows, ROWS_SHOWN_MAX if limit is None else limit)
        # The rest decides the exit status.
        for _ in rows:
            pass
    if not as_json:
        print_outcome(shown, outcome)
    if outcome.differences:
        raise typer.Exit(_DIFFERENT)
