"""Reads one partition's log: from an offset to an offset, as Arrow batches.

`LogReader` is what Python users open; tasks of Spark use it as well. It changes nothing on disk. The start and end of
the log are fixed when it is opened; the segments may be replaced or removed by a broker meanwhile, and are found again
by their offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self, TypeVar, get_args

import pyarrow as pa

from sparklog.errors import CorruptBatchError, InvalidOptionError, OffsetOutOfRangeError
from sparklog.log.clock import Time, to_ms
from sparklog.log.damage_rows import FAIL, DamagedStretch, DamagePolicy, OnDamage, UnknownFate
from sparklog.log.filters.time_lookup import LATEST_TIME, first_offset_at, starts_by_file_times
from sparklog.log.filters.where_parser import parse_where
from sparklog.log.folders import refuse_to_read
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.reads.columns import schema_of
from sparklog.log.reads.damage_table import damage_table
from sparklog.log.reads.fates import stable_offset_past_damage
from sparklog.log.reads.past_damage import ReadPastDamage
from sparklog.log.reads.to_damage import read_to_damage
from sparklog.log.replicas.lineage import Replica
from sparklog.log.scans.of_range import first_damaged, refuse_damaged_end, scan_range
from sparklog.log.scans.raw_batches import RawBatch, raw_batches_of
from sparklog.log.scans.sound_range import scan_range_past_damage
from sparklog.log.transactions import last_stable_offset
from sparklog.log.windows import Window
from sparklog.record.decode.columns import LIMITS, DecodeLimits
from sparklog.record.decode.where import Where
from sparklog.record.format.arrays import bounded
from sparklog.storage.given_options import with_storage_options
from sparklog.storage.looks import one_look
from sparklog.storage.registry import PathText, expand_one, locate

_log = logging.getLogger("sparklog")

IsolationLevel = Literal["read_uncommitted", "read_committed"]
_Part = TypeVar("_Part")


def open_log(
    path: PathText, on_damage: OnDamage = "fail", *, storage_options: Mapping[str, Any] | None = None
) -> LogReader:
    """Open a partition's folder to read it.

    Parameters
    ----------
    path : str or os.PathLike
        The folder, such as ``/logs/events-0``, or a pattern that it alone matches; an empty one is an empty log. A
        folder that holds segments may have another name, as a copy does: then it has no log start offset but that of
        its first segment.
    on_damage : {"fail", "skip", "best_effort"}
        What its reads do about damage, unless a read says otherwise; see `LogReader.batches`. Unless it is ``fail``, a
        log whose end is damaged ends after its last sound batch.
    storage_options : mapping of str to str, optional
        The options of paths that are URLs, such as ``endpoint``; see `sparklog.place`.

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
    policy = DamagePolicy(on_damage)
    with one_look(), with_storage_options(storage_options):
        folder = PartitionFolder.at(*expand_one(locate(path)))
        refuse_to_read(folder)
        return LogReader(read_layout(folder, on_damage), policy=policy)


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
    policy : DamagePolicy
        What its reads do about damage, unless a read says otherwise.
    """

    def __init__(self, layout: PartitionLayout, stable_offset: int | None = None, policy: DamagePolicy = FAIL) -> None:
        self._layout = layout
        self._policy = policy
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
    def replicas(self) -> tuple[Replica, ...]:
        """The replicas that the log is merged from, the leader first; empty for the log of one folder."""
        return self._layout.replicas

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
        return self._stable(self._policy)

    def read(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        columns: str | Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        where: str | Where | None = None,
        max_bytes: int | None = None,
        on_damage: OnDamage | None = None,
        unknown: UnknownFate | None = None,
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
        schema = schema_of(columns, is_best_effort=self._policy_of(on_damage, unknown).is_best_effort)
        batches = self.batches(
            *(start_offset, end_offset, columns, isolation_level),
            where=where,
            max_bytes=max_bytes,
            on_damage=on_damage,
            unknown=unknown,
        )
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
        on_damage: OnDamage | None = None,
        unknown: UnknownFate | None = None,
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
        on_damage : {"fail", "skip", "best_effort"}, optional
            Whether damage is an error. With ``skip``, what cannot be read is left out, every batch that is sound is
            given, and one warning at the end counts the loss; `damage` has the table. ``best_effort`` also gives
            the records that decode of a batch whose checksum differs, and a column ``damaged``, which is true of them.
            The default is that of `open_log`.
        unknown : {"drop", "keep"}, optional
            Whether ``read_committed`` leaves out or gives the records of a transaction whose marker may be lost. It
            matters only where damage is skipped. By default they are left out, and counted as lost.

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
        policy = self._policy_of(on_damage, unknown)
        asked = (start_offset, end_offset, columns, isolation_level, limits.within(max_bytes), where)
        if not policy.is_fail:
            return _records_of(self._layout.path, self._past_damage(*asked, policy))
        start, end, schema, committed, limits, chosen = self._asked(*asked, policy)
        return read_to_damage(self._layout, start, end, schema, committed, limits, chosen, fail_on_data_loss)

    def batches_and_damage(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        columns: str | Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        limits: DecodeLimits = LIMITS,
        where: str | Where | None = None,
        on_damage: OnDamage = "skip",
        unknown: UnknownFate | None = None,
    ) -> Iterator[pa.RecordBatch | DamagedStretch]:
        """Read records past damage, and rows of the loss; parameters and errors as of `batches`, which warns of it.

        Yields
        ------
        pyarrow.RecordBatch or DamagedStretch
            Each of them in offset order. A stretch may come before records that are before it, not after later ones.
        """
        policy = self._policy_of(on_damage, unknown)
        return self._past_damage(start_offset, end_offset, columns, isolation_level, limits, where, policy)

    def damage(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> pa.Table:
        """Return what a read cannot give: one row of `DAMAGE_SCHEMA` for each stretch of lost bytes or offsets.

        Every record of the range is decoded. Under ``read_committed`` it has the batches, too, of transactions whose
        marker may be lost. Other parameters and errors as of `batches`.
        """
        parts = self.batches_and_damage(start_offset, end_offset, ["offset"], isolation_level)
        return damage_table(part for part in parts if isinstance(part, DamagedStretch))

    def raw_batches(
        self, start_offset: int | None = None, end_offset: int | None = None, on_damage: OnDamage | None = None
    ) -> Iterator[RawBatch]:
        """Read whole batches as they are in the log, checked and not decompressed, as a server's fetch returns them.

        They begin with the first batch that ends at or after the start, and end with the first that reaches the end, so
        that these two may hold records outside of the range, also below the log start offset. `sparklog.decode` of
        their ``data``, joined, gives the records. There is no ``read_committed``: markers are given, and
        so are batches of aborted and open transactions.

        Parameters
        ----------
        start_offset, end_offset : int, optional
            The first offset, and the one after the last. By default all of the log.
        on_damage : {"fail", "skip"}, optional
            As of `batches`; records of a damaged batch are never given here.

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
        start, end = self._range(start_offset, end_offset)
        if self._policy_of(on_damage, None).is_fail:
            return self._raw(start, end)
        parts = scan_range_past_damage(self._layout, start, end)
        found = (each if isinstance(each, DamagedStretch) else raw_batches_of(each[1]) for each in parts)
        return (raw for pieces in _records_of(self._layout.path, found) for raw in pieces)

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
        time_ms = to_ms(timestamp)
        try:
            return first_offset_at(self._layout, time_ms)
        except CorruptBatchError:
            if self._policy.is_fail:
                raise
        # Damage ends the search by indexes and headers, and a filter of records finds the same offset.
        for part in self.batches_and_damage(columns=["offset"], where=f"timestamp >= {time_ms}"):
            if isinstance(part, pa.RecordBatch) and part.num_rows:
                return int(part.column("offset")[0].as_py())
        return None

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

    def _policy_of(self, on_damage: OnDamage | None, unknown: UnknownFate | None) -> DamagePolicy:
        return DamagePolicy(on_damage or self._policy.on_damage, unknown or self._policy.unknown)

    def _stable(self, policy: DamagePolicy) -> int:
        if self._stable_offset is not None:
            return self._stable_offset
        return last_stable_offset(self._layout) if policy.is_fail else stable_offset_past_damage(self._layout)

    def _asked(
        self,
        start_offset: int | None,
        end_offset: int | None,
        columns: str | Sequence[str] | None,
        isolation_level: IsolationLevel,
        limits: DecodeLimits,
        where: str | Where | None,
        policy: DamagePolicy,
    ) -> tuple[int, int, pa.Schema, bool, DecodeLimits, Where | None]:
        """Check what a read asks for, and resolve it."""
        if isolation_level not in get_args(IsolationLevel):
            known = " or ".join(get_args(IsolationLevel))
            raise InvalidOptionError(f"isolation_level is {isolation_level!r}, and must be {known}")
        schema = schema_of(columns, is_best_effort=policy.is_best_effort)
        committed = isolation_level == "read_committed"
        start, end = self._range(start_offset, end_offset)
        if committed:
            end = min(end, self.last_stable_offset if policy == self._policy else self._stable(policy))
        chosen = None if where is None else parse_where(where).of_partition(self.topic, self.partition)
        return start, end, schema, committed, limits, chosen

    def _past_damage(self, *asked: Any) -> Iterator[pa.RecordBatch | DamagedStretch]:
        return iter(ReadPastDamage(self._layout, *self._asked(*asked), asked[-1]))

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
        if not self._is_end_checked and self._policy.is_fail:
            refuse_damaged_end(self._layout)
        self._is_end_checked = True


def _records_of(path: str, parts: Iterable[_Part | DamagedStretch]) -> Iterator[_Part]:
    """Yield the parts that are no damage; at the end, warn of the damage, if there is any."""
    stretches = lost_bytes = lost_offsets = 0
    try:
        for part in parts:
            if not isinstance(part, DamagedStretch):
                yield part
                continue
            stretches += 1
            lost_bytes += part.length_bytes
            lost_offsets += part.end_offset - part.first_offset
    finally:
        if stretches:
            _log.warning(
                "%s: %d damaged stretches were skipped, %d bytes, with up to %d offsets; LogReader.damage() lists them",
                *(path, stretches, lost_bytes, lost_offsets),
            )
