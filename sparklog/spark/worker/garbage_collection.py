"""Keeps Spark's Python workers from garbage-collecting everything that they have imported.

A reused worker collects its garbage after each use, which takes some 30 ms once pandas, pyarrow and numba are loaded:
longer than many tasks. Some workers run tasks, others run a source's calls for the driver: return its columns, plan a
read, make a writer, commit.

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
    """Exempt all objects that exist at the end of a reused worker's first use from garbage collection.

    Almost all of them are modules and compiled code, which are never garbage. Other Python code of the query runs in
    the same workers; its garbage is collected as before, except cycles that exist at that one moment.
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
    """Return whether this process was forked by the daemon that Spark starts its workers with."""
    program = getattr(sys.modules.get("__main__"), "__spec__", None)
    return program is not None and program.name == _DAEMON
