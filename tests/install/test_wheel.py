"""A wheel in an empty environment, as a user has it: whatever starts Spark there reads, with nothing of the checkout.

Packages come from the index, so these tests are run by ``make test-install``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import JAVA_OPTIONS
from tests.golden import golden_set
from tests.spark.standalone import running, standalone_cluster, wait_for

pytestmark = pytest.mark.install

ROOT = Path(__file__).parents[2]
BESIDE_THE_WHEEL = ("nbconvert", "ipykernel")
DONE_WITHIN_SECONDS = 300
GOLDEN = golden_set("v2-codecs")

PLAIN = f"""
import sparklog
rows = [
    [row["topic"], row["partition"], row["offset"], (row["value"] or b"").hex()]
    for row in sparklog.open_topic({str(GOLDEN.log_dir)!r}).read().to_pylist()
]
print("FOUND", rows)
"""
READ = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder{{how}}.getOrCreate()
frame = spark.read.format("seglog").load({str(GOLDEN.log_dir)!r})
rows = frame.selectExpr("topic", "partition", "offset", "coalesce(lower(hex(value)), '')").collect()
print("FOUND", sorted(list(row) for row in rows))
spark.stop()
"""
JOBS = f"""
import sparklog
from pyspark.sql import SparkSession
spark = SparkSession.builder{{how}}.getOrCreate()
exported = sparklog.export({str(GOLDEN.log_dir)!r}, "{{to}}/table", spark=spark)
loaded = sparklog.load("{{to}}/table", "{{to}}/logs", topic="t", num_partitions=2, partition=None, spark=spark)
copied = sparklog.copy("{{to}}/logs", "{{to}}/copy", spark=spark)
sparklog.clean("{{to}}/copy", retention_ms=0, spark=spark)
print("FOUND", exported.rows, loaded.records, copied.rows, sparklog.open_topic("{{to}}/copy").read().num_rows)
spark.stop()
"""


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel, and a home of its own, in which no kernel is compiled yet."""

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """What its programs find in their environment: no more of this process's than Java."""
        kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
        return {
            **kept,
            "PATH": os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]]),
            "HOME": str(self.folder / "home"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
        }

    @property
    def spark_home(self) -> Path:
        """Where PySpark was installed."""
        (found,) = self.folder.glob("lib/python3*/site-packages/pyspark")
        return found

    def said_by(self, command: str, *arguments: str) -> str:
        """Run one of its programs, away from the checkout, and return what it printed."""
        program = str(self.folder / "bin" / command)
        ran = subprocess.run(
            [program, *arguments],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=DONE_WITHIN_SECONDS,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        return ran.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment that has all that the tests start."""
    return install(tmp_path_factory.mktemp("installed"), "connect", *BESIDE_THE_WHEEL)


def install(folder: Path, extra: str, *beside: str) -> Installed:
    """Build the wheel, and install it with an extra where nothing else is."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("sparklog-*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    own = (str(folder / "bin" / "python"), *pip[1:])
    subprocess.run([*own, "install", f"sparklog[{extra}] @ {wheel.as_uri()}", *beside], check=True, cwd=folder)
    (folder / "home").mkdir()
    return Installed(folder)


def wanted() -> str:
    """Return what every program must print: the records that Kafka's consumer read."""
    return "FOUND " + repr(
        sorted(
            [record["topic"], record["partition"], record["offset"], (record["value"] or b"").hex()]
            for record in GOLDEN.records("read_uncommitted")
        )
    )


def program(installed: Installed, how: str) -> str:
    """Write a program that reads with a session made so; return its path."""
    path = installed.folder / "read.py"
    path.write_text(READ.format(how=how))
    return str(path)


def jobs(installed: Installed, how: str, to: Path) -> str:
    """Write a program that runs every job with a session made so; return its path."""
    path = installed.folder / "jobs.py"
    path.write_text(JOBS.format(how=how, to=to))
    return str(path)


def moved() -> str:
    """Return what it must print: each job moves all records, and the last one then removes them."""
    rows = len(GOLDEN.records("read_committed"))
    return f"FOUND {rows} {rows} {rows} 0"


def test_extra_of_spark_is_all_that_jobs_need(tmp_path: Path) -> None:
    installed = install(tmp_path, "spark")
    assert moved() in installed.said_by("python", jobs(installed, '.master("local[2]")', tmp_path / "to"))


def test_python_reads_without_spark(installed: Installed) -> None:
    assert wanted() in installed.said_by("python", "-c", PLAIN)


def test_python_starts_spark_and_reads(installed: Installed) -> None:
    assert wanted() in installed.said_by("python", program(installed, '.master("local[2]")'))


def test_spark_submit_runs_a_program_that_reads(installed: Installed) -> None:
    assert wanted() in installed.said_by("spark-submit", "--master", "local[2]", program(installed, ""))


def test_notebook_reads(installed: Installed) -> None:
    cell: dict[str, Any] = {"cell_type": "code", "id": "read", "execution_count": None, "metadata": {}, "outputs": []}
    notebook = {
        "cells": [{**cell, "source": READ.format(how='.master("local[2]")')}],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (installed.folder / "read.ipynb").write_text(json.dumps(notebook))
    said = installed.said_by("jupyter-nbconvert", "--to", "notebook", "--execute", "--stdout", "read.ipynb")
    (output,) = [each for each in json.loads(said)["cells"][0]["outputs"] if each.get("name") == "stdout"]
    assert wanted() in "".join(output["text"])


def test_client_of_a_connect_server_reads(installed: Installed, tmp_path: Path) -> None:
    start = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]")
    binding = "spark.connect.grpc.binding"
    conf = ("--conf", f"{binding}.port=0", "--conf", f"{binding}.address=127.0.0.1")
    log = tmp_path / "server.log"
    submit = str(installed.folder / "bin" / "spark-submit")
    with running(log, installed.variables, submit, *start, *conf, "spark-internal"):
        port = wait_for(log, r"Spark Connect server started at: \S+?:(\d+)")[1]
        assert wanted() in installed.said_by("python", program(installed, f'.remote("sc://127.0.0.1:{port}")'))
        assert moved() in installed.said_by("python", jobs(installed, f'.remote("sc://127.0.0.1:{port}")', tmp_path))


def test_session_that_starts_a_connect_server_of_its_own_reads(installed: Installed) -> None:
    assert wanted() in installed.said_by("python", program(installed, '.remote("local[2]")'))


@pytest.mark.parametrize("start", ["python", "spark-submit"])
def test_standalone_cluster_of_two_workers_reads(installed: Installed, tmp_path: Path, start: str) -> None:
    with standalone_cluster(tmp_path, installed.spark_home, installed.variables) as url:
        conf = f'.master("{url}").config("spark.executor.memory", "512m").config("spark.executor.cores", "1")'
        assert wanted() in installed.said_by(start, program(installed, conf))
