"""Adds the column ``partition`` to rows before a write, so that a shuffle can gather the rows of each partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.pandas.functions import arrow_udf

from sparklog.errors import InvalidOptionError
from sparklog.spark.options.limits import NEW_PARTITIONS_MAX
from sparklog.spark.options.schema import check_written
from sparklog.spark.worker.boundary import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_partition(
    frame: DataFrame, partitions: int, partitioner: str = "default", batch_size: int = 16_384
) -> DataFrame:
    """Add the column ``partition``: the partition that a write would choose for each row, by its ``key``.

    ``with_partition(df, 12).repartition("partition").write...`` writes full batches; without it every task writes its
    own batches for each partition. It costs a shuffle, which pays if those batches are small: with many tasks and many
    partitions.

    Parameters
    ----------
    frame : DataFrame
        Rows with ``value`` and optionally ``key``, string or binary.
    partitions : int
        The topic's number of partitions.
    partitioner : str
        See the option of a write.
    batch_size : int
        Number of bytes after which rows without a key go to another partition.

    Returns
    -------
    DataFrame
        The frame with ``partition``, an int, as its last column.
    """
    if not 1 <= partitions <= NEW_PARTITIONS_MAX:
        raise InvalidOptionError(f"partitions must be at least 1 and at most {NEW_PARTITIONS_MAX}, got {partitions}")
    names = [name for name in check_written(frame.schema) if name in ("key", "value")]
    if "partition" in frame.columns:
        raise InvalidOptionError("there is a column partition already: drop it, or write the rows as they are")
    arrow: Any = arrow_udf  # Its stubs require the kind of function, which Spark prefers to read from the hints.
    choose = arrow(_chooser(names, partitions, partitioner, batch_size), "int")
    return frame.withColumn("partition", choose(*names))


def _chooser(names: list[str], partitions: int, partitioner: str, batch_size: int) -> Any:
    import pyarrow as pa

    def choose(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        from sparklog.topic.write.partitioner import assign_partitions, make_partitioner, row_bytes

        context = TaskContext.get()
        seed = context.partitionId() if context else 0
        with plain_errors():
            chooser = make_partitioner(partitioner, seed=seed, batch_bytes=batch_size)
            for arrays in batches:
                columns = dict(zip(names, (arrays,) if isinstance(arrays, pa.Array) else arrays, strict=True))
                sizes = row_bytes(list(columns.values()), len(columns["value"]))
                yield pa.array(assign_partitions(chooser, None, columns.get("key"), sizes, partitions), pa.int32())

    # Spark reads the kind of function from these hints, and cannot resolve names that are local to a module.
    one = len(names) == 1
    given = Iterator[pa.Array] if one else Iterator[tuple[pa.Array, ...]]
    choose.__annotations__ = {"batches": given, "return": Iterator[pa.Array]}
    return choose
