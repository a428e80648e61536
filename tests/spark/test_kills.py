"""Kills of ``df.write``, of all its processes and of a driver alone; and several writers on one partition at once."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

import sparklog
from sparklog.log.config import LogConfig
from sparklog.topic.recover import RecoverOptions, recover_directory
from tests.places import directory_at, folder_at
from tests.processes import kill_all, of_session
from tests.spark.conftest import ROOT
from tests.spark.test_write_failures import PARTITIONS, ROWS, jobs_in
from tests.topic.staged import findings, values

KILLS: Final = 51
ALIVE_SECONDS_MAX: Final = 2.5
OUTLIVED_SECONDS_MAX: Final = 120.0

WRITING = f"""
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for version in range(int(sys.argv[2]), 1000):
    rows = spark.range(0, {ROWS}, numPartitions=4).select(F.concat(F.lit(f"{{version}} "), "id").alias("value"))
    rows = rows.withColumn("partition", (F.col("value").substr(-1, 1).cast("int") % {PARTITIONS}).cast("int"))
    writer = rows.write.format("seglog").mode("append").option("numPartitions", {PARTITIONS})
    print("begin", version, flush=True)
    writer.option("txnAppId", "killed").option("txnVersion", version).save(sys.argv[1])
    print("done", version, flush=True)
"""


def kill_python_driver(session: int) -> None:
    os.kill(session, signal.SIGKILL)


def kill_java_driver(session: int) -> None:
    for process in of_session(session):
        if process.name() == "java":
            process.kill()


WAYS: Final[tuple[Callable[[int], None], ...]] = (kill_all, kill_python_driver, kill_java_driver)


def write_until_killed(directory: Path, first: int, chance: random.Random, kill: Callable[[int], None]) -> int:
    """Write one job after another until the kill; the first that may not have been written."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WRITING, str(directory / "events"), str(first)]
    last = first + chance.randrange(2)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, start_new_session=True, text=True
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line == f"begin {last}\n":
                break
        time.sleep(chance.uniform(0.0, ALIVE_SECONDS_MAX))
        kill(process.pid)
        deadline = time.monotonic() + OUTLIVED_SECONDS_MAX
        while of_session(process.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        left = [each.cmdline() for each in of_session(process.pid)]
        kill_all(process.pid)
        said += process.stdout.read()
    assert not left, f"still there after {OUTLIVED_SECONDS_MAX} s: {left}"
    return max([first - 1, *(int(number) for number in re.findall(r"done (\d+)", said))]) + 1


def recover_all(directory: Path) -> None:
    """Do what ``sparklog recover --staged-hours 0`` does."""
    folders = [folder_at(path) for path in directory.iterdir() if path.is_dir()]
    options = RecoverOptions(LogConfig(), orphan_age_ms=0)
    list(recover_directory(directory_at(directory), folders, options, time.time_ns() // 1_000_000 + 1))


@pytest.mark.fuzz
def test_killed_jobs_are_there_whole_or_not_at_all_and_reruns_write_each_row_once(tmp_path: Path) -> None:
    directory, chance = tmp_path / "logs", random.Random(1)
    directory.mkdir()
    first = 0
    for number in range(KILLS):
        before = jobs_in(directory)
        first = write_until_killed(directory, first, chance, WAYS[number % len(WAYS)])
        seen = jobs_in(directory)
        where = f"kill {number}, {WAYS[number % len(WAYS)].__name__}"
        assert set(seen.values()) <= {ROWS}, where
        assert seen.items() >= before.items(), where
        # All that was said to be done, and at most the one that was being written.
        assert sorted(seen) in (list(range(first)), list(range(first + 1))), where
        if number % 2:
            recover_all(directory)
            assert jobs_in(directory).items() >= seen.items(), where
            assert set(jobs_in(directory).values()) <= {ROWS}, where
            assert findings(directory) == [], where
            assert [path for path in directory.rglob("*.staged") if "kafka" not in path.name] == [], where
    recover_all(directory)
    assert set(jobs_in(directory).values()) == {ROWS}
    assert findings(directory) == []


def test_two_jobs_and_a_partition_log_write_to_one_partition_at_once(spark: SparkSession, tmp_path: Path) -> None:
    folder, jobs, sessions = tmp_path / "events-0", 2, 8
    with sparklog.PartitionLog.open(folder):
        pass

    def write(writer: int) -> None:
        # Spark finds Python's formats in threads that have an active session only; this gives them one.
        spark.createDataFrame([(writer,)], "number int")
        for number in range(jobs):
            rows = spark.range(0, ROWS, numPartitions=2).select(
                F.concat(F.lit(f"{writer} {number} "), F.spark_partition_id(), F.lit(" "), F.col("id")).alias("value"),
                F.lit(0).alias("partition"),
            )
            rows.write.format("seglog").mode("append").save(str(tmp_path / "events"))

    def append() -> None:
        for number in range(sessions):
            with sparklog.PartitionLog.open(folder, lock_timeout_seconds=120.0) as log:
                for part in range(3):
                    first, last = log.append(pa.table({"value": [f"log {number} {part} {n}" for n in range(40)]}))
                    assert last - first == 39

    with ThreadPoolExecutor(3) as pool:
        for running in [pool.submit(write, 0), pool.submit(write, 1), pool.submit(append)]:
            running.result()
    found = values(tmp_path)["events-0"]
    assert len(set(found)) == len(found) == 2 * jobs * ROWS + sessions * 3 * 40
    appended = [value for value in found if value.startswith("log ")]
    assert appended == [
        f"log {number} {part} {n}" for number in range(sessions) for part in range(3) for n in range(40)
    ]
    for writer in range(2):
        own = [value.split() for value in found if value.startswith(f"{writer} ")]
        keys = [(int(number), int(task), int(row)) for _, number, task, row in own]
        assert keys == sorted(keys)
    assert findings(tmp_path) == []
