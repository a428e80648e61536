"""The public Python functions of the jobs: they run on this machine, or with ``spark=`` on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from sparklog.jobs.clean import arguments as clean_logs
from sparklog.jobs.copy import arguments as copy_logs
from sparklog.jobs.description import describe as describe_logs
from sparklog.jobs.export import arguments as exporting
from sparklog.jobs.load import arguments as loading
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
load: Final = _on_spark(loading.load)
describe: Final = _on_spark(describe_logs)
verify: Final = _on_spark(verify_logs)
