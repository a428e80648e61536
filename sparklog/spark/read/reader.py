"""The reader of a batch query: the driver plans once which ranges of offsets each task reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.read.decoding import ReadColumns
from sparklog.spark.worker.boundary import plain_errors
from sparklog.spark.worker.garbage_collection import first_use_freezes
from sparklog.spark.worker.process import LoadedByWorkers

if TYPE_CHECKING:
    import pyarrow as pa


class SeglogReader(LoadedByWorkers, DataSourceReader):
    """Reads partition logs into a schema that `sparklog.spark.options.schema` has checked.

    `partitions` runs on the driver and `read` in tasks. Each imports its own modules: the driver should not wait for
    compiled code that it never calls.
    """

    def __init__(self, options: SeglogOptions, schema: StructType, columns: ReadColumns) -> None:
        self._options = options
        self._schema = schema
        self._columns = columns

    @plain_errors()
    @first_use_freezes()
    def partitions(self) -> list[InputPartition]:
        """Plan the read. Spark calls this once per loaded DataFrame, which is thereby a snapshot."""
        from sparklog.spark.read.plan import plan_batch

        return [InputPartition(planned) for planned in plan_batch(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task, one after the other."""
        # Without partitions Spark makes one up that has no value, and PySpark 4.1.0 passes None.
        if partition is None or partition.value is None:
            return
        from sparklog.spark.read.batches import read_ahead, read_ranges

        with plain_errors(), first_use_freezes():
            yield from read_ahead(read_ranges(partition.value, self._options, self._schema, self._columns))
