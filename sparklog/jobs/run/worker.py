"""Runs a task in a worker and returns how it ended; this never raises."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from sparklog.errors import SeglogError
from sparklog.jobs.run.job import Failed, Finished, PartlyDoneError, Report, Work


def run_task(job: Work[Any, Any], row: int, task: Any, report: Report) -> Finished | Failed:
    """Do a task, and return how it ended."""
    try:
        result = job.run(task, report)
        return Finished(row, list(result) if isinstance(result, Generator) else result)
    except PartlyDoneError as partly:
        first, *others = partly.errors
        return Failed(row, first, tuple(others), partly.result)
    except SeglogError as error:
        return Failed(row, error)
    except Exception as error:
        # It may be from a decoder of the user's own; another process would not see where it was raised.
        error.add_note(traceback.format_exc())
        return Failed(row, error)


def unpickled_job(data: bytes) -> Work[Any, Any]:
    """Read a job that was sent here; if it cannot be read, every task fails with that error."""
    try:
        job: Work[Any, Any] = pickle.loads(data)
    except Exception as error:
        return _Unreadable(error)  # type: ignore[return-value]
    return job


def pickled(said: Finished | Failed) -> bytes:
    """Return how a task ended as a pickle that is readable even if its result or its error is not."""
    try:
        data = pickle.dumps(said)
        pickle.loads(data)
    except Exception:
        error = said.error if isinstance(said, Failed) else SeglogError(f"the result does not pickle: {said!r}")
        return pickle.dumps(Failed(said.task, SeglogError("\n".join([repr(error), *getattr(error, "__notes__", ())]))))
    return data


@dataclass(frozen=True)
class _Unreadable:
    """Replaces a job that this process cannot read, for example because a class of the caller's is missing."""

    error: Exception

    def run(self, task: Any, report: Report) -> Any:  # noqa: ARG002
        raise SeglogError(f"a worker cannot read the job: {self.error!r}")
