"""Makes the rows of views match Spark's schema; it runs on the machine that reads the view, and loads compiled code."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sparklog.errors import InvalidOptionError
from sparklog.spark.read.batches import expected_schema


def spark_schema(schema: pa.Schema) -> StructType:
    """Return a view's schema as Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=False)


def arranged(batches: Iterator[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield batches with the columns of a schema, in its order and in exactly its types.

    Raises
    ------
    InvalidOptionError
        A timestamp is later than Spark can hold.
    """
    expected = expected_schema(schema)
    for batch in batches:
        arrays = []
        for field in expected:
            try:
                arrays.append(batch.column(field.name).cast(field.type))
            except pa.ArrowInvalid as error:
                raise InvalidOptionError(f"column {field.name!r} has what Spark cannot hold: {error}") from error
        yield pa.RecordBatch.from_arrays(arrays, schema=expected)
