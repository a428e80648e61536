"""Limits on what a trigger reads. PySpark has them since 4.2: before, a source is asked only where the end is.

So before, a source cannot say either that it supports `Trigger.AvailableNow`: see `tests.spark.test_stream_windows`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

_MODULE = "pyspark.sql.streaming.datasource"
HAS_LIMITS = find_spec(_MODULE) is not None
_given: Any = import_module(_MODULE) if HAS_LIMITS else None

needs_limits = pytest.mark.skipif(not HAS_LIMITS, reason="this PySpark has no limits on a trigger")

WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
"""Has Spark keep to the end that a source had at first, for `Trigger.AvailableNow` of sources that cannot do so."""

# What Spark hands a source for a trigger that reads all, and for one that the source limits.
READ_ALL: Any = _given.ReadAllAvailable() if HAS_LIMITS else None
READ_SOME: Any = _given.ReadMaxRows(1) if HAS_LIMITS else None


def limited(**options: int) -> dict[str, int]:
    """Return options that limit a trigger, for queries that read the same in more batches or fewer."""
    return options if HAS_LIMITS else {}
