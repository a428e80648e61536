"""Reads ranges of offsets as Arrow batches in exactly the schema that Spark expects. It runs in tasks."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from inspect import signature
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.errors import DataLossError, InvalidOptionError, PathNotFoundError, SeglogError
from sparklog.log.damage_rows import OnDamage
from sparklog.log.files import TopicPartition
from sparklog.log.layout import PartitionLayout, read_layout, read_layouts
from sparklog.log.reader import LogReader
from sparklog.record.decode.columns import DecodeLimits
from sparklog.record.format.arrays import repeated
from sparklog.spark.options.arrow_types import headers_map
from sparklog.spark.options.read import SeglogOptions
from sparklog.spark.options.schema import HEADERS, TEXT_COLUMNS
from sparklog.spark.read.decoding import ColumnDecoder, ReadColumns
from sparklog.topic.found_damage import FoundDamage, warn_of_damage
from sparklog.topic.places.ranges import ReadRange

_log = logging.getLogger("sparklog")

_LAYOUTS_MAX: Final = 32


def read_ranges(
    planned: Iterable[ReadRange], options: SeglogOptions, schema: StructType, columns: ReadColumns
) -> Generator[pa.RecordBatch]:
    """Read the records of the ranges of a task, one range after the other.

    Parameters
    ----------
    planned : iterable of ReadRange
        Ranges of offsets that were in their logs when the read was planned. A log is opened when it is its turn.
    options : SeglogOptions
        Isolation level, limits, the filter, and whether missing offsets are an error.
    schema : StructType
        The columns, checked.
    columns : ReadColumns
        The types and decoders of the columns.

    Yields
    ------
    pyarrow.RecordBatch
        Batches in offset order; the types, order and nullability of the columns are exactly Spark's.

    Raises
    ------
    DataLossError
        Offsets of a range have gone since the plan.
    CorruptLogError
        A batch is damaged.
    ValueDecodeError
        A key or a value does not decode, and the read fails on that.
    InvalidOptionError
        A key or value is read as string and is not UTF-8, or a timestamp is later than Spark can hold.
    """
    arranger, damage = _Arranger(expected_schema(schema), columns), FoundDamage(options.quarantine)

    def read() -> Generator[pa.RecordBatch]:
        for each, layout in _with_layouts(planned, options.on_damage):
            yield from _read_range(each, layout, options, arranger, damage)

    try:
        yield from joined_batches(read())
    finally:
        warn_of_damage([damage], "this task")


def _with_layouts(
    planned: Iterable[ReadRange], on_damage: OnDamage
) -> Iterator[tuple[ReadRange, PartitionLayout | None]]:
    """Yield each range with the layout of its log, or None if its group of layouts cannot be read.

    Layouts are read in groups, because much of their cost is that of the shared directory. The first group is
    one log, and each next one twice as many, so that a query that needs only a few rows opens few.
    """
    following, count = iter(planned), 1
    while ranges := list(islice(following, count)):
        layouts: Sequence[PartitionLayout | None]
        try:
            layouts = read_layouts([each.folder for each in ranges], on_damage)
        except SeglogError:
            # Read the layouts one by one, so that ranges before the damaged log are returned before its error.
            layouts = [None] * len(ranges)
        yield from zip(ranges, layouts, strict=True)
        count = min(2 * count, _LAYOUTS_MAX)


def _read_range(
    planned: ReadRange,
    layout: PartitionLayout | None,
    options: SeglogOptions,
    arranger: _Arranger,
    damage: FoundDamage,
) -> Iterator[pa.RecordBatch]:
    limits = DecodeLimits(decompressed_bytes_max=options.decompressed_bytes_max)
    try:
        layout = layout or read_layout(planned.folder, options.on_damage)
    except PathNotFoundError as error:
        _lose(planned, "the partition was deleted", options.fail_on_data_loss, error)
        return
    with LogReader(layout, planned.stable_offset, options.policy) as log:
        start, end = planned.start_offset, planned.end_offset
        # Batches are checked as they are read. The last batch, which gives the log's end, is checked only if the log
        # seems to end early.
        if start < layout.start_offset or end > layout.end_offset:
            start, end = _still_there(log, planned, options.fail_on_data_loss)
        if planned.stable_offset is None and options.isolation_level == "read_committed":
            end = max(min(end, log.last_stable_offset), start)
        wanted = (start, end, arranger.columns, options.isolation_level, limits)
        if options.policy.is_fail:
            batches = log.batches(*wanted, options.fail_on_data_loss, options.where)
        else:
            parts = log.batches_and_damage(*wanted, options.where, options.on_damage, options.unknown)
            reaches_end = end >= layout.end_offset
            # A stretch directly after the range belongs to the task that reads on there.
            batches = damage.pass_on(
                parts, planned.folder.storage, lambda stretch: reaches_end or stretch.first_offset < end
            )
        for batch in batches:
            yield arranger.arranged(batch, planned.topic_partition)


def expected_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects for a schema of its own."""
    # Before 4.2 this argument does not exist: Spark passes no other time zone than UTC.
    given: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **given)


def _still_there(log: LogReader, planned: ReadRange, fail_on_data_loss: bool) -> tuple[int, int]:
    """Return the part of a planned range that is still in the log."""
    start, end = max(planned.start_offset, log.start_offset), min(planned.end_offset, log.end_offset)
    if (start, end) != (planned.start_offset, planned.end_offset):
        _lose(planned, f"the log now has offsets [{log.start_offset}, {log.end_offset})", fail_on_data_loss)
    return min(start, log.end_offset), max(end, min(start, log.end_offset))


def _lose(planned: ReadRange, reason: str, fail_on_data_loss: bool, cause: Exception | None = None) -> None:
    message = (
        f"offsets [{planned.start_offset}, {planned.end_offset}) of {planned.folder.location} were there when the "
        f"read was planned, and are not all there now: {reason}"
    )
    if fail_on_data_loss:
        raise DataLossError(f"{message}. Set failOnDataLoss to false to read what is there") from cause
    _log.warning("%s; reading what is there", message)


class _Arranger:
    """Turns batches of a log into batches in Spark's schema, copying as little as possible."""

    def __init__(self, schema: pa.Schema, columns: ReadColumns) -> None:
        self._schema = schema
        self._constants: dict[str, tuple[str | int, pa.Array]] = {}
        self._decoders = {name: ColumnDecoder(name, columns) for name in columns.decoders if name in schema.names}
        self._casts = {
            name: schema.field(name).type
            for name in schema.names
            if name in ("timestamp", *self._decoders)
            or (name in TEXT_COLUMNS and schema.field(name).type == pa.string())
        }
        self._has_maps = HEADERS in schema.names and pa.types.is_map(schema.field(HEADERS).type)
        self._names = schema.names
        self.columns = [name for name in schema.names if name not in TopicPartition._fields]
        if self._casts and "offset" not in self.columns:
            self.columns.append("offset")

    def arranged(self, batch: pa.RecordBatch, at: TopicPartition) -> pa.RecordBatch:
        """Return a partition's batch in Spark's schema."""
        return pa.RecordBatch.from_arrays([self._column(batch, name, at) for name in self._names], schema=self._schema)

    def _column(self, batch: pa.RecordBatch, name: str, at: TopicPartition) -> pa.Array:
        if name in TopicPartition._fields:
            return self._constant(name, getattr(at, name), batch.num_rows)
        column = self._decoders[name](batch, at) if name in self._decoders else batch.column(name)
        if name in self._casts:
            try:
                return _cast(column, self._casts[name])
            except pa.ArrowInvalid as error:
                raise self._refused(batch, name, column, at) from error
        return headers_map(column) if name == HEADERS and self._has_maps else column

    def _constant(self, name: str, value: str | int, rows: int) -> pa.Array:
        """Return a column that repeats the topic or the partition: a slice of an array that is made once."""
        of, made = self._constants.get(name, (None, None))
        if made is None or of != value or len(made) < rows:
            made = repeated(value, self._schema.field(name).type, rows + rows // 2)
            self._constants[name] = value, made
        return made.slice(0, rows)

    def _refused(self, batch: pa.RecordBatch, name: str, column: pa.Array, at: TopicPartition) -> InvalidOptionError:
        """Make the error that names the record whose value cannot be cast."""
        kind = self._casts[name]
        row = next(row for row in range(len(column)) if not _casts(column.slice(row, 1), kind))
        record = f"the record of {at} at offset {batch.column('offset')[row]}"
        if name == "timestamp":
            time = column.cast(pa.int64())[row]
            return InvalidOptionError(
                f"timestamp of {record} is {time} ms, later than Spark can hold: leave the column out"
            )
        if name in self._decoders:
            return InvalidOptionError(
                f"{name} of {record} decodes to what Spark's type {kind} cannot hold: read the column as binary"
            )
        return InvalidOptionError(f"{name} of {record} is not UTF-8: read the column as binary")


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    # Spark has no nanosecond timestamps, so nanoseconds are cut to microseconds.
    return pc.cast(values, options=pc.CastOptions(kind, allow_time_truncate=True))


def _casts(value: pa.Array, kind: pa.DataType) -> bool:
    try:
        _cast(value, kind)
    except pa.ArrowInvalid:
        return False
    return True


_JOINED_BYTES: Final = 1 << 20


def joined_batches(batches: Generator[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    """Yield batches in order, with small ones joined to about 1 MiB.

    The first batch is yielded at once, and batches are joined only until they are as large as all batches yielded
    before them: a query that needs only a few rows waits for few.

    Parameters
    ----------
    batches : generator of pyarrow.RecordBatch
        Batches in one schema. It is closed with this generator.
    """
    small: list[pa.RecordBatch] = []
    small_bytes = yielded_bytes = 0
    with closing(batches):
        for batch in batches:
            small.append(batch)
            small_bytes += batch.nbytes
            if small_bytes >= min(yielded_bytes, _JOINED_BYTES):
                yield _as_one(small)
                yielded_bytes += small_bytes
                small, small_bytes = [], 0
        if small:
            yield _as_one(small)


def _as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def read_ahead(batches: Generator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a generator, which runs one batch ahead in a thread of its own.

    The thread begins with the second batch: a query that needs only the first batch reads no more. The thread ends with
    this iterator, also if that is closed or the generator raises; the generator is closed.

    Parameters
    ----------
    batches : generator of pyarrow.RecordBatch
        It runs in one thread at a time, though not always in the same one.

    Yields
    ------
    pyarrow.RecordBatch
        At most one batch is ready, or being made, that has not been taken.
    """
    with closing(batches):
        first = next(batches, None)
        if first is None:
            return
        yield first
        del first
        with ThreadPoolExecutor(1, "read ahead") as reader:
            following = reader.submit(next, batches, None)
            while (batch := following.result()) is not None:
                following = reader.submit(next, batches, None)
                yield batch
