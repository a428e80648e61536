"""What every test needs: examples that may take their time, Java that starts fast, and the longest files first."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from tests.starts_processes import starts_processes

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
    "clients/test_producer.py",
    "topic/write/test_commit.py",
    "record/batches/test_checksums.py",
    "fuzz/test_rules.py",
    "clients/test_producer_transactions.py",
    "record/decode/test_columns.py",
    "jobs/test_copy_crash.py",
    "jobs/test_erase.py",
    "topic/transactions/test_commit.py",
    "jobs/test_load_crashes.py",
    "write/test_sharing.py",
)
"""Files that one process runs while others run the rest: started last, they would keep one core busy at the end.

In the order of the CPU time that they and their processes take, Spark's apart. Their tests are marked `long`.
"""


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spare tests the wait for the disk, which takes most of their time: no test cuts this machine's power.

    That syncs are made, and in the right order, is shown by the storage that stops; `tests/storage` makes real ones.
    """
    with pytest.MonkeyPatch.context() as patch:
        if HERE / "storage" not in request.path.parents:
            patch.setattr("os.fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def logger_of_libraries() -> Iterator[None]:
    """Undo what commands of the terminal do to the logger, which would keep warnings from the tests after them."""
    logger = logging.getLogger("sparklog")
    handlers, propagates = logger.handlers, logger.propagate
    yield
    logger.handlers, logger.propagate = handlers, propagates


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by what they need; put the longest files first where several processes share the tests."""
    ranks = {HERE / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    for item in items:
        if HERE / "spark" in item.path.parents or item.path == HERE / "test_readme.py":
            item.add_marker(pytest.mark.spark)
        if item.path in ranks:
            item.add_marker(pytest.mark.long)
        name = item.originalname if isinstance(item, pytest.Function) else item.name
        if name in starts_processes(item.path):
            item.add_marker(pytest.mark.processes)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
