"""``verify``: verifies targets, and makes a row for each finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.cli.output import render, tables
from sparklog.cli.output.columns import declared_columns
from sparklog.cli.output.fields import FINDING
from sparklog.cli.output.text import bytes_text
from sparklog.errors import SeglogError
from sparklog.inspect.explanations import explanation_of
from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.jobs.backup.checking import verify_backups
from sparklog.jobs.clean.keys import read_keys
from sparklog.jobs.named_logs import NamedLogs
from sparklog.jobs.run.job import Amount, Watch, found_by
from sparklog.jobs.run.local import runner_of
from sparklog.jobs.verification import VerifyJob
from sparklog.log.layout import read_layout
from sparklog.log.places import split_path
from sparklog.log.reader import LogReader

FINDINGS_SHOWN_MAX: Final = 500


@dataclass
class VerifyOutcome:
    """Counts findings by severity, and the verified amount, which ``bar`` shows meanwhile. Sets of backups have no
    number of partitions.
    """

    bar: Watch
    counts: Counter[Severity] = field(default_factory=Counter)
    checked_bytes: int = 0
    partitions: int | None = None

    @property
    def has_errors(self) -> bool:
        return self.counts[Severity.ERROR] > 0

    def planned(self, tasks: int, size_bytes: int) -> None:
        self.bar.planned(tasks, size_bytes)

    def advanced(self, name: str, more: Amount) -> None:
        self.checked_bytes += more.size_bytes
        self.bar.advanced(name, more)

    def __str__(self) -> str:
        counts = [f"{self.counts[severity]} {severity}{'s' * (self.counts[severity] != 1)}" for severity in Severity]
        where = f" in {self.partitions} partition{'s' * (self.partitions != 1)}" if self.partitions is not None else ""
        return f"{bytes_text(self.checked_bytes)}{where} checked: {', '.join(counts)}"


def findings(
    targets: Sequence[NamedLogs],
    outcome: VerifyOutcome,
    processes: int | None,
    absent: str | None = None,
    *,
    is_deep: bool = False,
) -> Iterator[dict[str, Any]]:
    """Verify targets one after another, and the partitions of each target in parallel.

    Yields a row for each finding, and counts them in ``outcome``. If a file of keys is given, every file is also
    searched for them; if ``is_deep``, the files of the targets are compared with each other.
    """
    outcome.partitions = sum(len(target.folders) for target in targets)
    runner = runner_of(processes, None)
    keys = None if absent is None else read_keys(absent)
    job = VerifyJob(tuple(targets), keys, runner.workers, is_deep=is_deep)
    for finding in found_by(job, runner, outcome):
        outcome.counts[finding.severity] += 1
        yield _row(finding, targets)


def backup_findings(paths: Sequence[str], outcome: VerifyOutcome, processes: int | None) -> Iterator[dict[str, Any]]:
    """Check sets of backups one after another; yield a row for each finding, and count them in ``outcome``."""
    for path in paths:
        for finding in verify_backups(path, processes=processes, watch=outcome):
            outcome.counts[finding.severity] += 1
            yield FINDING.row(finding, severity=finding.severity.value) | {"file": finding.path}


def damage_rows(targets: Sequence[NamedLogs], found: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of damage of each partition that has an error; such a partition is read once more."""
    wrong = {row["path"] for row in found if row["severity"] == Severity.ERROR.value}
    for folder in dict.fromkeys(folder for target in targets for folder in target.folders):
        if any(path == folder.location or path.startswith(f"{folder.location}/") for path in wrong):
            with suppress(SeglogError), LogReader(read_layout(folder, "skip")) as log:
                # A log that cannot be read at all is a finding.
                yield from log.damage().to_pylist()


def report(rows: list[dict[str, Any]], outcome: VerifyOutcome) -> None:
    """Print findings as a table, file by file with the worst first, and a summary line."""
    severities = [severity.value for severity in Severity]
    worst: dict[str, int] = {}
    for row in rows:
        worst[row["file"]] = min(severities.index(row["severity"]), worst.get(row["file"], len(severities)))
    shown = sorted(rows, key=lambda row: (worst[row["file"]], row["file"], severities.index(row["severity"])))
    if shown:
        if render.is_terminal():
            style, heading = (lambda row: render.severity_style(row["severity"])), lambda row: str(row["file"])
            tables.table(FINDING.columns, shown[:FINDINGS_SHOWN_MAX], style, heading)
        else:
            tables.table(declared_columns("file/text") + FINDING.columns, shown[:FINDINGS_SHOWN_MAX])
        if len(shown) > FINDINGS_SHOWN_MAX:
            render.say(f"... and {len(shown) - FINDINGS_SHOWN_MAX} more: --json prints them all")
        render.say()
    render.say(str(outcome))


def explain(code: str) -> None:
    """Print the explanation of a code of findings."""
    for line in explanation_of(code).paragraph(code).splitlines():
        render.say(line)


def as_json_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the field that only tables use."""
    return {name: value for name, value in row.items() if name != "file"}


def _row(finding: Finding, targets: Sequence[NamedLogs]) -> dict[str, Any]:
    return FINDING.row(finding, severity=finding.severity.value) | {"file": _short(finding.path, targets)}


def _short(path: str, targets: Sequence[NamedLogs]) -> str:
    """Return a file's path relative to its target."""
    for target in targets:
        for folder in (target.path, split_path(target.path)[0]):
            if path.startswith(f"{folder}/"):
                return path[len(folder) + 1 :]
    return path
