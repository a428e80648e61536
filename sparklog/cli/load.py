"""``load``: reads what its options say, runs it, and makes rows of what was written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sparklog.cli import render, tables, views
from sparklog.cli.progress import job_progress
from sparklog.cli.text import counted
from sparklog.jobs.load import load as run_load


def load(sources: Sequence[str], target: str, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Load files, and print what was written; options are of `sparklog.jobs.load.load`."""
    began = time.monotonic()
    with job_progress("loading") as watch:
        summary = run_load(sources, target, watch=watch, **options)
    rows = [asdict(each) for each in summary.partitions]
    if as_json:
        render.json_lines(rows)
        return
    if rows:
        tables.table(views.LOADED_PARTITIONS, rows)
    seconds = time.monotonic() - began
    passed = f", {counted(len(summary.skipped), 'file')} passed over" if summary.skipped else ""
    if not summary.files:
        render.say(f"nothing new to load{passed}")
        return
    rate = f"{summary.records / seconds:,.0f} records/s"
    records, files = counted(summary.records, "record"), counted(len(summary.files), "file")
    render.say(f"{records} of {files} loaded in {seconds:.1f} s: {rate}{passed}")
