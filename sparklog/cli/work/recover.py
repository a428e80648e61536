"""``recover``: recovers targets, and makes a row for each action."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sparklog.errors import CorruptLogError, SeglogError
from sparklog.jobs.named_logs import NamedLogs
from sparklog.log.clock import wall_clock_ms
from sparklog.log.config import LogConfig
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.topic.recover import RecoverOptions, recover_directory

_HOUR_MS = 3_600_000


@dataclass
class RecoverOutcome:
    """Counts actions, damaged logs that were left unchanged, and logs that cannot be read or written."""

    actions: int = 0
    damaged: int = 0
    failed: int = 0

    def sentence(self, *, dry_run: bool) -> str:
        verb = "to do" if dry_run else "done"
        failed = f", {self.failed} that cannot be read or written" * (self.failed > 0)
        done = f"{self.actions} thing{'s' * (self.actions != 1)} {verb}"
        return f"{done}, {self.damaged} damaged and left as they are{failed}"


def recover_rows(
    targets: list[NamedLogs],
    outcome: RecoverOutcome,
    staged_hours: float,
    *,
    truncate: bool,
    drop_cut: bool,
    dry_run: bool,
) -> Iterator[dict[str, Any]]:
    """Recover targets, one log directory after another; yield a row for each action, and count them in ``outcome``."""
    options = RecoverOptions(
        LogConfig(), int(staged_hours * _HOUR_MS), truncate=truncate, drop_cut=drop_cut, dry_run=dry_run
    )
    folders: dict[LogDirectory, list[PartitionFolder]] = {}
    for target in targets:
        if target.is_directory:
            folders.setdefault(target.directory, [])
        for folder in target.folders:
            folders.setdefault(folder.directory, []).append(folder)
    for directory, within in folders.items():
        for found in recover_directory(directory, within, options, wall_clock_ms()):
            if isinstance(found, CorruptLogError):
                outcome.damaged += 1
                yield {"status": "damaged", "path": found.path or directory.path, "what": str(found)}
            elif isinstance(found, SeglogError):
                outcome.failed += 1
                yield {"status": "failed", "path": directory.path, "what": str(found)}
            else:
                outcome.actions += 1
                yield {"status": "would be" if dry_run else "done", "path": found.path, "what": found.what}
