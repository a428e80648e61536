"""Verifications of whole log directories, for tests."""

from __future__ import annotations

from pathlib import Path

from sparklog.inspect.verify_segment import Finding, Severity
from sparklog.jobs.across.faults import verify_across
from sparklog.jobs.named_logs import NamedLogs
from sparklog.jobs.run.job import Watch, found_by
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.verification import VerifyJob
from sparklog.storage.base import Storage
from tests.places import LOCAL, directory_at, location_of


def findings_in(directory: Path, storage: Storage = LOCAL, watch: Watch | None = None) -> list[Finding]:
    """Verify a log directory, whatever is in it, in this thread."""
    target = NamedLogs(location_of(directory, storage), (), is_directory=True)
    return list(found_by(VerifyJob((target,)), LocalRunner(1), watch))


def problems_across(*directories: Path) -> list[tuple[str, str, str]]:
    """Compare the files of log directories; return severity, code and file of each finding that is no note."""
    found = verify_across([directory_at(directory) for directory in directories])
    return [
        (each.severity.value, each.code, Path(each.path).name)
        for each in found
        if isinstance(each, Finding) and each.severity is not Severity.NOTE
    ]
