"""``load``: runs the job with the command's options, and makes rows of the written partitions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sparklog.cli.output import render, tables
from sparklog.cli.output.fields import LOADED_PARTITION, PLANNED_FILE
from sparklog.cli.output.progress import job_progress
from sparklog.cli.output.text import bytes_text, counted
from sparklog.jobs.load.arguments import load as run_load
from sparklog.jobs.load.job import PlannedPart


def load(sources: Sequence[str], target: str, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Load files, and print the written partitions; the options are those of `sparklog.jobs.load.arguments.load`."""
    if options["dry_run"]:
        planned = run_load(sources, target, **options)
        _print_plan(planned.planned, _passed_over(planned.skipped), as_json=as_json)
        return
    began = time.monotonic()
    with job_progress("loading") as watch:
        summary = run_load(sources, target, watch=watch, **options)
    rows = [asdict(each) for each in summary.partitions]
    tables.show_rows(LOADED_PARTITION.columns, rows, as_json=as_json)
    if as_json:
        return
    seconds = time.monotonic() - began
    passed = _passed_over(summary.skipped)
    if not summary.files:
        render.say(f"nothing new to load{passed}")
        return
    rate = f"{summary.records / seconds:,.0f} records/s"
    records, files = counted(summary.records, "record"), counted(len(summary.files), "file")
    render.say(f"{records} of {files} loaded in {seconds:.1f} s: {rate}{passed}")


def _print_plan(planned: Sequence[PlannedPart], passed: str, *, as_json: bool) -> None:
    rows = [asdict(each) for each in planned]
    tables.show_rows(PLANNED_FILE.columns, rows, as_json=as_json)
    if as_json:
        return
    if not rows:
        render.say(f"nothing new to load{passed}")
        return
    known = [each.rows for each in planned if each.rows is not None]
    records = f"{counted(sum(known), 'record')}{' and more' * (len(known) < len(planned))}"
    files, tasks = len({each.path for each in planned}), len({each.task for each in planned})
    size = bytes_text(sum(each.size_bytes for each in planned))
    first = planned[0]
    into = f" into {first.topic}, {counted(first.partitions or 0, 'partition')}" if first.topic is not None else ""
    render.say(f"{counted(files, 'file')} to load in {counted(tasks, 'task')}{into}: {size}, {records}{passed}")


def _passed_over(skipped: Sequence[str]) -> str:
    return f", {counted(len(skipped), 'file')} passed over" if skipped else ""
