"""Shortens sparklog's errors to their messages, for the person whose query fails.

Spark runs a data source in worker processes, and puts the text of an exception into an error of its own: a whole
traceback, whose last line is the message. The message of a `SeglogError` says everything, so it is passed on alone,
with one more line for an exception of another library that caused it. An environment variable chooses the form of
Spark's report. Setting it does no harm, since a worker ends with the exception that it reports.

``spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled=false`` brings the whole tracebacks back.

Source: apache/spark, python/pyspark/util.py (handle_worker_exception).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparklog.errors import SeglogError
from sparklog.storage.process import environment_value, set_environment_value

_SHORTENED: Final = "SPARK_SIMPLIFIED_TRACEBACK"
_HIDDEN: Final = "SPARK_HIDE_TRACEBACK"


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let a `SeglogError` leave a Spark worker as its message and its cause, without the traceback.

    Outside such a worker, and for any other exception, this changes nothing.
    """
    try:
        yield
    except SeglogError as error:
        cause = _cause(error)
        if cause is not None and not _is_in_message(cause, error.message):
            error.add_note(f"Caused by {type(cause).__name__}: {cause}")
        # Spark sets this variable for its workers only.
        if environment_value(_SHORTENED):
            set_environment_value(_HIDDEN, "1")
        raise


def _is_in_message(cause: BaseException, message: str) -> bool:
    reason = cause.strerror if isinstance(cause, OSError) else None
    return (reason or str(cause)) in message


def _cause(error: BaseException) -> BaseException | None:
    """Return the first exception in an error's chain of causes that is not a `SeglogError`."""
    cause = error.__cause__
    while isinstance(cause, SeglogError):
        cause = cause.__cause__
    return cause
