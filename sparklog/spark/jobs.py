"""The public Python functions of the jobs: they run on this machine, or with ``spark=`` on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from sparklog.jobs.backup import arguments as backing_up
from sparklog.jobs.backup.checking import verify_backups as verify_sets
from sparklog.jobs.clean import arguments as clean_logs
from sparklog.jobs.copy import arguments as copy_logs
from sparklog.jobs.description import describe as describe_logs
from sparklog.jobs.difference import diff as diff_logs
from sparklog.jobs.export import arguments as exporting
from sparklog.jobs.load import arguments as loading
from sparklog.jobs.mirror import arguments as mirroring
from sparklog.jobs.restore import arguments as restore_logs
from sparklog.jobs.salvage import arguments as salvaging
from sparklog.jobs.verification import verify as verify_logs
from sparklog.spark.runner import SparkRunner

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _on_spark(job: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a job take ``spark=``, a Spark session, which then runs its tasks."""

    @wraps(job)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        session = kwargs.get("spark")
        if session is not None:
            kwargs["spark"] = SparkRunner(session)  # type: ignore[arg-type]
        return job(*args, **kwargs)

    return run


export: Final = _on_spark(exporting.export)
clean: Final = _on_spark(clean_logs.clean)
copy: Final = _on_spark(copy_logs.copy)
salvage: Final = _on_spark(salvaging.salvage)
load: Final = _on_spark(loading.load)
restore: Final = _on_spark(restore_logs.restore)
describe: Final = _on_spark(describe_logs)
diff: Final = _on_spark(diff_logs)
verify: Final = _on_spark(verify_logs)
mirror: Final = _on_spark(mirroring.mirror)
backup: Final = _on_spark(backing_up.backup)
verify_backups: Final = _on_spark(verify_sets)
