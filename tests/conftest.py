"""What every test needs: examples that may take their time, Java that starts fast, and the longest files first."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

# The first call of a kernel compiles it.
settings.register_profile("sparklog", deadline=None)
settings.load_profile("sparklog")

# Spark is started many times and for seconds each, in which Java's second compiler takes more time than it saves.
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)
# Programs that do not say otherwise, as those of the pages, get no web server and no 200 tasks a shuffle.
SETTINGS: Final = "--conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2"
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"{SETTINGS} pyspark-shell")

HERE: Final = Path(__file__).parent
LONGEST_FIRST: Final = (
    "jobs/test_crashes.py",
    "spark/test_write.py",
    "spark/test_source.py",
    "spark/test_write_failures.py",
    "test_readme.py",
    "spark/test_cluster.py",
    "spark/worker/test_boundary.py",
    "spark/test_kills.py",
    "topic/write/test_commit.py",
    "fuzz/test_full_disk.py",
    "record/batches/test_checksums.py",
    "cli/test_agreement.py",
    "fuzz/test_rules.py",
    "cli/commands/test_main.py",
    "record/decode/test_columns.py",
    "write/test_partition.py",
    "write/test_sharing.py",
)
"""Files that one process runs while others run the rest: started last, they would keep one core busy at the end."""


@pytest.fixture(autouse=True)
def logger_of_libraries() -> Iterator[None]:
    """Undo what commands of the terminal do to the logger, which would keep warnings from the tests after them."""
    logger = logging.getLogger("sparklog")
    handlers, propagates = logger.handlers, logger.propagate
    yield
    logger.handlers, logger.propagate = handlers, propagates


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first where several processes share the tests."""
    if not hasattr(config, "workerinput"):
        return
    ranks = {HERE / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
