"""A standalone cluster of two workers: what only shows when driver, executors and files are of different processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.conftest import JAVA_OPTIONS
from tests.golden import IsolationLevel, golden_set
from tests.jobs.tables import read, rows
from tests.spark.conftest import ROOT
from tests.spark.rows import consumed
from tests.spark.standalone import running, standalone_cluster

SPARK_HOME = Path(pyspark.__file__).parent
DONE_WITHIN_SECONDS = 180
GOLDEN = golden_set("v2-transactions")
LEVEL: IsolationLevel = "read_committed"
ENVIRONMENT = {
    **os.environ,
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
}

# Run as a program of its own: a process has one Spark context, and the other tests' is in this one.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from tests.spark.rows import rows_of

master, path, level, java_options = sys.argv[1:]
spark = (
    SparkSession.builder.master(master)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.executor.memory", "512m")
    .config("spark.executor.cores", "1")
    .config("spark.executor.extraJavaOptions", java_options)
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
options = {"includeHeaders": "true", "isolationLevel": level, "minPartitions": "6"}
frame = spark.read.format("seglog").options(**options).load(path)
executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
print("ROWS", repr(rows_of(frame)))
print("EXECUTORS", len(executors) - 1)
spark.stop()
"""

# The same over Spark Connect, whose server is on this machine.
EXPORT = """
import sys
import sparklog
from pyspark.sql import SparkSession

master, source, target, java_options = sys.argv[1:]
spark = SparkSession.builder.remote(master) if master.startswith("local") else SparkSession.builder.master(master)
for name, value in {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": java_options,
}.items():
    spark = spark.config(name, value)
spark = spark.getOrCreate()
for _ in range(2):
    print("MOVED", sparklog.export(source, target, task_bytes=4096, spark=spark).rows, flush=True)
print("DONE")
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    with standalone_cluster(tmp_path, SPARK_HOME, ENVIRONMENT) as url:
        yield url


def test_golden_directory_reads_through_a_cluster_of_two_workers(cluster: str, tmp_path: Path) -> None:
    said = output_of(PROGRAM, "EXECUTORS", tmp_path, cluster, str(GOLDEN.log_dir), LEVEL, JAVA_OPTIONS)
    assert re.search(r"^EXECUTORS 2$", said, re.MULTILINE), said[-3000:]
    found = next(line.removeprefix("ROWS ") for line in said.splitlines() if line.startswith("ROWS "))
    assert found == repr(sorted(consumed(GOLDEN, LEVEL)))


def output_of(text: str, last: str, tmp_path: Path, *arguments: str) -> str:
    """Run a program until it says its last word, and return all that it said."""
    log, program = tmp_path / "driver.log", tmp_path / "program.py"
    program.write_text(text)
    with running(log, ENVIRONMENT, sys.executable, str(program), *arguments):
        deadline = time.monotonic() + DONE_WITHIN_SECONDS
        while last not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.2)
    return log.read_text()


def test_export_on_a_cluster_of_two_workers_moves_every_record_once(cluster: str, tmp_path: Path) -> None:
    exported(cluster, tmp_path)


def test_export_over_spark_connect_moves_every_record_once(tmp_path: Path) -> None:
    loads = subprocess.run([sys.executable, "-c", "import pyspark.sql.connect.proto"], capture_output=True, check=False)
    if b"VersionError" in loads.stderr:
        pytest.skip("Connect of this PySpark needs a newer protobuf")
    exported("local[2]", tmp_path)


def exported(master: str, tmp_path: Path) -> None:
    wanted = read(GOLDEN.log_dir)
    said = output_of(EXPORT, "DONE", tmp_path, master, str(GOLDEN.log_dir), str(tmp_path / "out"), JAVA_OPTIONS)
    assert re.findall(r"^MOVED (\d+)$", said, re.MULTILINE) == [str(len(wanted)), "0"], said[-3000:]
    assert sorted(row["value"] for row in rows(tmp_path / "out")) == sorted(row["value"] for row in wanted)
