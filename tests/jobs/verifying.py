"""Verifications of whole log directories, for tests."""

from __future__ import annotations

from pathlib import Path

from sparklog.inspect.verify_segment import Finding
from sparklog.jobs.named_logs import NamedLogs
from sparklog.jobs.run.job import Watch, found_by
from sparklog.jobs.run.local import LocalRunner
from sparklog.jobs.verification import VerifyJob
from sparklog.storage.base import Storage
from tests.places import LOCAL, location_of


def findings_in(directory: Path, storage: Storage = LOCAL, watch: Watch | None = None) -> list[Finding]:
    """Verify a log directory, whatever is in it, in this thread."""
    target = NamedLogs(location_of(directory, storage), (), is_directory=True)
    return list(found_by(VerifyJob((target,)), LocalRunner(1), watch))
