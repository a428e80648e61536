"""Reads one partition's log: from an offset to an offset, as Arrow batches.

`LogReader` is what Python users open; tasks of Spark use it as well. It changes nothing on disk. The start and end of
the log are fixed when it is opened; the segments may be replaced or removed by a broker meanwhile, and are found again
by their offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, Literal, Self, get_args

import pyarrow as pa

from sparklog.errors import CorruptBatchError, InvalidOptionError, OffsetOutOfRangeError, SeglogError
from sparklog.log.clock import Time, to_ms
from sparklog.log.filters.pruning import pruned_range
from sparklog.log.filters.time_lookup import LATEST_TIME, first_offset_at, starts_by_file_times
from sparklog.log.filters.where_parser import parse_where
from sparklog.log.folders import refuse_to_read
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.scans.of_range import first_damaged, located, refuse_damaged_end, scan_range
from sparklog.log.scans.raw_batches import RawBatch, raw_batches_of
from sparklog.log.segment import Segment
from sparklog.log.transactions import TransactionMarkers, last_stable_offset
from sparklog.log.windows import Window
from sparklog.record.decode.columns import LIMITS, BatchDecoder, DecodeLimits
from sparklog.record.decode.where import Constant, Where
from sparklog.record.decode.where_program import BatchFilter
from sparklog.record.format.arrays import bounded, scalar_of
from sparklog.record.format.schema import DEFAULT_COLUMNS, RECORD_SCHEMA, chosen_columns, selector
from sparklog.storage.registry import PathText, expand_one, locate

IsolationLevel = Literal["read_uncommitted", "read_committed"]

FILE_COLUMN: Final = "file"
LOG_SCHEMA: Final = RECORD_SCHEMA.append(pa.field(FILE_COLUMN, pa.string()))
"""The columns that can be asked of a log: those of its records, and ``file``, the name of the segment's file."""


def open_log(path: PathText) -> LogReader:
    """Open a partition's folder to read it.

    Parameters
    ----------
    path : str or os.PathLike
        The folder, such as ``/logs/events-0``, or a pattern that it alone matches; an empty one is an empty log. A
        folder that holds segments may have another name, as a copy does: then it has no log start offset but that of
        its first segment.

    Returns
    -------
    LogReader
        To be used with ``with``.

    Raises
    ------
    PathNotFoundError
        There is no such folder, or it is not one of a partition; the message says what it is.
    InvalidOptionError
        No file can have such a path: it is empty, say.
    CorruptLogError
        The end of the log cannot be told, because its last segment is damaged there.
    """
    folder = PartitionFolder.at(*expand_one(locate(path)))
    refuse_to_read(folder)
    return LogReader(read_layout(folder))


class LogReader:
    """The log of one partition, as it was when opened.

    Whatever reads Arrow streams reads a log, all of it in its default columns: ``polars.DataFrame(log)``, and in DuckDB
    ``FROM log``. There is no ``len``: offsets have gaps where records were compacted away, and where transactions were
    decided, so that only a read counts the records. ``log.end_offset - log.start_offset`` is the most that there are.

    Threads may share it, and so may a forked process: each read has its own files, and no read changes the object. What
    `batches` returns belongs to the thread and the process that asked for it.

    Parameters
    ----------
    layout : PartitionLayout
        Of the log.
    stable_offset : int, optional
        Its last stable offset, where it is known already: to find it takes a walk to the end of the log.
    """

    def __init__(self, layout: PartitionLayout, stable_offset: int | None = None) -> None:
        self._layout = layout
        self._stable_offset = stable_offset
        self._is_end_checked = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the log. No file stays open between reads."""

    def __repr__(self) -> str:
        return f"LogReader({self._layout.path!r}, offsets [{self.start_offset}, {self._layout.end_offset}))"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return all of the log as an Arrow stream, in the columns of `schema`."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__(requested_schema)

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read by default, `DEFAULT_COLUMNS`, with their types."""
        return schema_of(None)

    @property
    def topic(self) -> str:
        """The topic; of a folder whose name is not ``<topic>-<partition>``, as that of a copy, its name."""
        return self._layout.folder.topic

    @property
    def partition(self) -> int | None:
        """The number of the partition; None of a folder with another name."""
        return self._layout.folder.partition

    @property
    def directory(self) -> LogDirectory:
        """The log directory that it is in."""
        return self._layout.folder.directory

    @property
    def start_offset(self) -> int:
        """The log start offset: the first that may be read."""
        return self._layout.start_offset

    @property
    def end_offset(self) -> int:
        """The log end offset, exclusive: that of the next record to be written.

        Raises
        ------
        CorruptBatchError
            The checksum of the last batch differs: its header does not say where the log ends.
        """
        self._check_last_batch()
        return self._layout.end_offset

    @cached_property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided; where ``read_committed`` ends."""
        self._check_last_batch()
        return last_stable_offset(self._layout) if self._stable_offset is None else self._stable_offset

    def read(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        columns: str | Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        where: str | Where | None = None,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Read records into one table; other parameters and errors as of `batches`.

        Parameters
        ----------
        max_bytes : int, optional
            Of the table's columns: it ends before it has more, but has one record at least. Read on behind the last
            offset of it.

        Returns
        -------
        pyarrow.Table
            One row a record, in offset order.
        """
        schema = schema_of(columns)
        batches = self.batches(start_offset, end_offset, columns, isolation_level, where=where, max_bytes=max_bytes)
        within = bounded(((None, batch) for batch in batches), max_bytes)
        return pa.Table.from_batches((batch for _, batch in within), schema=schema)

    def batches(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        columns: str | Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        limits: DecodeLimits = LIMITS,
        fail_on_data_loss: bool = True,
        where: str | Where | None = None,
        max_bytes: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read records, some at a time.

        Parameters
        ----------
        start_offset, end_offset : int, optional
            The first offset, and the one after the last. By default all of the log; under ``read_committed`` the end is
            at most the last stable offset.
        columns : str or sequence of str, optional
            One or more names of `LOG_SCHEMA`, in the order wanted; by default `DEFAULT_COLUMNS`, those of Spark's
            connector.
        isolation_level : {"read_uncommitted", "read_committed"}
            Whether records of aborted and open transactions are read.
        limits : DecodeLimits
            How much may be decompressed and decoded at a time.
        fail_on_data_loss : bool
            Whether it is an error, or a warning, that a broker removed records of the range while it was read.
        where : str, optional
            Which records are wanted, such as ``key = 'user-1' AND timestamp >= '2026-03-02'``, in the language of
            `sparklog.log.filters.where_parser`. The others are not copied. What offsets and times rule out is not
            decoded, and where indexes say so not read either.
        max_bytes : int, optional
            How many bytes the records of a batch have at most, but for one of a single record; by default 8 MiB.

        Yields
        ------
        pyarrow.RecordBatch
            In offset order.

        Raises
        ------
        InvalidOptionError
            No such column or isolation level, or a filter that cannot be read.
        OffsetOutOfRangeError
            The offsets are not all in [start_offset, end_offset] of the log.
        CorruptLogError
            A batch is damaged; what comes before it has been yielded.
        DataLossError
            Segments of the range were removed while it was read.
        """
        if isolation_level not in get_args(IsolationLevel):
            known = " or ".join(get_args(IsolationLevel))
            raise InvalidOptionError(f"isolation_level is {isolation_level!r}, and must be {known}")
        schema, limits = schema_of(columns), limits.within(max_bytes)
        committed = isolation_level == "read_committed"
        start, end = self._range(start_offset, end_offset)
        if committed:
            end = min(end, self.last_stable_offset)
        chosen = None if where is None else parse_where(where).of_partition(self.topic, self.partition)
        return self._records(start, end, schema, committed, limits, fail_on_data_loss, chosen)

    def raw_batches(self, start_offset: int | None = None, end_offset: int | None = None) -> Iterator[RawBatch]:
        """Read whole batches as they are in the log, checked and not decompressed, as a server's fetch returns them.

        They begin with the first batch that ends at or after the start, and end with the first that reaches the end, so
        that these two may hold records outside of the range, also below the log start offset. `sparklog.decode` of
        their ``data``, joined, gives the records. There is no ``read_committed``: markers are given, and
        so are batches of aborted and open transactions.

        Parameters
        ----------
        start_offset, end_offset : int, optional
            The first offset, and the one after the last. By default all of the log.

        Yields
        ------
        RawBatch
            In offset order; each has bytes of its own.

        Raises
        ------
        OffsetOutOfRangeError
            The offsets are not all in [start_offset, end_offset] of the log.
        CorruptLogError
            A header or a checksum is wrong, or offsets do not ascend; at the same batch, and after the same ones, as of
            `batches`. Damage that a right checksum covers is found only by decoding.
        DataLossError
            Segments of the range were removed while it was read.
        """
        return self._raw(*self._range(start_offset, end_offset))

    def offset_for_time(self, timestamp: Time) -> int | None:
        """Find the first offset whose record is at or after a time: a consumer's ``offsetsForTimes``.

        A broker looks in one segment only, and finds none where that one was emptied by compaction or is below the log
        start offset in part; here every segment is looked in.

        Parameters
        ----------
        timestamp : int or datetime
            ms since the epoch, or a datetime that has a time zone.

        Returns
        -------
        int or None
            None where no record is as late.

        Raises
        ------
        InvalidOptionError
            The datetime has no time zone.
        """
        return first_offset_at(self._layout, to_ms(timestamp))

    def offsets_before(self, timestamp: Time | None, max_offsets: int, *, now_ms: int | None = None) -> list[int]:
        """Return where segments begin that were last written to no later than a time: the old consumer's offsets.

        This is what a broker answers to an OffsetRequest of version 0. It goes by the times of files.

        Parameters
        ----------
        timestamp : int, datetime or None
            ms since the epoch, or a datetime that has a time zone. None and -1 are the latest, so that the log end
            offset comes first, and -2 is the earliest, of which there is one: what a broker means by these numbers.
        max_offsets : int
            How many offsets to return at most.
        now_ms : int, optional
            Wall-clock time, ms since the epoch, as of which a broker counts the log end offset. By default that counts
            as of when the last segment was written to.

        Returns
        -------
        list of int
            The newest first. None is below the log start offset.

        Raises
        ------
        InvalidOptionError
            The datetime has no time zone, or ``max_offsets`` is negative.

        Notes
        -----
        Source: apache/kafka, Log.scala (legacyFetchOffsetsBefore).
        """
        if max_offsets < 0:
            raise InvalidOptionError(f"max_offsets is {max_offsets}, and must not be negative")
        time_ms = LATEST_TIME if timestamp is None else to_ms(timestamp)
        return starts_by_file_times(self._layout, time_ms, max_offsets, now_ms)

    def _range(self, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
        """Return the range of a read; raise `OffsetOutOfRangeError` where the log does not have it."""
        # The batches that a read comes to are checked as it does.
        log_end = self._layout.end_offset
        start = self.start_offset if start_offset is None else start_offset
        end = log_end if end_offset is None else end_offset
        if not self.start_offset <= start <= max(end, start) <= log_end:
            raise OffsetOutOfRangeError(
                f"offsets [{start}, {end}) of {self._layout.path} are not in the log, "
                f"which has [{self.start_offset}, {log_end})"
            )
        return start, end

    def _raw(self, start: int, end: int) -> Iterator[RawBatch]:
        for segment, window in scan_range(self._layout, start, end):
            failure = first_damaged(segment, window)
            if failure is None:
                yield from raw_batches_of(window)
                continue
            is_sound = window.headers.column("position") < (failure.position or 0)
            yield from raw_batches_of(Window(window.buffer, window.headers.where(is_sound)))
            raise failure

    def _check_last_batch(self) -> None:
        """Check the batch that the log ends with, once; reading checks it anyway."""
        if not self._is_end_checked:
            refuse_damaged_end(self._layout)
        self._is_end_checked = True

    def _records(
        self,
        start: int,
        end: int,
        schema: pa.Schema,
        committed: bool,
        limits: DecodeLimits,
        fail_on_data_loss: bool,
        where: Where | None,
    ) -> Iterator[pa.RecordBatch]:
        chosen = None if where is None or where.tree == Constant(True) else BatchFilter(where.tree)
        if where is not None:
            start, end = pruned_range(self._layout, where, start, end)
        markers = TransactionMarkers(self._layout, start) if committed else None
        columns = [name for name in schema.names if name != FILE_COLUMN]
        decoder = BatchDecoder(
            columns,
            start_offset=start,
            end_offset=end,
            reaches_log_end=end >= self._layout.end_offset,
            limits=limits,
            program=None if chosen is None else chosen.program,
        )
        last: Segment | None = None
        try:
            for segment, window, failure in self._chosen(start, end, fail_on_data_loss, markers, chosen):
                if last is not None and segment is not last:
                    yield from _arranged(decoder.flush(), schema, last)
                last = segment
                with located(segment):
                    yield from _arranged(decoder.decode(window.buffer, window.headers), schema, segment)
                if failure is not None:
                    raise failure
        except SeglogError:
            # The records before what is wrong come first.
            if last is not None:
                yield from _arranged(decoder.flush(), schema, last)
            raise
        if last is not None:
            yield from _arranged(decoder.flush(), schema, last)

    def _chosen(
        self,
        start: int,
        end: int,
        fail_on_data_loss: bool,
        markers: TransactionMarkers | None,
        chosen: BatchFilter | None,
    ) -> Iterator[tuple[Segment, Window, CorruptBatchError | None]]:
        """Yield the batches to decode, and what is wrong with the first one behind them that is damaged, if any is."""
        for segment, window in scan_range(self._layout, start, end, fail_on_data_loss):
            headers, failure = window.headers, None
            is_wanted = ~headers.is_control
            if markers is not None:
                is_wanted[is_wanted] = ~markers.is_aborted(headers.where(is_wanted))
            if chosen is not None:
                is_wanted &= chosen.may_pass(headers)
            if not is_wanted.all():
                # Decoding checks batches; those that are left out because of their headers are checked here.
                failure = first_damaged(segment, Window(window.buffer, headers.where(~is_wanted)))
                if failure is not None:
                    is_wanted &= headers.column("position") < (failure.position or 0)
            yield segment, Window(window.buffer, headers.where(is_wanted)), failure


def schema_of(columns: str | Sequence[str] | None) -> pa.Schema:
    """Return the schema of a read of some columns, `DEFAULT_COLUMNS` where None are given.

    Raises
    ------
    InvalidOptionError
        There is no such column.
    """
    names = chosen_columns(columns, DEFAULT_COLUMNS, LOG_SCHEMA.names)
    return _schema_of(names)


_schema_of: Final = selector(LOG_SCHEMA)


def _arranged(batches: Iterable[pa.RecordBatch], schema: pa.Schema, segment: Segment) -> Iterator[pa.RecordBatch]:
    """Put the decoded columns in the order asked for, and add the one that is not decoded."""
    for batch in batches:
        if batch.schema.names == schema.names:
            yield batch
            continue
        file_name = scalar_of(segment.file_name(), pa.string())
        arrays = [
            pa.repeat(file_name, batch.num_rows) if name == FILE_COLUMN else batch.column(name) for name in schema.names
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
