"""The reader of a batch query: the driver plans ranges of offsets once, and each is read by a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.spark.boundary import plain_errors
from sparklog.spark.options import SeglogOptions
from sparklog.spark.workers import LoadedByWorkers

if TYPE_CHECKING:
    import pyarrow as pa


class SeglogReader(LoadedByWorkers, DataSourceReader):
    """Reads partition logs into a schema that `sparklog.spark.schema` has checked.

    `partitions` runs on the driver and `read` in tasks. What each needs is imported there: the driver should not wait
    for compiled code that it never calls.
    """

    def __init__(self, options: SeglogOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @plain_errors()
    def partitions(self) -> list[InputPartition]:
        """Plan the read; Spark calls it once a loaded DataFrame, which is thereby a snapshot."""
        from sparklog.spark.plan import plan_batch

        return [InputPartition(planned) for planned in plan_batch(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of one task."""
        # Spark makes up a partition of its own where there is none.
        if partition.value is None:
            return
        from sparklog.spark.batches import read_range

        with plain_errors():
            yield from read_range(partition.value, self._options, self._schema)
