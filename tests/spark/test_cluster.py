"""A standalone cluster of two workers: what only shows when driver, executors and files are of different processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
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

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.shuffle.partitions": "1",
}

# Run as a program of its own: a process has one Spark context, and the other tests' is in this one. A master of this
# machine is reached over Spark Connect.
PROGRAM = """
import json, sys
import sparklog
from pyspark.sql import SparkSession
from tests.spark.rows import rows_of

master, source, target, level, settings = sys.argv[1:]
is_remote = master.startswith("local")
builder = SparkSession.builder.remote(master) if is_remote else SparkSession.builder.master(master)
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
if not is_remote:
    spark.sparkContext.setLogLevel("ERROR")
    options = {"includeHeaders": "true", "isolationLevel": level, "minPartitions": "6"}
    print("ROWS", repr(rows_of(spark.read.format("seglog").options(**options).load(source))))
    print("EXECUTORS", len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1)
for _ in range(2):
    print("MOVED", sparklog.export(source, target, task_bytes=4096, spark=spark).rows, flush=True)
print("DONE", flush=True)
spark.stop()
"""


def said_by(master: str, folder: Path) -> str:
    """Run the program until it is done, and return all that it said."""
    log, program = folder / "driver.log", folder / "program.py"
    program.write_text(PROGRAM)
    arguments = (master, str(GOLDEN.log_dir), str(folder / "out"), LEVEL, json.dumps(SETTINGS))
    with running(log, ENVIRONMENT, sys.executable, str(program), *arguments):
        deadline = time.monotonic() + DONE_WITHIN_SECONDS
        while "DONE" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.2)
    return log.read_text()


@pytest.fixture(scope="module")
def on_cluster(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return what a program said that ran on a cluster, and the folder that it wrote to."""
    folder = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(folder, SPARK_HOME, ENVIRONMENT) as url:
        return said_by(url, folder), folder


def test_golden_directory_reads_through_a_cluster_of_two_workers(on_cluster: tuple[str, Path]) -> None:
    said, _ = on_cluster
    assert re.search(r"^EXECUTORS 2$", said, re.MULTILINE), said[-3000:]
    found = next(line.removeprefix("ROWS ") for line in said.splitlines() if line.startswith("ROWS "))
    assert found == repr(sorted(consumed(GOLDEN, LEVEL)))


def test_export_on_a_cluster_of_two_workers_moves_every_record_once(on_cluster: tuple[str, Path]) -> None:
    assert_exported(*on_cluster)


def test_export_over_spark_connect_moves_every_record_once(tmp_path: Path) -> None:
    loads = subprocess.run([sys.executable, "-c", "import pyspark.sql.connect.proto"], capture_output=True, check=False)
    if b"VersionError" in loads.stderr:
        pytest.skip("Connect of this PySpark needs a newer protobuf")
    assert_exported(said_by("local[2]", tmp_path), tmp_path)


def assert_exported(said: str, folder: Path) -> None:
    wanted = read(GOLDEN.log_dir)
    assert re.findall(r"^MOVED (\d+)$", said, re.MULTILINE) == [str(len(wanted)), "0"], said[-3000:]
    assert sorted(row["value"] for row in rows(folder / "out")) == sorted(row["value"] for row in wanted)
