"""Spares the tasks of a Python worker of Spark the garbage collection of all that the worker has imported.

A worker that is used again collects its garbage after each task, which takes some 30 ms once pandas, pyarrow and numba
are loaded: longer than many a task.

Source: apache/spark, python/pyspark/daemon.py (manager).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from sparklog.storage.process import environment_value

_REUSED = "SPARK_REUSE_WORKER"
_frozen = False


@contextmanager
def first_task_freezes() -> Iterator[None]:
    """Exempt from garbage collection what there is at the end of the first task of a worker that is used again.

    Modules and compiled code are never garbage, and are all but all that there is. Other Python code of the query runs
    in the same workers; its garbage is collected as before, but for cycles that are there at that one moment.
    """
    global _frozen
    try:
        yield
    finally:
        if not _frozen and TaskContext.get() is not None and environment_value(_REUSED):
            _frozen = True
            gc.collect()
            gc.freeze()
