"""``diff``: compares the logs of several directories, and makes a row for each range and each other difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from sparklog.cli.output import render, tables
from sparklog.cli.output.fields import DIFF, DIFF_PARTITIONS
from sparklog.cli.output.text import bytes_text, counted
from sparklog.inspect.diff import DiffKind, DiffRow
from sparklog.jobs.difference import DiffJob
from sparklog.jobs.named_logs import NamedLogs
from sparklog.jobs.run.job import Amount, Watch, found_by
from sparklog.jobs.run.local import runner_of

ROWS_SHOWN_MAX: Final = 500


@dataclass
class DiffOutcome:
    """Sums up the rows of each partition, and the compared amount, which ``bar`` shows meanwhile."""

    bar: Watch
    partitions: dict[tuple[str, int | None], dict[str, Any]] = field(default_factory=dict)
    differences: int = 0
    compared_bytes: int = 0

    def planned(self, tasks: int, size_bytes: int) -> None:
        self.bar.planned(tasks, size_bytes)

    def advanced(self, name: str, more: Amount) -> None:
        self.compared_bytes += more.size_bytes
        self.bar.advanced(name, more)

    def add(self, row: DiffRow) -> None:
        """Count the offsets of a range, or another difference."""
        of_ranges = ("equal", "missing", "divergent", "leader_epoch", "damaged", "others")
        sums = self.partitions.setdefault(
            (row.topic, row.partition), {"topic": row.topic, "partition": row.partition, **dict.fromkeys(of_ranges, 0)}
        )
        self.differences += row.kind is not DiffKind.EQUAL
        is_counted = row.is_range and row.start_offset is not None and row.end_offset is not None
        name = row.kind.value.replace("-", "_") if is_counted else "others"
        sums[name] += (row.end_offset or 0) - (row.start_offset or 0) if is_counted else 1

    def __str__(self) -> str:
        where = counted(len(self.partitions), "partition")
        what = counted(self.differences, "difference") if self.differences else "no difference"
        return f"{bytes_text(self.compared_bytes)} in {where} compared: {what}"


def differences(targets: Sequence[NamedLogs], outcome: DiffOutcome, processes: int | None) -> Iterator[dict[str, Any]]:
    """Compare logs, and yield a row for each range and each other difference; ``outcome`` sums them up."""
    runner = runner_of(processes, None)
    for row in found_by(DiffJob(tuple(targets), runner.workers), runner, outcome):
        outcome.add(row)
        yield DIFF.row(row, kind=row.kind.value, copies=list(row.copies))


def first_differences(rows: Iterator[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Return the first ``limit`` rows that are no equal ranges."""
    different = (row for row in rows if row["kind"] != DiffKind.EQUAL)
    return [row | {"copies": [each or "-" for each in row["copies"]]} for row in islice(different, limit)]


def print_outcome(shown: list[dict[str, Any]], outcome: DiffOutcome) -> None:
    """Print a line for each partition, then the differences, and a summary line."""
    tables.table(DIFF_PARTITIONS, list(outcome.partitions.values()))
    render.say()
    if shown:
        tables.table(DIFF.columns, shown)
    if outcome.differences > len(shown):
        render.say(f"... and {outcome.differences - len(shown)} more: --limit shows more, --json all")
    render.say(str(outcome))
