"""`sparklog.export`: checks the arguments, builds an `ExportJob` and runs it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Unpack

from sparklog.errors import InvalidOptionError, did_you_mean
from sparklog.jobs.export.decoding import OnDecodeError, parse_decoding
from sparklog.jobs.export.job import ExportJob, ExportTask
from sparklog.jobs.files.formats import ROW_GROUP_ROWS, CsvFormat, FileFormat, ParquetFormat, format_named
from sparklog.jobs.run.job import COMMIT_INTERVAL_MS, run_job
from sparklog.jobs.run.local import runner_of
from sparklog.jobs.run.options import LogJobOptions, MoveArguments, with_options
from sparklog.jobs.source import source_of
from sparklog.jobs.summary import MovedSummary, in_order
from sparklog.jobs.targets.adopting import adopt_files
from sparklog.jobs.targets.delta import DeltaTarget
from sparklog.jobs.targets.iceberg import IcebergTarget
from sparklog.jobs.targets.outputs import FOLDERS, PARTITION_BY
from sparklog.jobs.targets.targets import TableFolder, Target
from sparklog.log.clock import wall_clock_ms
from sparklog.log.damage_rows import UnknownFate
from sparklog.log.properties import taken
from sparklog.storage.capabilities import to_writable
from sparklog.storage.registry import PathText
from sparklog.topic.places.discovery import place_at
from sparklog.topic.reader import topic_schema_of
from sparklog.topic.selection import Selection

_TABLE_FORMATS: Final = ("delta", "iceberg")


@dataclass(frozen=True)
class ExportSummary(MovedSummary):
    """The outcome of an export.

    Attributes
    ----------
    planned : tuple of ExportTask
        The tasks that a dry run would have done.
    """

    planned: tuple[ExportTask, ...] = ()

    @property
    def files(self) -> int:
        return sum(len(each.files) for each in self.moved)

    @property
    def size_bytes(self) -> int:
        """The size of the files, in bytes."""
        return sum(file.size_bytes for each in self.moved for file in each.files)

    def __repr__(self) -> str:
        return f"ExportSummary({self.rows} rows of {self.partitions} partitions in {self.files} files)"


@with_options(Selection, LogJobOptions)
def export(
    source: PathText | Sequence[PathText],
    target: PathText,
    *,
    format: str | FileFormat = "parquet",  # noqa: A002 - as Spark calls it
    table: str | None = None,
    catalog: Mapping[str, str] | None = None,
    columns: str | Sequence[str] | None = None,
    partition_by: Sequence[str] = PARTITION_BY,
    key_format: str | None = None,
    value_format: str | None = None,
    key_options: Mapping[str, Any] = MappingProxyType({}),
    value_options: Mapping[str, Any] = MappingProxyType({}),
    unnests_value: bool = False,
    on_decode_error: OnDecodeError = "fail",
    escape_formulas: bool = False,
    where: str | None = None,
    adopt: bool = False,
    row_group_rows: int = ROW_GROUP_ROWS,
    commit_interval_ms: int = COMMIT_INTERVAL_MS,
    unknown: UnknownFate = "drop",
    **shared: Unpack[MoveArguments],
) -> ExportSummary:
    """Export the records of partition logs to files of a table. Records exported by an earlier run are skipped.

    The ledger of the target records what was moved. A rerun continues from the last commit of each partition and
    repeats nothing, whether this run ended well or was killed.

    Parameters
    ----------
    source : str, os.PathLike or a sequence of them
        Log directories (all topics except those that begin with ``__``), topic paths, partition folders, patterns.
    target : str or os.PathLike
        A folder, created if it does not exist. It is for exports only; other files in it are left alone.
    format : str or FileFormat
        ``delta`` and ``iceberg`` are tables of Parquet files, whose own logs record what was moved to them. Otherwise
        ``parquet``, ``arrow``, ``csv`` or ``jsonl``. JSON lines have bytes as text if they are UTF-8, and otherwise as
        base64, in a field with the suffix ``_base64``. CSV has no headers. Parquet files have delta encodings, which
        Spark reads from 3.4 on; files of Iceberg tables have none.
    table : str, optional
        The name of an Iceberg table in its catalog, such as ``sales.orders``.
    catalog : mapping of str to str, optional
        The properties of that catalog, as for pyiceberg, and its ``name``.
    columns : str or sequence of str, optional
        Columns of `sparklog.topic.reader.TOPIC_SCHEMA`; by default those of Spark's Kafka source, with headers except
        in CSV.
    partition_by : sequence of str
        The folders that files are put in: some of ``topic``, ``partition``, ``date`` and ``hour`` (of the timestamp,
        UTC). The columns topic and partition are not in the files if they are folders.
    key_format, value_format : str, optional
        How keys and values are decoded into typed columns: a format of `sparklog.values.spec.parse_decoder`, or
        ``base64`` or ``hex``. By default they are bytes, and in CSV text.
    key_options, value_options : mapping of str to object
        Further arguments of that function: ``schema``, ``wire``, ``schema_id`` and ``message``.
    unnests_value : bool
        Whether the fields of a value become columns, which replace the column ``value``.
    on_decode_error : {"fail", "dead_letter", "null"}
        The result for a record whose key or value does not decode, or whose time the table cannot hold: an error that
        ends its partition, a row of a file of the same name in the folder ``_dead_letter``, or null. Tables of Delta
        Lake hold times up to the year 294247, Iceberg tables up to 9999; files hold all.
    escape_formulas : bool
        Whether text of CSV that a spreadsheet would take for a formula gets a ' before it. Loading such a file does not
        restore the text.
    where : str, optional
        A filter for records, such as ``key = 'user-1'``; see `LogReader.batches`. The others are skipped for good,
        since the ledger has all offsets that were looked at. A table keeps its filter.
    adopt : bool
        Continue where the ledger and the files of the target end, even if a log is evidently not the one that was
        moved. Files that the ledger does not know count as moved, by the ranges in their names.
    row_group_rows : int
        The largest number of rows of a row group of Parquet, or a batch of Arrow.
    commit_interval_ms : int
        The time after which finished files become visible.
    unknown : {"drop", "keep"}
        With skipped damage and read_committed: whether records of a transaction whose marker may be lost are left out,
        and recorded as lost, or exported.

    Returns
    -------
    ExportSummary

    Raises
    ------
    PathNotFoundError, InvalidOptionError
        Arguments are wrong; nothing was made.
    LockedError
        Another job moves to the target.
    CorruptLogError, DataLossError, UnreadableLogError, OutputNameError, ValueDecodeError
        The error of the first partition that could not be moved, with further errors in ``others``. All other
        partitions were moved.
    """
    options = taken(LogJobOptions, shared)
    runner = runner_of(options.processes, options.spark)
    if row_group_rows < 1:
        raise InvalidOptionError(f"row_group_rows is {row_group_rows}, and must be at least 1")
    written_as = _file_format(format)
    if escape_formulas:
        if not isinstance(written_as, CsvFormat):
            raise InvalidOptionError(f"escape_formulas is of CSV, and the format is {written_as.name}")
        written_as = replace(written_as, escapes_formulas=True)
    selection = taken(Selection, shared)
    is_best_effort = selection.on_damage == "best_effort"
    default_columns = [
        name
        for name in topic_schema_of(None, is_best_effort=is_best_effort).names
        if written_as.holds_bytes or name != "headers"
    ]
    job = ExportJob(
        source=source_of(source, selection, where, adopts=adopt),
        target=_target(target, format, table, catalog, options.lock_timeout_seconds),
        format=written_as,
        columns=tuple(topic_schema_of(columns or default_columns, is_best_effort=is_best_effort).names),
        partition_by=_checked_folders(partition_by),
        decoding=parse_decoding(
            key_format,
            value_format,
            key_options,
            value_options,
            unnests=unnests_value,
            on_error=on_decode_error,
            holds_bytes=written_as.holds_bytes,
        ),
        run_id=secrets.token_hex(8),
        now_ms=wall_clock_ms(),
        workers=runner.workers,
        options=options,
        row_group_rows=row_group_rows,
        unknown=unknown,
    )
    if unknown != "drop" and job.policy.is_fail:
        raise InvalidOptionError("unknown is about transactions whose markers are lost: set on_damage to skip as well")
    job.check()
    if adopt and isinstance(job.target, TableFolder) and not options.dry_run:
        adopt_files(job.target, job.table(), job.run_id, job.now_ms)
    if options.dry_run:
        return ExportSummary(job.run_id, (), tuple(job.plan()))
    moved = [each for result in run_job(job, runner, options.watch, commit_interval_ms) for each in result]
    return ExportSummary(job.run_id, in_order(each for each in moved if not each.is_empty))


def _file_format(wanted: str | FileFormat) -> FileFormat:
    if not isinstance(wanted, str):
        return wanted
    if wanted in _TABLE_FORMATS:
        # Iceberg's reader in Spark refuses delta-encoded columns before 1.10, and separate lengths before 1.11.
        return ParquetFormat(has_deltas=wanted != "iceberg")
    return format_named(wanted, _TABLE_FORMATS)


def _target(
    target: PathText,
    wanted: str | FileFormat,
    table: str | None,
    catalog: Mapping[str, str] | None,
    lock_timeout_seconds: float,
) -> Target:
    storage, path = place_at(target, "target")
    to_writable(storage, path)
    if wanted == "iceberg":
        if table is None or catalog is None:
            raise InvalidOptionError("an Iceberg table needs a catalog and the name of the table in it: give both")
        return IcebergTarget(
            storage, path, table, tuple(sorted(catalog.items())), lock_timeout_seconds=lock_timeout_seconds
        )
    if table is not None or catalog is not None:
        raise InvalidOptionError("a table and a catalog are given, which only the format iceberg has")
    if wanted == "delta":
        return DeltaTarget(storage, path, lock_timeout_seconds=lock_timeout_seconds)
    return TableFolder(storage, path, lock_timeout_seconds=lock_timeout_seconds)


def _checked_folders(partition_by: Sequence[str]) -> tuple[str, ...]:
    names = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    for name in names:
        if name not in FOLDERS:
            hint = did_you_mean(name, FOLDERS, f"it may have {', '.join(FOLDERS)}")
            raise InvalidOptionError(f"partition_by has {name!r}: {hint}")
    if len(set(names)) < len(names):
        raise InvalidOptionError(f"partition_by names a folder twice: {', '.join(names)}")
    return names
