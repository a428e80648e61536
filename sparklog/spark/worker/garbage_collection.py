"""Spares the Python workers of Spark the garbage collection of all that they have imported.

A worker that is used again collects its garbage after each use, which takes some 30 ms once pandas, pyarrow and numba
are loaded: longer than many a task. Workers run tasks, and others of them what a source does for the driver: say its
columns, plan a read, make a writer, commit.

Source: apache/spark, python/pyspark/daemon.py (manager).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparklog.storage.process import environment_value

_REUSED: Final = "SPARK_REUSE_WORKER"
_DAEMON: Final = "pyspark.daemon"
_frozen = False


@contextmanager
def first_use_freezes() -> Iterator[None]:
    """Exempt from garbage collection what there is at the end of the first use of a worker that is used again.

    Modules and compiled code are never garbage, and are all but all that there is. Other Python code of the query runs
    in the same workers; its garbage is collected as before, but for cycles that are there at that one moment.
    """
    global _frozen
    try:
        yield
    finally:
        if not _frozen and environment_value(_REUSED) and _is_worker():
            _frozen = True
            gc.collect()
            gc.freeze()


def _is_worker() -> bool:
    """Tell whether this process was forked by the daemon that Spark starts its workers with."""
    program = getattr(sys.modules.get("__main__"), "__spec__", None)
    return program is not None and program.name == _DAEMON
