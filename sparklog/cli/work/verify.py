"""``verify``: verifies targets, and makes rows of the findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from sparklog.cli.output import render, tables
from sparklog.cli.output.columns import declared_columns
from sparklog.cli.output.fields import FINDING
from sparklog.cli.output.text import bytes_text
from sparklog.cli.paths import CliPath
from sparklog.inspect.absent import verify_absent, verify_absent_in_directory
from sparklog.inspect.verify import Finding, Progress, Severity, verify_directory, verify_partitions
from sparklog.jobs.clean.keys import read_keys
from sparklog.log.places import split_path
from sparklog.record.rewrite.matching import KeySet

FINDINGS_SHOWN_MAX: Final = 500


@dataclass
class VerifyOutcome:
    """The number of findings by severity, and how much was verified."""

    counts: Counter[Severity] = field(default_factory=Counter)
    checked_bytes: int = 0
    partitions: int = 0

    @property
    def has_errors(self) -> bool:
        return self.counts[Severity.ERROR] > 0

    def __str__(self) -> str:
        counts = [f"{self.counts[severity]} {severity}{'s' * (self.counts[severity] != 1)}" for severity in Severity]
        where = f"{self.partitions} partition{'s' * (self.partitions != 1)}"
        return f"{bytes_text(self.checked_bytes)} in {where} checked: {', '.join(counts)}"


def findings(
    targets: list[CliPath],
    outcome: VerifyOutcome,
    advance: Callable[[str, int], None],
    processes: int,
    absent: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Verify targets one after another, and the partitions of each side by side.

    Gives a row for each finding, and counts them in ``outcome``. Where a file of keys is given, every file is searched
    for them, too.
    """
    keys = None if absent is None else read_keys(absent)
    for target in targets:
        outcome.partitions += len(target.folders)
        events = (
            verify_directory(target.path, processes=processes)
            if target.is_directory
            else verify_partitions([folder.location for folder in target.folders], processes=processes)
        )
        for event in chain(events, () if keys is None else _search(target, keys)):
            if isinstance(event, Progress):
                outcome.checked_bytes += event.checked_bytes
                advance(_short(event.path, target), event.checked_bytes)
            else:
                outcome.counts[event.severity] += 1
                yield _row(event, target)


def _search(target: CliPath, keys: KeySet) -> Iterator[Finding | Progress]:
    folders = [folder.location for folder in target.folders]
    if target.is_directory:
        return verify_absent_in_directory(keys, target.path, folders)
    return chain.from_iterable(verify_absent(keys, folder) for folder in folders)


def report(rows: list[dict[str, Any]], outcome: VerifyOutcome) -> None:
    """Print findings as a table, file by file, the worst first, and a line that sums them up."""
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


def as_json_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the field that only tables show."""
    return {name: value for name, value in row.items() if name != "file"}


def _row(finding: Finding, target: CliPath) -> dict[str, Any]:
    return FINDING.row(finding, severity=finding.severity.value) | {"file": _short(finding.path, target)}


def _short(path: str, target: CliPath) -> str:
    """Name a file relative to its target."""
    for folder in (target.path, split_path(target.path)[0]):
        if path.startswith(f"{folder}/"):
            return path[len(folder) + 1 :]
    return path
