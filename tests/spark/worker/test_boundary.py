"""The text of an error as the user of Spark sees it: our sentence first, its cause behind it, no traceback of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from sparklog.errors import InvalidOptionError, SeglogError, StorageError
from sparklog.spark.worker.boundary import plain_errors
from tests.log.logs import only_log, write
from tests.spark.conftest import ROOT

LINES_MAX = 4
DATA = ROOT / "examples" / "data"


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("seglog").options(**options).load(str(path))


def damaged(folder: Path) -> Path:
    write(folder, 1)
    log = only_log(folder)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    return folder


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(3).select(F.col("id").cast("string").alias("value"))


def save(frame: DataFrame, path: Path, **options: str) -> None:
    frame.write.format("seglog").mode("append").options(**options).save(str(path))


def refusal(query: Callable[[], object]) -> list[str]:
    with pytest.raises(PySparkException) as raised:
        query()
    return str(raised.value).splitlines()


def assert_ours_comes_first(lines: list[str], sentence: str) -> None:
    """Check that the message stands in the first line, or below one of Spark's, and that no frame stands anywhere."""
    assert any(sentence in line for line in [line for line in lines if line][:2]), lines
    assert len(lines) <= LINES_MAX, lines
    assert not any("Traceback" in line or line.lstrip().startswith("File ") for line in lines), lines


def test_misspelt_option(spark: SparkSession) -> None:
    lines = refusal(lambda: read(spark, DATA, startingOfsets="earliest").count())
    assert_ours_comes_first(
        lines, "[SEGLOG_INVALID_OPTION] no option 'startingofsets': did you mean 'startingOffsets'?"
    )


def test_missing_path(spark: SparkSession) -> None:
    lines = refusal(lambda: read(spark, DATA / "shop-evnts").count())
    assert_ours_comes_first(
        lines, f"[SEGLOG_PATH_NOT_FOUND] no such path: {DATA}/shop-evnts; did you mean 'shop-events'"
    )


def test_plan_that_cannot_be_made(spark: SparkSession) -> None:
    lines = refusal(lambda: read(spark, DATA / "shop-events", startingOffsets='{"shop-events":{"0":1}}').count())
    assert_ours_comes_first(lines, "Partitions specified for Kafka starting offsets don't match what are assigned")


def test_schema_that_is_not_the_logs(spark: SparkSession) -> None:
    lines = refusal(lambda: spark.read.format("seglog").schema("offset int").load(str(DATA)).count())
    assert_ours_comes_first(lines, "column 'offset' is bigint, not int")


def test_damaged_batch_in_a_task(spark: SparkSession, tmp_path: Path) -> None:
    folder = damaged(tmp_path / "events-0")
    lines = refusal(lambda: read(spark, tmp_path).select(F.sum(F.length("value"))).collect())
    assert_ours_comes_first(lines, "[SEGLOG_CORRUPT_BATCH] CRC-32C is")
    assert any(f"(file {folder}/00000000000000000000.log, position 0, offset 0)" in line for line in lines)


def test_write_that_is_refused_on_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    lines = refusal(lambda: save(spark.range(3).toDF("id"), tmp_path / "events", numPartitions="1"))
    assert_ours_comes_first(lines, "[SEGLOG_INVALID_OPTION] Required attribute 'value' not found")


def test_write_that_is_refused_in_a_task(spark: SparkSession, tmp_path: Path) -> None:
    wrong = rows(spark).withColumn("partition", F.lit(7))
    lines = refusal(lambda: save(wrong, tmp_path / "events", numPartitions="2"))
    assert_ours_comes_first(lines, "the column partition says 7 in row 0, and the topic's partitions are 0 to 1")


def test_write_that_is_refused_at_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    save(rows(spark), tmp_path / "events", numPartitions="1", topicId="Q2TYVrXaSDWPZ5lUZtm3Jg")
    lines = refusal(lambda: save(rows(spark), tmp_path / "events", topicId="Q2TYVrXaSDWPZ5lUZtm3Jh"))
    assert_ours_comes_first(lines, "topicId is Q2TYVrXaSDWPZ5lUZtm3Jh")


SCRIPT = f"""
import time
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

class Reader(DataSourceReader):
    def read(self, partition):
        for _ in range(1000):
            yield pa.RecordBatch.from_pydict({{"id": pa.array(range(1000), pa.int64())}})

class Trivial(DataSource):
    def schema(self):
        return "id bigint"
    def reader(self, schema):
        return Reader()

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(Trivial)
print(spark.read.format("Trivial").load().limit(3).collect(), flush=True)
time.sleep(3)
print("then", spark.read.format("seglog").load({str(DATA)!r}).limit(3).count(), flush=True)
time.sleep(3)
spark.read.format("seglog").option("startingOfsets", "earliest").load({str(DATA)!r})
"""
"""Takes a few rows of many from two sources, and dies of an error."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        cwd=tmp_path_factory.mktemp("console"),
    )


def test_uncaught_error_ends_the_console_with_our_sentence(console: subprocess.CompletedProcess[str]) -> None:
    """What a script that dies of it prints: no frame of ours, and nothing but Spark's SQLSTATE behind the message."""
    assert console.returncode == 1
    lines = console.stderr.rstrip().splitlines()
    assert "no option 'startingofsets': did you mean 'startingOffsets'?" in "".join(lines[-2:])
    assert "sparklog/spark" not in console.stderr


def test_traceback_of_a_limit_is_pysparks_with_a_source_that_has_nothing_of_ours(
    console: subprocess.CompletedProcess[str],
) -> None:
    assert console.stdout == "[Row(id=0), Row(id=1), Row(id=2)]\nthen 3\n", console.stderr
    assert "BrokenPipeError" in console.stderr
    assert f"{ROOT}/sparklog/" not in console.stderr


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The environment that Spark gives to its workers."""
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", "1")
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    yield monkeypatch
    os.environ.pop("SPARK_HIDE_TRACEBACK", None)


def raised_by(error: Exception, cause: Exception | None = None) -> BaseException:
    with pytest.raises(type(error)) as raised, plain_errors():
        raise error from cause
    return raised.value


@pytest.mark.usefixtures("worker")
def test_cause_that_is_not_told_stands_behind_the_message() -> None:
    error = raised_by(StorageError("cannot read /x"), OSError(5, "Input/output error"))
    assert error.__notes__ == ["Caused by OSError: [Errno 5] Input/output error"]
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"


@pytest.mark.usefixtures("worker")
def test_cause_that_is_told_or_is_ours_is_not_told_again() -> None:
    assert not hasattr(raised_by(StorageError("cannot read /x: no"), OSError(5, "no", "/x")), "__notes__")
    assert not hasattr(raised_by(StorageError("a"), SeglogError("b")), "__notes__")


@pytest.mark.usefixtures("worker")
def test_exception_that_is_not_ours_keeps_its_traceback() -> None:
    raised_by(ZeroDivisionError())
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def test_whole_tracebacks_are_left_to_who_asks_for_them(worker: pytest.MonkeyPatch) -> None:
    worker.delenv("SPARK_SIMPLIFIED_TRACEBACK")
    raised_by(InvalidOptionError("no"))
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
