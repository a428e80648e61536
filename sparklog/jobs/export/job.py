"""Exports partition logs to tables: each task decodes ranges of offsets into Arrow and writes files."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from sparklog.errors import DataLossError, InvalidOptionError, SeglogError
from sparklog.jobs.export.decoding import (
    DEAD_LETTERS,
    DEAD_LETTERS_AS_TEXT,
    NO_DECODING,
    Decoding,
    RecordDecoder,
    as_digits,
)
from sparklog.jobs.files.formats import (
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    ArrowFormat,
    CsvFormat,
    FileFormat,
    ParquetFormat,
)
from sparklog.jobs.ledger import Moved, Settings
from sparklog.jobs.run.job import OF_ONE_PARTITION, Amount, PartlyDoneError, PiecesTask, Report
from sparklog.jobs.run.options import LogJobOptions
from sparklog.jobs.run.shares import task_slices
from sparklog.jobs.source import DamageSpan, LogSource, Selected, piece_bytes_max, reading, refuse_nested
from sparklog.jobs.targets.adopting import known_by_files
from sparklog.jobs.targets.outputs import DEAD_LETTER, PARTITION_BY, Layout, Outputs
from sparklog.jobs.targets.targets import TableFolder, TableShape, Target
from sparklog.log.damage_rows import DamagePolicy, UnknownFate
from sparklog.log.files import TopicPartition
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.log_identity import LogIdentity, identity_at
from sparklog.log.places import LogDirectory, is_within
from sparklog.log.reader import LogReader
from sparklog.record.decode.columns import DecodeLimits
from sparklog.topic.found_damage import FoundDamage
from sparklog.topic.places.ranges import ReadRange, cut_by_bytes
from sparklog.topic.reader import TOPIC_DEFAULT_COLUMNS, of_partition, topic_schema_of
from sparklog.values.spec import DecoderSpec

_THREADS_BYTES_MAX: Final = 1 << 29
_BULK_FORMATS: Final = (ParquetFormat, ArrowFormat)

_LIMITS: Final = DecodeLimits(chunk_bytes=1 << 20, output_bytes_max=1 << 23)


@dataclass(frozen=True)
class ExportPiece:
    """A range of offsets that one task moves into files of its own.

    Attributes
    ----------
    log_bytes : int
        The bytes of log in the range, about.
    identity : LogIdentity
        The identity of the log at the end of the range, when it was planned.
    damage : DamageSpan
        The damage that is recorded with the range.
    """

    range: ReadRange
    log_bytes: int
    identity: LogIdentity
    leader_epoch: int | None
    damage: DamageSpan = field(default_factory=DamageSpan)

    @property
    def name(self) -> str:
        return str(self.range)


@dataclass(frozen=True)
class ExportTask(PiecesTask[ExportPiece]):
    """A task of some pieces.

    Attributes
    ----------
    damaged : Selected or None
        A partition that cannot be moved at all; the task only reports that.
    """

    damaged: Selected | None = None

    @property
    def name(self) -> str:
        return super().name if self.damaged is None else self.damaged.range.folder.name

    @property
    def damage(self) -> SeglogError | None:
        return None if self.damaged is None else self.damaged.damage


@dataclass(frozen=True)
class ExportJob:
    """Moves the records of logs to a target, without those that were moved before.

    Attributes
    ----------
    columns : tuple of str
        Names of columns of `TOPIC_SCHEMA`.
    partition_by : tuple of str
        The folders that files are put in, some of `FOLDERS`.
    run_id : str
        The unique id of this run, which is also in the names of staged files.
    workers : int
        The number of tasks that run at a time, about.
    """

    source: LogSource
    target: Target
    format: FileFormat
    columns: tuple[str, ...] = TOPIC_DEFAULT_COLUMNS
    partition_by: tuple[str, ...] = PARTITION_BY
    decoding: Decoding = NO_DECODING
    run_id: str = ""
    now_ms: int = 0
    workers: int = 1
    options: LogJobOptions = field(default_factory=LogJobOptions)
    row_group_rows: int = ROW_GROUP_ROWS
    row_group_bytes: int = ROW_GROUP_BYTES
    unknown: UnknownFate = "drop"

    commits_as_it_goes = True

    @property
    def policy(self) -> DamagePolicy:
        return DamagePolicy(self.source.selection.on_damage, self.unknown)

    @property
    def threads_bytes_max(self) -> int:
        # Decoders of values may be Python, and making rows of text takes many short steps.
        is_bulk = isinstance(self.format, _BULK_FORMATS) and not self.decoding.is_needed
        return _THREADS_BYTES_MAX if is_bulk else 0

    def check(self) -> None:
        """Raise for errors that can be found before anything is made."""
        if not self.file_schema().names:
            raise InvalidOptionError(f"no column is left for the files: {', '.join(self.columns)} are their folders")
        self.format.check(self.file_schema())
        folders = self.source.check()
        for directory in sorted({folder.directory for folder in folders}, key=lambda each: each.path):
            _refuse_nested(self.target, directory)
        self.target.check()

    def held(self) -> AbstractContextManager[None]:
        return self.target.held()

    def plan(self) -> list[ExportTask]:
        """Split the ranges to move into tasks of about equal bytes; a task may have many small partitions."""
        moved = self.target.moved(self.table(), adopts=self.source.adopts)
        if isinstance(self.target, TableFolder):
            moved = known_by_files(self.target, moved, adopts=self.source.adopts)
        selected = self.source.select(moved)
        damaged = [each for each in selected if each.damage is not None]
        cut = self._cut([each for each in selected if each.damage is None])
        pieces = [piece for of_one in cut for piece in of_one]
        rows = task_slices([piece.log_bytes for piece in pieces], self.options.task_bytes, self.workers)
        tasks: list[ExportTask] = []
        last: dict[TopicPartition, int] = {}
        for each in rows:
            together = tuple(pieces[each])
            follows = last.get(together[0].range.topic_partition)
            tasks.append(ExportTask(len(tasks), together, follows))
            last.update({piece.range.topic_partition: tasks[-1].number for piece in together})
        return tasks + [ExportTask(len(tasks) + n, (), damaged=each) for n, each in enumerate(damaged)]

    def _cut(self, selected: Sequence[Selected]) -> Iterator[list[ExportPiece]]:
        bytes_max = piece_bytes_max(selected, self.options.task_bytes, self.workers)
        for each in selected:
            if each.layout is not None:
                yield [
                    ExportPiece(
                        piece,
                        log_bytes,
                        each.identity(piece.end_offset),
                        each.leader_epoch(piece.end_offset),
                        each.damage_of(piece),
                    )
                    for piece, log_bytes in cut_by_bytes(each.range, each.layout, bytes_max) or [(each.range, 0)]
                ]

    def run(self, task: ExportTask, report: Report) -> tuple[Moved, ...]:
        """Write the files of a task, staged, and return the ranges in them."""
        if task.damage is not None:
            raise task.damage
        found: list[Moved] = []
        errors: dict[TopicPartition, Exception] = {}
        decoder, table = self._decoder(), self.table()
        for number, piece in enumerate(task.pieces):
            if piece.range.topic_partition in errors:
                continue
            # Other attempts of this task may run, or have run, so staged names are unique.
            staged_name = f"{self.run_id}-{task.number}-{number}-{secrets.token_hex(4)}"
            try:
                found.append(self._moved(piece, decoder, table, staged_name, report))
            except OF_ONE_PARTITION as error:
                error.add_note(f"in {piece.range}")
                errors[piece.range.topic_partition] = error
        self.target.writable.sync_files(
            [self.target.staged_path(file.staged) for each in found for file in each.all_files]
        )
        if errors:
            raise PartlyDoneError(tuple(found), list(errors.values()))
        return tuple(found)

    def commit(self, results: Sequence[tuple[Moved, ...]]) -> None:
        moved = [each for result in results for each in result if not each.is_empty]
        if moved:
            self.target.commit(moved, self.table(), self.run_id, self.now_ms)

    def _moved(
        self, piece: ExportPiece, decoder: RecordDecoder, table: TableShape, staged_name: str, report: Report
    ) -> Moved:
        whole = piece.range
        found = FoundDamage(self.source.quarantine)
        beside = DEAD_LETTERS if self.format.holds_bytes else DEAD_LETTERS_AS_TEXT
        with (
            Outputs(self._layout(table.schema, self.partition_by), self.target, whole, staged_name) as outputs,
            Outputs(self._layout(beside, ()), self.target, whole, f"{staged_name}-d", DEAD_LETTER) as set_aside,
        ):
            for batch in self._batches(piece, found, report):
                rows, dead_letters = decoder.decode(batch, whole.topic_partition, table.times_ms)
                outputs.append(rows)
                if dead_letters is not None:
                    set_aside.append(dead_letters if self.format.holds_bytes else as_digits(dead_letters))
            files, dead_files = outputs.finish(), set_aside.finish()
        return Moved(
            *whole.topic_partition,
            whole.start_offset,
            whole.end_offset,
            sum(file.rows for file in files + dead_files),
            piece.log_bytes,
            piece.identity.topic_id,
            piece.leader_epoch,
            files,
            dead_letters=dead_files,
            log_id=piece.identity.log_id,
            end_batch=piece.identity.end_batch,
            lost=found.rows,
        )

    def _layout(self, schema: pa.Schema, partition_by: tuple[str, ...]) -> Layout:
        return Layout(self.format, schema, partition_by, self.row_group_rows, self.row_group_bytes)

    def _batches(self, piece: ExportPiece, damage: FoundDamage, report: Report) -> Iterator[pa.RecordBatch]:
        """Read a range, and report progress by its offsets; ``damage`` collects skipped stretches."""
        whole, log_bytes = piece.range, piece.log_bytes
        schema = self._schema_of(self._read_columns())
        of_log = [name for name in schema.names if name not in TopicPartition._fields]
        told_bytes = 0
        with reading():
            layout = read_layout(whole.folder, self.policy.on_damage)
        with reading(), LogReader(layout, whole.stable_offset, self.policy) as log:
            _refuse_gone(whole, log)
            _refuse_replaced(piece, layout)
            wanted = (whole.start_offset, whole.end_offset, of_log, self.source.selection.isolation_level, _LIMITS)
            if self.policy.is_fail:
                batches = log.batches(*wanted, where=self.source.where)
            else:
                parts = log.batches_and_damage(*wanted, self.source.where, self.policy.on_damage)
                batches = damage.pass_on(parts, whole.folder.storage, piece.damage.holds)
            for batch in of_partition(batches, whole.topic_partition, schema):
                if not batch.num_rows:
                    continue
                yield batch
                done = batch.column("offset")[-1].as_py() + 1 - whole.start_offset
                read_bytes = log_bytes * done // whole.size
                report(Amount(read_bytes - told_bytes, batch.num_rows))
                told_bytes = read_bytes
        report(Amount(log_bytes - told_bytes, 0))

    def _read_columns(self) -> tuple[str, ...]:
        """Return the columns to read: those that are written, the time for choosing folders, and offsets."""
        by_time = ("timestamp",) if {"date", "hour"} & set(self.partition_by) else ()
        return tuple(dict.fromkeys((*self.columns, *by_time, *self.decoding.read_columns, "offset")))

    def _decoder(self) -> RecordDecoder:
        folders = () if self.target.keeps_columns else self.partition_by
        return RecordDecoder(self.decoding, self._schema_of([name for name in self.columns if name not in folders]))

    def _schema_of(self, columns: Sequence[str]) -> pa.Schema:
        return topic_schema_of(columns, is_best_effort=self.policy.is_best_effort)

    def file_schema(self) -> pa.Schema:
        """Return the columns of the files: the wanted ones, decoded, except those that are folders."""
        return self._decoder().schema

    def table(self) -> TableShape:
        """Return the columns, folders and settings of the table."""
        schema = self.file_schema()
        values = {
            "format": self.format.name + ", formulas escaped" * (self.format == CsvFormat(escapes_formulas=True)),
            "columns": ", ".join(f"{field.name} {field.type}" for field in schema),
            "partition_by": ", ".join(self.partition_by),
            "where": "" if self.source.where is None else self.source.where.text,
            "isolation_level": self.source.selection.isolation_level,
            "key_format": _named(self.decoding.key),
            "value_format": _named(self.decoding.value),
        }
        return self.target.shape(TableShape(schema, self.partition_by, Settings(tuple(values.items()))))


def _named(decoder: DecoderSpec | str) -> str:
    return decoder if isinstance(decoder, str) else decoder.function or decoder.kind


def _refuse_gone(whole: ReadRange, log: LogReader) -> None:
    """Raise `DataLossError` if a range is no longer in its log."""
    if whole.start_offset < log.start_offset or whole.end_offset > log.end_offset:
        raise DataLossError(
            f"{whole} was to be moved, and the log now has offsets [{log.start_offset}, {log.end_offset}): repeat the "
            f"job, which continues with these"
        )


def _refuse_replaced(piece: ExportPiece, layout: PartitionLayout) -> None:
    """Raise `DataLossError` if a log is not the one that was planned."""
    difference = piece.identity.difference(identity_at(layout, piece.range.end_offset))
    if difference is not None:
        raise DataLossError(
            f"{piece.range} was to be moved, and its log has another {difference} now: it was made again or cut "
            f"meanwhile. Repeat the job: its error tells what can be done"
        )


def _refuse_nested(target: Target, directory: LogDirectory) -> None:
    """Raise `InvalidOptionError` if the target is in a log directory that is read, or contains one."""
    refuse_nested(target.storage, target.path, directory)
    same_scheme = target.storage.scheme == directory.storage.scheme
    if same_scheme and is_within(directory.storage.real(directory.path), target.storage.real(target.path)):
        raise InvalidOptionError(
            f"the logs of {directory.path} are in the target {target.path}: readers of the table would find their "
            f"files. Move to another folder"
        )
