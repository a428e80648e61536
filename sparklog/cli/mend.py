"""``recover``: runs it over targets, and makes rows of what it does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sparklog.cli.paths import Target
from sparklog.errors import SeglogError
from sparklog.log.config import LogConfig
from sparklog.storage.writing import LocalWritableStorage
from sparklog.topic.repair import Repair, repair

_HOUR_MS = 3_600_000


@dataclass
class Outcome:
    """How much was done, and how many logs could not be put in order."""

    actions: int = 0
    failures: int = 0

    def told(self, *, dry_run: bool) -> str:
        verb = "to do" if dry_run else "done"
        return f"{self.actions} thing{'s' * (self.actions != 1)} {verb}, {self.failures} damaged and left as they are"


def rows(
    targets: list[Target], outcome: Outcome, staged_hours: float, *, truncate: bool, dry_run: bool
) -> Iterator[dict[str, Any]]:
    """Put targets in order, one log directory after another; a row of each thing done, while ``outcome`` counts."""
    how = Repair(LogConfig(), int(staged_hours * _HOUR_MS), truncate=truncate, dry_run=dry_run)
    folders: dict[str, list[str]] = {}
    for target in targets:
        if target.is_directory:
            folders.setdefault(target.path, [])
        for folder in target.folders:
            folders.setdefault(folder.path.rpartition("/")[0], []).append(folder.path)
    for directory, within in folders.items():
        for found in repair(LocalWritableStorage(), directory, within, how, time.time_ns() // 1_000_000):
            if isinstance(found, SeglogError):
                outcome.failures += 1
                yield {"status": "damaged", "path": getattr(found, "path", None) or directory, "what": str(found)}
            else:
                outcome.actions += 1
                yield {"status": "would be" if dry_run else "done", "path": found.path, "what": found.what}
