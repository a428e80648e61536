"""Jobs that die, disks that are full, and many jobs at once: of each job everything is there, or nothing."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import BinaryType, StructField, StructType

from sparklog.log.config import LogConfig
from sparklog.spark import writer
from sparklog.spark.options.write import WriteOptions
from sparklog.spark.writer import SeglogWriter
from sparklog.topic.recover import RecoverOptions, recover_directory
from tests.places import directory_at, folder_at
from tests.spark.conftest import ROOT
from tests.topic.staged import findings, values

ROWS = 3000
PARTITIONS = 3
KILLS = 3

WRITING = f"""
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
print("ready", flush=True)
for job in range(int(sys.argv[2]), 1000):
    rows = spark.range(0, {ROWS}, numPartitions=4).select(F.concat(F.lit(f"{{job}} "), "id").alias("value"))
    rows = rows.withColumn("partition", (F.col("value").substr(-1, 1).cast("int") % {PARTITIONS}).cast("int"))
    rows.write.format("seglog").mode("append").option("numPartitions", {PARTITIONS}).save(sys.argv[1])
    print("done", job, flush=True)
"""


def jobs_in(directory: Path) -> dict[int, int]:
    """Count the rows of each job, each row checked to be there once."""
    everything = [value for each in values(directory).values() for value in each]
    assert len(set(everything)) == len(everything)
    counts: dict[int, int] = {}
    for value in everything:
        job = int(value.split()[0])
        counts[job] = counts.get(job, 0) + 1
    return counts


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.fuzz) for seed in range(1, KILLS))])
def test_driver_and_tasks_that_are_killed_leave_all_of_a_job_or_nothing(tmp_path: Path, seed: int) -> None:
    """SIGKILL to every process of the job, at a time that nobody chose."""
    directory = tmp_path / "logs"
    first, chance = 0, random.Random(seed)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WRITING, str(directory / "events"), str(first)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, start_new_session=True, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("done 1"):
                break
        time.sleep(chance.uniform(0.0, 1.5))
        os.killpg(process.pid, signal.SIGKILL)
        done = [int(number) for number in re.findall(r"done (\d+)", process.stdout.read())]
    committed = max([1, *done])
    seen = jobs_in(directory)
    assert set(seen.values()) == {ROWS}
    assert sorted(seen) in (list(range(committed + 1)), list(range(committed + 2)))
    options = RecoverOptions(LogConfig(), orphan_age_ms=0)
    folders = [folder_at(path) for path in directory.iterdir() if path.is_dir()]
    list(recover_directory(directory_at(directory), folders, options, time.time_ns() // 1_000_000 + 1))
    assert jobs_in(directory).items() >= seen.items()
    assert set(jobs_in(directory).values()) == {ROWS}
    assert findings(directory) == []
    assert [path for path in directory.rglob("*.staged") if "kafka" not in path.name] == []


def job(spark: SparkSession, number: int, tasks: int = 2) -> DataFrame:
    rows = spark.range(0, ROWS, numPartitions=tasks)
    return rows.select(
        F.concat(F.lit(f"{number} "), F.spark_partition_id(), F.lit(" "), F.col("id")).alias("value"),
        (F.col("id") % PARTITIONS).cast("int").alias("partition"),
    )


def write(frame: DataFrame, directory: Path) -> None:
    frame.write.format("seglog").mode("append").option("numPartitions", PARTITIONS).save(str(directory / "events"))


def test_four_jobs_at_once_are_all_there_and_in_order(spark: SparkSession, tmp_path: Path) -> None:
    def run(number: int) -> None:
        # Spark finds Python's formats in threads that have an active session only; this gives them one.
        spark.createDataFrame([(number,)], "number int")
        write(job(spark, number), tmp_path)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert jobs_in(tmp_path) == dict.fromkeys(range(4), ROWS)
    for found in values(tmp_path).values():
        by_task: dict[str, list[int]] = {}
        for value in found:
            number, task, row = value.split()
            by_task.setdefault(f"{number} {task}", []).append(int(row))
        assert len(by_task) == 8
        assert all(rows == sorted(rows) for rows in by_task.values())
    assert findings(tmp_path) == []


def test_task_that_dies_and_runs_again_writes_its_rows_once(tmp_path: Path) -> None:
    """In a session of its own, in which tasks have more than one attempt."""
    script = f"""
import os, signal, sys
from pyspark import TaskContext
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
def rows(part):
    for n in part:
        if n == {ROWS - 10} and TaskContext.get().attemptNumber() < 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield (f"0 {{n}}",)
frame = spark.sparkContext.parallelize(range({ROWS}), 2).mapPartitions(rows).toDF("value string")
frame.write.format("seglog").mode("append").option("numPartitions", {PARTITIONS}).save(sys.argv[1])
"""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, str(tmp_path / "events")]
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=300)
    assert jobs_in(tmp_path) == {0: ROWS}
    assert list(tmp_path.rglob("*.staged")) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB; to mount one takes root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], check=True, capture_output=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def left_after(seconds: float, directory: Path) -> list[Path]:
    """Return the staged files that are still there when so much time has passed; a job's tasks may outlive it."""
    deadline = time.monotonic() + seconds
    while (left := list(directory.rglob("*.staged"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def big(spark: SparkSession) -> DataFrame:
    return spark.range(0, 60_000, numPartitions=2).select(F.sha2(F.col("id").cast("string"), 512).alias("value"))


def test_full_disk_leaves_what_was_there(spark: SparkSession, small_disk: Path) -> None:
    write(job(spark, 0), small_disk)
    with pytest.raises(PySparkException, match="the disk is full"):
        write(big(spark).withColumn("partition", F.lit(0)), small_disk)
    assert jobs_in(small_disk) == {0: ROWS}
    assert not left_after(30.0, small_disk)
    write(job(spark, 1), small_disk)
    assert jobs_in(small_disk) == {0: ROWS, 1: ROWS}
    assert findings(small_disk) == []


def test_read_only_disk_is_named(spark: SparkSession, small_disk: Path) -> None:
    write(job(spark, 0), small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(PySparkException, match="read-only"):
        write(job(spark, 1), small_disk)
    assert jobs_in(small_disk) == {0: ROWS}


def test_file_size_limit_leaves_what_was_there(tmp_path: Path) -> None:
    script = """
import resource, sys, pyarrow as pa, sparklog
with sparklog.PartitionLog.open(sys.argv[1], sparklog.LogConfig(compression_type="uncompressed")) as log:
    log.append(pa.table({"value": ["0 before"]}))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    try:
        log.append(pa.table({"value": ["x" * 1000] * 200}))
    except sparklog.errors.StorageError as error:
        print(error)
    log.append(pa.table({"value": ["1 after"]}))
"""
    command = [sys.executable, "-c", script, str(tmp_path / "events-0")]
    said = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert "ulimit -f" in said.stdout
    assert values(tmp_path) == {"events-0": ["0 before", "1 after"]}


UNWRITABLE_REPORTS = {
    "nowhere/report.json": "reportPath cannot be written, there is no folder .*/nowhere; nothing was written",
    "folder": "reportPath cannot be written, .*folder.*; nothing was written",
    "loop": "reportPath cannot be written, .*loop.*; nothing was written",
    "logs/events-0/00000000000000000000.log": "reportPath is in the folder of a partition",
}


def test_report_that_cannot_be_written_is_refused_before_the_write(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    write(job(spark, 0), tmp_path / "logs")
    before = (tmp_path / "logs" / "events-0" / f"{0:020d}.log").read_bytes()
    for report, said in UNWRITABLE_REPORTS.items():
        with pytest.raises(PySparkException, match=said):
            job(spark, 1).write.format("seglog").mode("append").option("reportPath", str(tmp_path / report)).save(
                str(tmp_path / "logs" / "events")
            )
        assert (tmp_path / "logs" / "events-0" / f"{0:020d}.log").read_bytes() == before
        assert jobs_in(tmp_path / "logs") == {0: ROWS}
        assert not list((tmp_path / "logs").rglob("*.staged"))


def test_report_that_cannot_be_written_after_the_commit_is_warned_of(spark: SparkSession, tmp_path: Path) -> None:
    """The device takes no byte, which nobody can know before."""
    job(spark, 0).write.format("seglog").mode("append").options(numPartitions=PARTITIONS, reportPath="/dev/full").save(
        str(tmp_path / "events")
    )
    assert jobs_in(tmp_path) == {0: ROWS}
    assert Path("/dev/full").is_char_device()


def test_nothing_that_runs_after_the_commit_fails_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = WriteOptions.parse({"path": str(tmp_path / "events"), "numPartitions": "1"})
    made = SeglogWriter(options, StructType([StructField("value", BinaryType())]), is_overwrite=False)

    def fail(_: object) -> list[str]:
        raise ZeroDivisionError("of the report")

    monkeypatch.setattr(writer, "_report", fail)
    made.commit([])
    assert caplog.messages == [
        "the write is committed, and all of it is visible; the report of it could not be written: of the report"
    ]
    assert (tmp_path / "events-0").is_dir()


def test_looking_whether_the_report_can_be_written_changes_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    schema = StructType([StructField("value", BinaryType())])
    given = {"path": str(tmp_path / "logs" / "events"), "numPartitions": "1", "reportPath": str(report)}
    SeglogWriter(WriteOptions.parse(given), schema, is_overwrite=False)
    assert not report.exists()
    report.write_text("of the last write")
    SeglogWriter(WriteOptions.parse(given), schema, is_overwrite=False)
    assert report.read_text() == "of the last write"
    SeglogWriter(
        WriteOptions.parse({**given, "path": str(tmp_path / "new" / "t"), "reportPath": str(tmp_path / "new" / "r")}),
        schema,
        is_overwrite=False,
    )
