"""Writes a range of offsets to files: to one, or to one for each date or hour of its records.

The name of a file tells its range, ``events-0-<from>-<to>.parquet``, with offsets in 20 digits, so that names sort
like records. Files are in folders by topic and partition, or by the date or hour of their records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from sparklog.jobs.files.formats import FileFormat, RowGroups
from sparklog.jobs.ledger import MovedFile
from sparklog.jobs.targets.staged_file import StagedFile
from sparklog.jobs.targets.targets import Target, refuse_taken
from sparklog.log.files import TopicPartition, parse_partition_folder
from sparklog.log.places import join_path, path_of
from sparklog.record.format.arrays import array_of, filled, numbers_of
from sparklog.topic.places.ranges import ReadRange

PARTITION_BY: Final = ("topic", "partition")
FOLDERS: Final = ("topic", "partition", "date", "hour")
NO_TIME: Final = "__HIVE_DEFAULT_PARTITION__"
"""The date of records without a timestamp, or with one after the year 9999; Hive's name for null."""
DEAD_LETTER: Final = "_dead_letter"
"""The folder of records that were not decoded. Spark and Arrow skip it; a pattern must avoid it: ``topic=*/**``."""
OUTPUT_BYTES_MAX: Final = 1 << 28
"""The bytes of rows that a task buffers, for all files that it writes to together."""
OPEN_FILES_MAX: Final = 256
"""The number of files that a task writes to at a time; with times in no order, each stays open for a while."""

_MS: Final = {"date": 24 * 3600 * 1000, "hour": 3600 * 1000}
_YEAR_10000_MS: Final = 253_402_300_800_000
_NEVER: Final = -1
_HIDDEN: Final = {"_": "%5F", ".": "%2E"}
"""Readers of tables skip files whose names begin with these; names of topics may do so too."""
_FILE_NAME: Final = re.compile(r"(?:^|/)((?:%5F|%2E)?)([^/]*)-(\d{20})-(\d{20})(?:~\d{4,})?\.[a-z]+$", re.ASCII)


@dataclass(frozen=True)
class Layout:
    """The format and the folders of the files of a job.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns of the files.
    partition_by : tuple of str
        The folders, some of `FOLDERS`.
    row_group_rows, row_group_bytes : int
        The largest number of rows, and of bytes, that is written at a time.
    """

    format: FileFormat
    schema: pa.Schema
    partition_by: tuple[str, ...]
    row_group_rows: int
    row_group_bytes: int


@dataclass(frozen=True, slots=True)
class FileName:
    """The range of offsets in the name of a file."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int


def parse_file_name(path: str) -> FileName | None:
    """Return the range in the name of a file; None if it is not a name that exports give."""
    found = _FILE_NAME.search(path)
    if found is None:
        return None
    hidden, name, start, end = found.groups()
    at = parse_partition_folder(unquote(hidden) + name)
    return None if at is None else FileName(at, int(start), int(end))


class Outputs:
    """The staged files of one range. If an error leaves the ``with`` block, unfinished files are removed.

    Parameters
    ----------
    of : ReadRange
        The range that is in the files' names.
    staged_name : str
        The prefix of the names of staged files, different for each attempt of the task.
    prefix : str
        The folder in the target for all files; empty for the target itself.
    """

    def __init__(self, layout: Layout, target: Target, of: ReadRange, staged_name: str, prefix: str = "") -> None:
        self._layout, self._target, self._at = layout, target, of.topic_partition
        self._stem, self._staged_name, self._prefix = _stem(of), staged_name, prefix
        self._storage = target.writable
        self._opened = ExitStack()
        # The files written to last are last.
        self._open: dict[str, _Output] = {}
        self._begun: dict[str, int] = {}
        self._finished: list[MovedFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._opened.__exit__(*exc_info)

    def append(self, batch: pa.RecordBatch) -> None:
        """Write rows to the files of their folders, without columns that are not in the files."""
        for folder, rows in self._by_time(batch):
            output = self._open.pop(folder, None) or self._begin(folder)
            self._open[folder] = output
            wanted = rows.select(self._layout.schema.names)
            output.append(wanted if wanted.schema == self._layout.schema else wanted.cast(self._layout.schema))
        while sum(each.buffered_bytes for each in self._open.values()) > OUTPUT_BYTES_MAX:
            max(self._open.values(), key=lambda each: each.buffered_bytes).flush()

    def finish(self) -> tuple[MovedFile, ...]:
        """Finish all files, and return them sorted by path; they are not synced."""
        while self._open:
            self._finish_one()
        return tuple(sorted(self._finished, key=lambda file: file.path))

    def _begin(self, folder: str) -> _Output:
        if len(self._open) >= OPEN_FILES_MAX:
            self._finish_one()
        path = self._next_path(folder)
        while self._target.keeps_unlisted_files and self._is_there(path):
            path = self._next_path(folder)
        refuse_taken(self._storage, self._target.path, path)
        staged = f"{self._staged_name}-{sum(self._begun.values()) + len(self._begun)}"
        file = self._opened.enter_context(StagedFile(self._storage, self._target.staged_path(staged)))
        return _Output(self._layout, file, path, staged)

    def _next_path(self, folder: str) -> str:
        number = self._begun[folder] = self._begun.get(folder, -1) + 1
        name = f"{self._stem}~{number:04}" if number else self._stem
        return path_of(folder, name + self._layout.format.suffix)

    def _is_there(self, path: str) -> bool:
        return self._storage.identity(join_path(self._target.path, path)) is not None

    def _finish_one(self) -> None:
        self._finished.append(self._open.pop(next(iter(self._open))).finish())

    def _by_time(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        by_time = [name for name in self._layout.partition_by if name in _MS]
        if not batch.num_rows:
            return
        if not by_time:
            yield self._folder(None), batch
            return
        # Hours are within dates: if both are wanted, the hour determines the date.
        unit_ms = min(_MS[name] for name in by_time)
        times = numbers_of(filled(batch.column("timestamp"), _NEVER))
        units = np.where((times < 0) | (times >= _YEAR_10000_MS), _NEVER, times // unit_ms)
        if (units == units[0]).all():
            yield self._folder(int(units[0]) * unit_ms), batch
            return
        # Copied with `take`, and not sliced: a few rows that wait for a file would keep all the others in memory.
        order = np.argsort(units, kind="stable")
        ends = np.flatnonzero(np.diff(units[order], append=units[order[-1]] + 1)) + 1
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            rows = order[start:end]
            yield self._folder(int(units[rows[0]]) * unit_ms), batch.take(array_of(rows))

    def _folder(self, time_ms: int | None) -> str:
        """Return the path of a folder, relative to the target."""
        values = {"topic": self._at.topic, "partition": str(self._at.partition)}
        if time_ms is not None:
            text = np.datetime_as_string(np.datetime64(time_ms, "ms"), unit="h")
            values["date"], values["hour"] = text.split("T") if time_ms >= 0 else (NO_TIME, NO_TIME)
        return path_of(self._prefix, *(f"{name}={values[name]}" for name in self._layout.partition_by))


class _Output:
    """A staged file that is being written."""

    def __init__(self, layout: Layout, file: StagedFile, path: str, staged: str) -> None:
        self._file, self._path, self._staged, self._rows = file, path, staged, 0
        writer = layout.format.open(file, layout.schema)
        self._groups = RowGroups(writer, layout.schema, layout.row_group_rows, layout.row_group_bytes)

    @property
    def buffered_bytes(self) -> int:
        return self._groups.buffered_bytes

    def append(self, rows: pa.RecordBatch) -> None:
        self._groups.append(rows)
        self._rows += rows.num_rows

    def flush(self) -> None:
        self._groups.flush()

    def finish(self) -> MovedFile:
        self._groups.close()
        self._file.finish()
        return MovedFile(self._path, self._file.size_bytes, self._rows, self._file.crc32c, self._staged)


def _stem(of: ReadRange) -> str:
    """Return the name of the file of a range, without its suffix."""
    name = of.folder.name
    visible = _HIDDEN.get(name[0], name[0]) + name[1:]
    return f"{visible}-{of.start_offset:020}-{of.end_offset:020}"
