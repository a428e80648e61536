"""What a Python worker of Spark is spared between its tasks."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from sparklog.spark.options.write import WriteOptions
from sparklog.spark.source import SeglogDataSource
from sparklog.spark.worker import garbage_collection
from sparklog.spark.worker.garbage_collection import first_use_freezes
from sparklog.spark.writer import SeglogWriter
from tests.log.logs import write


class FreezeCounts(DataSource):
    """One row: how many objects of a worker of Spark are frozen, once a task in it has read a log."""

    @classmethod
    def name(cls) -> str:
        return "freeze-counts"

    def schema(self) -> str:
        return "frozen long"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return FreezeCountsReader(self.options["path"])


class FreezeCountsReader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:  # noqa: ARG002
        read(Path(self.path))
        yield (gc.get_freeze_count(),)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is done to the garbage collector, in a process that looks like a worker of Spark in a task."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="pyspark.daemon"))
    done: list[str] = []
    task = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 0)
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(garbage_collection, "_frozen", False)
    monkeypatch.setattr(TaskContext, "get", classmethod(lambda _: task))
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    return done


def test_first_task_of_a_worker_freezes_what_is_there_and_no_later_one(frozen: list[str]) -> None:
    for _ in range(3):
        with first_use_freezes():
            assert frozen in ([], ["collect", "freeze"])
    assert frozen == ["collect", "freeze"]


def test_task_that_fails_freezes_as_well(frozen: list[str]) -> None:
    with pytest.raises(ValueError, match="no"), first_use_freezes():
        raise ValueError("no")
    assert frozen == ["collect", "freeze"]


def test_nothing_is_frozen_in_a_worker_of_one_task(frozen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    with first_use_freezes():
        pass
    assert frozen == []


def read(log_dir: Path) -> None:
    source = SeglogDataSource(CaseInsensitiveDict({"path": str(log_dir)}))
    reader = source.reader(source.schema())
    assert sum(each.num_rows for task in reader.partitions() for each in reader.read(task)) == 120


def test_read_and_write_freeze_a_worker(frozen: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path / "events-0")
    read(tmp_path)
    assert frozen == ["collect", "freeze"]
    monkeypatch.setattr(garbage_collection, "_frozen", False)
    schema = StructType([StructField("value", BinaryType())])
    options = WriteOptions.parse({"path": str(tmp_path / "orders"), "numPartitions": "1"})
    SeglogWriter(options, schema, is_overwrite=False).write(iter([pa.record_batch({"value": [b"1"]})]))
    assert frozen == ["collect", "freeze"] * 2


def test_what_a_source_does_for_the_driver_freezes_a_worker(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tmp_path / "events-0")
    source = SeglogDataSource(CaseInsensitiveDict({"path": str(tmp_path)}))
    schema = source.schema()
    reader = source.reader(schema)
    target = SeglogDataSource(CaseInsensitiveDict({"path": str(tmp_path / "orders"), "numPartitions": "1"}))
    value = StructType([StructField("value", BinaryType())])
    uses: list[Callable[[], object]] = [
        source.schema,
        reader.partitions,
        lambda: source.streamReader(schema),
        lambda: target.writer(value, overwrite=False),
        lambda: target.streamWriter(value, overwrite=False),
    ]
    for number, use in enumerate(uses, 2):
        monkeypatch.setattr(garbage_collection, "_frozen", False)
        use()
        assert frozen == ["collect", "freeze"] * number


def test_nothing_is_frozen_in_a_process_that_is_no_worker_of_spark(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    write(tmp_path / "events-0")
    read(tmp_path)
    assert frozen == []


def test_worker_of_spark_is_frozen_by_a_read(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "events-0")
    spark.dataSource.register(FreezeCounts)
    (row,) = spark.read.format("freeze-counts").load(str(tmp_path)).collect()
    assert row.frozen > 10_000
