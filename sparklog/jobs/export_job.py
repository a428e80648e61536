"""Exports partition logs to tables: a task decodes ranges of offsets into Arrow, and writes files itself.

Files are named for what they hold, ``events-0-<from>-<to>.parquet``, with offsets in 20 digits, so that names sort as
records do. They lie in folders by topic and partition, or by the date or hour of their records.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from sparklog.errors import CorruptLogError, DataLossError, InvalidOptionError
from sparklog.jobs.formats import ROW_GROUP_BYTES, ROW_GROUP_ROWS, FileFormat, RowGroups
from sparklog.jobs.job import Amount, Report
from sparklog.jobs.ledger import Moved, MovedFile
from sparklog.jobs.source import LogSource, Selected
from sparklog.jobs.staged_file import StagedFile
from sparklog.jobs.targets import Target
from sparklog.log.files import TopicPartition
from sparklog.log.layout import read_layout
from sparklog.log.places import path_of
from sparklog.log.reader import LogReader
from sparklog.record.decode import DecodeLimits
from sparklog.record.schema import selector
from sparklog.storage.capabilities import to_writable
from sparklog.topic.packing import pack
from sparklog.topic.ranges import ReadRange, cut_by_bytes
from sparklog.topic.reader import TOPIC_DEFAULT_COLUMNS, TOPIC_SCHEMA, of_partition

TASK_BYTES: Final = 1 << 28
"""How many bytes of log a task reads at most, about, by default."""
_TASK_BYTES_MIN: Final = 1 << 26
"""Tasks are made smaller where there would be too few, but not smaller than this: each makes a file of its own."""
_TASKS_A_WORKER: Final = 3
BUFFERED_BYTES_MAX: Final = 1 << 28
"""How many bytes of rows a task holds over all of the files that it writes to."""
PARTITION_BY: Final = ("topic", "partition")
FOLDERS: Final = ("topic", "partition", "date", "hour")
NO_TIME: Final = "__HIVE_DEFAULT_PARTITION__"
"""The date of records that have no timestamp, as Hive names what is null."""

_schema_of: Final = selector(TOPIC_SCHEMA)
_LIMITS: Final = DecodeLimits(chunk_bytes=1 << 20, output_bytes_max=1 << 23)
_MS: Final = {"date": 24 * 3600 * 1000, "hour": 3600 * 1000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER: Final = -1


@dataclass(frozen=True)
class Piece:
    """A range of offsets that one task moves into files of its own.

    Attributes
    ----------
    log_bytes : int
        About how many bytes of log it has.
    """

    range: ReadRange
    log_bytes: int
    topic_id: str | None
    leader_epoch: int | None


@dataclass(frozen=True)
class ExportTask:
    """Some pieces of about a task's size in all.

    Attributes
    ----------
    number : int
        In the plan.
    damage : CorruptLogError or DataLossError or None
        Why a partition cannot be moved at all, which is the only thing that the task has to say.
    """

    number: int
    name: str
    pieces: tuple[Piece, ...]
    follows: int | None = None
    damage: CorruptLogError | DataLossError | None = None

    @property
    def size_bytes(self) -> int:
        return sum(piece.log_bytes for piece in self.pieces)


@dataclass(frozen=True)
class ExportJob:
    """Moves the records of logs that were not moved before to a target.

    Attributes
    ----------
    columns : tuple of str
        Of `TOPIC_SCHEMA`.
    partition_by : tuple of str
        Of `FOLDERS`: the folders in which files lie.
    run_id : str
        Tells this run from every other, also in the names of what it stages.
    workers : int
        How many tasks run at a time, about.
    """

    source: LogSource
    target: Target
    format: FileFormat
    columns: tuple[str, ...] = TOPIC_DEFAULT_COLUMNS
    partition_by: tuple[str, ...] = PARTITION_BY
    run_id: str = ""
    now_ms: int = 0
    workers: int = 1
    task_bytes: int = TASK_BYTES
    row_group_rows: int = ROW_GROUP_ROWS
    row_group_bytes: int = ROW_GROUP_BYTES

    commits_as_it_goes = True

    def check(self) -> None:
        """Raise for what is wrong already, before anything is made."""
        if not self.file_schema().names:
            raise InvalidOptionError(f"no column is left for the files: {', '.join(self.columns)} are their folders")
        self.format.check(self.file_schema())
        self.source.check()

    def held(self) -> AbstractContextManager[None]:
        return self.target.held()

    def plan(self) -> list[ExportTask]:
        """Cut what is to be moved into tasks of about equal bytes, and give small partitions to one together."""
        selected = self.source.select(self.target.moved())
        damaged = [each for each in selected if each.damage is not None]
        cut = self._cut([each for each in selected if each.damage is None])
        pieces = [piece for of_one in cut for piece in of_one]
        rows = pack(
            [piece.log_bytes for piece in pieces],
            [0] * len(pieces),
            bytes_max=self.task_bytes,
            tasks_min=min(self.workers, len(pieces)),
        )
        tasks: list[ExportTask] = []
        last: dict[TopicPartition, int] = {}
        for each in rows:
            together = tuple(pieces[each])
            follows = last.get(together[0].range.topic_partition)
            tasks.append(ExportTask(len(tasks), _name_of(together), together, follows))
            last.update({piece.range.topic_partition: tasks[-1].number for piece in together})
        for one in damaged:
            tasks.append(ExportTask(len(tasks), one.range.folder.name, (), damage=one.damage))
        return tasks

    def _cut(self, selected: Sequence[Selected]) -> Iterator[list[Piece]]:
        total_bytes = sum(
            sum(segment.size_bytes for segment in each.layout.segments) for each in selected if each.layout
        )
        share = total_bytes // (self.workers * _TASKS_A_WORKER)
        bytes_max = min(self.task_bytes, max(share, _TASK_BYTES_MIN))
        for each in selected:
            if each.layout is not None:
                yield [
                    Piece(piece, log_bytes, each.topic_id, each.leader_epoch(piece.end_offset))
                    for piece, log_bytes in cut_by_bytes(each.range, each.layout, bytes_max)
                ]

    def run(self, task: ExportTask, report: Report) -> tuple[Moved, ...]:
        """Write the files of a task, staged, and return what is in them."""
        if task.damage is not None:
            raise task.damage
        found = tuple(self._moved(task, number, piece, report) for number, piece in enumerate(task.pieces))
        storage = to_writable(self.target.storage, self.target.path)
        storage.sync_files([self.target.staged_path(file.staged) for each in found for file in each.files])
        return found

    def commit(self, results: Sequence[tuple[Moved, ...]]) -> None:
        self.target.commit([each for result in results for each in result], self.run_id, self.now_ms)

    def _moved(self, task: ExportTask, number: int, piece: Piece, report: Report) -> Moved:
        whole, at = piece.range, piece.range.topic_partition
        # Spark may make two attempts of a task, also at the same time: each has names of its own.
        staged_name = f"{self.run_id}-{task.number}-{number}-{secrets.token_hex(4)}"
        with _Outputs(self, at, _file_name(whole, self.format.suffix), staged_name) as outputs:
            for batch in self._batches(whole, piece.log_bytes, report):
                outputs.append(batch)
            files = outputs.finish()
        rows = sum(file.rows for file in files)
        return Moved(
            *at, whole.start_offset, whole.end_offset, rows, piece.log_bytes, piece.topic_id, piece.leader_epoch, files
        )

    def _batches(self, whole: ReadRange, log_bytes: int, report: Report) -> Iterator[pa.RecordBatch]:
        """Read a range, and say on the way how much was read, by its offsets."""
        schema = _schema_of(self._read_columns())
        of_log = [name for name in schema.names if name not in TopicPartition._fields]
        told_bytes = 0
        with LogReader(read_layout(whole.folder), whole.stable_offset) as log:
            _refuse_gone(whole, log)
            batches = log.batches(whole.start_offset, whole.end_offset, of_log, self.source.isolation_level, _LIMITS)
            for batch in of_partition(batches, whole.topic_partition, schema):
                yield batch
                done = batch.column("offset")[-1].as_py() + 1 - whole.start_offset
                read_bytes = log_bytes * done // whole.size
                report(Amount(read_bytes - told_bytes, batch.num_rows))
                told_bytes = read_bytes
        report(Amount(log_bytes - told_bytes, 0))

    def _read_columns(self) -> tuple[str, ...]:
        """Return the columns that are needed: those that are written, the time to choose a folder, and offsets."""
        by_time = ("timestamp",) if {"date", "hour"} & set(self.partition_by) else ()
        return tuple(dict.fromkeys((*self.columns, *by_time, "offset")))

    def file_schema(self) -> pa.Schema:
        """Return the columns of the files: those asked for, but for those that are folders."""
        return _schema_of(tuple(name for name in self.columns if name not in self.partition_by))


class _Outputs:
    """The files of one piece: one, or one for each date or hour of its records."""

    def __init__(self, job: ExportJob, at: TopicPartition, file_name: str, staged_name: str) -> None:
        self._job, self._at, self._file_name, self._staged_name = job, at, file_name, staged_name
        self._schema = job.file_schema()
        self._storage = to_writable(job.target.storage, job.target.path)
        self._opened = ExitStack()
        self._by_folder: dict[str, _Output] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._opened.__exit__(*exc_info)

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows to the files of their folders."""
        for folder, rows in self._by_time(batch):
            output = self._by_folder.get(folder)
            if output is None:
                output = self._by_folder[folder] = self._begin()
            output.append(rows.select(self._schema.names))
        while sum(each.buffered_bytes for each in self._by_folder.values()) > BUFFERED_BYTES_MAX:
            max(self._by_folder.values(), key=lambda each: each.buffered_bytes).flush()

    def finish(self) -> tuple[MovedFile, ...]:
        """End all files; they are not synced."""
        return tuple(
            self._by_folder[folder].finish(path_of(folder, self._file_name)) for folder in sorted(self._by_folder)
        )

    def _begin(self) -> _Output:
        name = f"{self._staged_name}-{len(self._by_folder)}"
        file = self._opened.enter_context(StagedFile(self._storage, self._job.target.staged_path(name)))
        return _Output(self._job, file, name, self._schema)

    def _by_time(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        by_time = [name for name in self._job.partition_by if name in _MS]
        if not by_time:
            yield self._folder(None), batch
            return
        # Hours lie within dates: where both are asked for, the hour tells the date.
        unit_ms = min(_MS[name] for name in by_time)
        times = np.asarray(batch.column("timestamp").cast(pa.int64()))
        units = np.where(times < 0, _NEVER, times // unit_ms)
        for unit in dict.fromkeys(units.tolist()):
            is_in = units == unit
            yield self._folder(unit * unit_ms), batch if is_in.all() else batch.filter(pa.array(is_in))

    def _folder(self, time_ms: int | None) -> str:
        """Return the path of a folder, relative to the target."""
        values = {"topic": self._at.topic, "partition": str(self._at.partition)}
        if time_ms is not None:
            time = _EPOCH + timedelta(milliseconds=time_ms) if time_ms >= 0 else None
            values["date"] = NO_TIME if time is None else time.strftime("%Y-%m-%d")
            values["hour"] = NO_TIME if time is None else time.strftime("%H")
        return path_of(*(f"{name}={values[name]}" for name in self._job.partition_by))


class _Output:
    """A staged file that is written to."""

    def __init__(self, job: ExportJob, file: StagedFile, name: str, schema: pa.Schema) -> None:
        self._file, self._name, self._rows = file, name, 0
        writer = job.format.open(file, schema)
        self._groups = RowGroups(writer, schema, job.row_group_rows, job.row_group_bytes)

    @property
    def buffered_bytes(self) -> int:
        return self._groups.buffered_bytes

    def append(self, rows: pa.RecordBatch) -> None:
        self._groups.append(rows)
        self._rows += rows.num_rows

    def flush(self) -> None:
        self._groups.flush()

    def finish(self, path: str) -> MovedFile:
        self._groups.close()
        self._file.finish()
        return MovedFile(path, self._file.size_bytes, self._rows, self._file.crc32c, self._name)


def _file_name(whole: ReadRange, suffix: str) -> str:
    return f"{whole.folder.name}-{whole.start_offset:020}-{whole.end_offset:020}{suffix}"


def _name_of(pieces: Sequence[Piece]) -> str:
    first = str(pieces[0].range)
    return first if len(pieces) == 1 else f"{first} and {len(pieces) - 1} more"


def _refuse_gone(whole: ReadRange, log: LogReader) -> None:
    """Raise `DataLossError` if a range is not in its log any more."""
    if whole.start_offset < log.start_offset or whole.end_offset > log.end_offset:
        raise DataLossError(
            f"{whole} was to be moved, and the log now has offsets [{log.start_offset}, {log.end_offset}): repeat the "
            f"job, which goes on from what is there"
        )
