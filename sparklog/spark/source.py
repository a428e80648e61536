"""The data source ``seglog``, through which Spark reads and writes partition logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from sparklog.errors import InvalidOptionError
from sparklog.record.kernels.ahead import compile_for_reading
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.schema import check_schema, source_schema
from sparklog.spark.options.warnings import warn_batch
from sparklog.spark.read.decoding import columns_of
from sparklog.spark.read.reader import SeglogReader
from sparklog.spark.read.views import ViewReader, check_view_options, check_view_schema, view_schema
from sparklog.spark.worker.boundary import plain_errors
from sparklog.spark.worker.garbage_collection import first_use_freezes
from sparklog.spark.worker.process import check_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparklog.spark.stream.reader import SeglogStreamReader
    from sparklog.spark.stream.writer import SeglogStreamWriter
    from sparklog.spark.writer import SeglogWriter


class SeglogDataSource(DataSource):
    """Apache Kafka partition logs as a table.

    Examples
    --------
    >>> spark.read.format("seglog").load("/logs").where("topic = 'events'").count()  # doctest: +SKIP

    Options are in `sparklog.spark.options.read`, columns in `sparklog.spark.options.schema`.
    """

    @classmethod
    def name(cls) -> str:
        return "seglog"

    @plain_errors()
    @first_use_freezes()
    def schema(self) -> StructType:
        """Return the columns of a read without a schema: the connector's, or the columns that options ask for."""
        from sparklog.spark.read.plan import select

        options = SeglogOptions.parse(self.options)
        check_view_options(self.options, options)
        compile_for_reading()
        if options.view:
            return view_schema(options)
        # The result is not needed yet, but a path that does not exist should be an error already here, at `load`.
        select(options)
        has_headers = options.include_headers or options.headers_as_map
        return source_schema(options.columns, include_headers=has_headers, types=columns_of(options).types)

    @plain_errors()
    def reader(self, schema: StructType) -> SeglogReader | ViewReader:
        """Return the reader of a batch query; columns that the schema does not have are not read."""
        options = SeglogOptions.parse(self.options)
        check_view_options(self.options, options)
        compile_for_reading()
        if options.view:
            warn_batch(self.options, ())
            options.storage_options.warn_idle()
            return ViewReader(options, check_view_schema(options, schema))
        warn_batch(self.options, schema.fieldNames())
        columns = columns_of(options)
        options.storage_options.warn_idle()
        return SeglogReader(options, check_schema(schema, columns.types), columns)

    @plain_errors()
    @first_use_freezes()
    def streamReader(self, schema: StructType) -> SeglogStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        from sparklog.spark.stream.reader import SeglogStreamReader

        options = SeglogOptions.parse_stream(_without_spark(self.options))
        if options.view:
            raise InvalidOptionError("the option view is of a batch read, and this is a stream")
        compile_for_reading()
        columns = columns_of(options)
        options.storage_options.warn_idle()
        return SeglogStreamReader(options, check_schema(schema, columns.types), columns)

    @plain_errors()
    @first_use_freezes()
    def writer(self, schema: StructType, overwrite: bool) -> SeglogWriter:
        """Check options, columns and the path, and return the writer of a batch write."""
        from sparklog.spark.options.write import WriteOptions
        from sparklog.spark.writer import SeglogWriter

        return SeglogWriter(WriteOptions.parse(self.options), schema, is_overwrite=overwrite)

    @plain_errors()
    @first_use_freezes()
    def streamWriter(self, schema: StructType, overwrite: bool) -> SeglogStreamWriter:  # noqa: ARG002, N802
        """Return the writer of a stream. Every output mode appends the rows of a batch."""
        from sparklog.spark.options.write import WriteOptions
        from sparklog.spark.stream.writer import SeglogStreamWriter

        return SeglogStreamWriter(WriteOptions.parse(_without_spark(self.options)), schema)


# Options that Spark adds to a stream, and acts on itself.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})


def _without_spark(given: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in given.items() if name.lower() not in _OF_SPARK}


def register(spark: SparkSession) -> None:
    """Add the format ``seglog`` to a Spark session, if Spark has not found it by itself.

    Raises
    ------
    WorkerPythonError
        The Python of Spark's workers has no sparklog; the error names that Python, and the variable to set. Checked
        once per session.
    """
    spark.dataSource.register(SeglogDataSource)
    check_workers(spark)
