"""Why no filter of a query is pushed down: a probe of PySpark, without anything of ours.

PySpark keeps what a source plans after it was given filters for all uses of the loaded DataFrame. A use without those
filters then reads too little. Where this test fails, PySpark is mended: its version may have filters pushed down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, GreaterThanOrEqual, InputPartition

ENABLED = "spark.sql.python.filterPushdown.enabled"


class Pruning(DataSource):
    """A hundred offsets, of which a task reads no more than the filters leave."""

    @classmethod
    def name(cls) -> str:
        return "pruning"

    def schema(self) -> str:
        return "offset bigint"

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 - given by name
        return PruningReader()


class PruningReader(DataSourceReader):
    start = 0

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - PySpark's name
        for each in filters:
            if isinstance(each, GreaterThanOrEqual):
                self.start = each.value
            yield each  # Spark looks at each row again

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.start)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield from ((offset,) for offset in range(partition.value, 100))


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.dataSource.register(Pruning)
    spark.conf.set(ENABLED, "true")
    yield spark
    spark.conf.unset(ENABLED)


def test_pyspark_gives_a_plan_that_was_pruned_to_uses_that_did_not_ask_for_it(pushing: SparkSession) -> None:
    loaded = pushing.read.format("pruning").load()
    assert loaded.where("offset >= 90").count() == 10
    assert loaded.count() == 10, "PySpark is mended, it should be 100: see the top of this file"
    loaded = pushing.read.format("pruning").load()
    assert loaded.where("offset >= 90").union(loaded).count() == 20, "PySpark is mended, it should be 110"
