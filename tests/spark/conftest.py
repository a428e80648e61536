"""One Spark session for all tests of this folder: starting one takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a session on ``local[2]`` that was not told of the format: Spark must find it."""
    # Workers are started from these: else Spark takes the python3 of PATH, which may be another.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    made = (
        SparkSession.builder.master("local[2]")
        .appName("sparklog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    # py4j hears Java's calls by select, which takes no descriptor above 1023: its thread would end in silence, and Java
    # wait for ever.
    gateway: Any = made.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    descriptor = gateway._callback_server.server_socket.fileno()
    assert descriptor < 1024, f"tests before this one have left {descriptor} descriptors open"
    yield made
    made.stop()


@pytest.fixture
def spark(session: SparkSession) -> SparkSession:
    """Return the session, which is the active one of this thread, as Spark wants it to find Python's formats.

    A test that forks can cost the thread its connection to Java, and Java's thread behind a new one has no session.
    """
    session.createDataFrame([], "number int")
    return session
