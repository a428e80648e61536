"""The ``dump`` command: chooses logs and ranges, prints rows in one of four formats, and explains an empty result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.cli.output import render
from sparklog.cli.output.progress import Advance, progress
from sparklog.cli.output.text import time_text
from sparklog.cli.parsing import Format
from sparklog.cli.work.dump_formats import Chunk, Printer, entries_printer, log_printer
from sparklog.errors import (
    InvalidOptionError,
    OffsetOutOfRangeError,
    SeglogError,
)
from sparklog.inspect.dump import RowDict, batch_rows, file_rows, log_of_file, log_of_folder, record_batches
from sparklog.inspect.dump_range import DumpedLog, DumpRange
from sparklog.jobs.named_logs import logs_at
from sparklog.log.places import PartitionFolder, split_path
from sparklog.storage.registry import Location
from sparklog.topic.places.discovery import places_at
from sparklog.topic.selection import ReplicaOptions

_LOGS_SHOWN_MAX: Final = 5
_ROWS_AT_ONCE: Final = 200


@dataclass(frozen=True)
class DumpOptions:
    """The options of a dump: its path, the rows to print, and their format.

    Attributes
    ----------
    partitions : sequence of int
        The partitions to print; all of the path's if empty.
    limit : int or None
        The most rows to print.
    escapes_formulas : bool
        Whether CSV text that a spreadsheet would take for a formula gets a ' before it.
    replicas : ReplicaOptions
        Whether a partition that matches in several places is merged.
    """

    path: str
    wanted: DumpRange
    form: Format
    partitions: Sequence[int] = ()
    limit: int | None = None
    has_batches: bool = False
    escapes_formulas: bool = False
    replicas: ReplicaOptions | None = None

    def file(self) -> Location | None:
        """Return the file at the path; None if the path is not a file."""
        (located,) = places_at(self.path)
        storage, path = located
        parent, name = split_path(path)
        if storage.is_folder(path) or not storage.is_folder(parent):
            return None
        return located if any(entry.name == name for entry in storage.entries(parent)) else None

    def folders(self) -> list[PartitionFolder]:
        """Find the partitions to print.

        Raises
        ------
        InvalidOptionError
            The path does not have one of the partitions.
        """
        found = logs_at(self.path, self.replicas).folders
        there = {folder.partition for folder in found}
        for partition in self.partitions:
            if partition not in there:
                has = ", ".join(str(each) for each in sorted(there, key=lambda each: -1 if each is None else each))
                raise InvalidOptionError(f"--partition {partition}: {self.path} has {has}")
        return [folder for folder in found if not self.partitions or folder.partition in self.partitions]

    def span(self, log: DumpedLog) -> tuple[int, int]:
        return log.batch_span(self.wanted) if self.has_batches else log.record_span(self.wanted)

    def chunks(self, log: DumpedLog, start: int, end: int) -> Iterator[tuple[Chunk, int]]:
        """Yield the wanted records or batches of a range of offsets in chunks, each with the offset after it."""
        if self.has_batches:
            for rows in _some_at_a_time(batch_rows(log, start, end)):
                yield rows, rows[-1]["last_offset"] + 1
            return
        wanted = self.wanted
        for batch in record_batches(log, start, end, wanted.isolation_level, wanted.where, wanted.on_damage):
            yield wanted.matching(batch), batch.column("offset")[-1].as_py() + 1


@dataclass
class CountedOutput:
    """Prints chunks up to a limit of rows, and counts the rows."""

    printer: Printer
    limit: int | None
    printed: int = 0

    @classmethod
    def of(cls, options: DumpOptions) -> CountedOutput:
        printer = log_printer(options.form, has_batches=options.has_batches, escapes_formulas=options.escapes_formulas)
        return cls(printer, options.limit)

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.printed >= self.limit

    def put(self, log: DumpedLog, chunk: Chunk) -> None:
        if self.limit is not None:
            chunk = chunk[: self.limit - self.printed]
        if len(chunk):
            self.printed += len(chunk)
            self.printer(log, chunk)


def print_dump(options: DumpOptions) -> None:
    """Print the rows that the options select.

    Raises
    ------
    SeglogError
        A log is damaged, for example; the rows before the damage are printed.
    """
    file = options.file()
    if file is not None:
        if options.partitions:
            raise InvalidOptionError("--partition is for a folder, and the path is that of a file")
        entries = file_rows(file)
        if entries is not None:
            _dump_entries(entries, options)
            return
        logs = [log_of_file(file)]
    else:
        logs = [log_of_folder(folder, options.wanted.on_damage) for folder in options.folders()]
    refuse_outside(logs, options.wanted)
    output = CountedOutput.of(options)
    offsets = sum(log.layout.end_offset - log.layout.start_offset for log in logs)
    with progress(offsets, "offsets", is_hidden=render.is_terminal()) as advance:
        for log in logs:
            if not output.is_full:
                _dump_log(log, options, output, advance)
    if not output.printed and options.limit != 0:
        render.complain("note", f"nothing to show: {extents(logs)}")


def _dump_log(log: DumpedLog, options: DumpOptions, output: CountedOutput, advance: Advance) -> None:
    done = log.layout.start_offset
    start, end = options.span(log)
    for chunk, next_offset in options.chunks(log, start, end):
        output.put(log, chunk)
        advance(log.name, next_offset - done)
        done = next_offset
        if output.is_full:
            return
    advance(log.name, log.layout.end_offset - done)


def _dump_entries(entries: Iterator[RowDict], options: DumpOptions) -> None:
    printed = 0
    put = entries_printer(options.form, escapes_formulas=options.escapes_formulas)
    for rows in _some_at_a_time(entries):
        put(rows[: None if options.limit is None else options.limit - printed])
        printed += len(rows)
        if options.limit is not None and printed >= options.limit:
            break
    if not printed:
        render.complain("note", "there is no entry in it")


def _some_at_a_time(rows: Iterator[RowDict]) -> Iterator[list[RowDict]]:
    """Yield rows in lists; if damage ends them, the rows before it are still yielded."""
    gathered: list[RowDict] = []
    try:
        for row in rows:
            gathered.append(row)
            if len(gathered) == _ROWS_AT_ONCE:
                yield gathered
                gathered = []
    except SeglogError:
        if gathered:
            yield gathered
        raise
    if gathered:
        yield gathered


def refuse_outside(logs: Sequence[DumpedLog], wanted: DumpRange) -> None:
    """Raise an error unless one of the logs reaches the begin of the wanted rows.

    Raises
    ------
    OffsetOutOfRangeError
        No log reaches it; the message gives their offsets and times.
    """
    if not any(log.reaches(wanted) for log in logs):
        where = f"--offset {wanted.start_offset}"
        if wanted.start_time is not None:
            where = f"--time {time_text(wanted.start_time)} ({wanted.start_time} ms)"
        raise OffsetOutOfRangeError(f"{where} is behind the end of every log: {extents(logs)}")


def extents(logs: Sequence[DumpedLog]) -> str:
    """Return a text with the offsets and the latest times of some logs."""
    shown = [_extent(log) for log in logs[:_LOGS_SHOWN_MAX]]
    more = len(logs) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _extent(log: DumpedLog) -> str:
    layout = log.layout
    if layout.start_offset >= layout.end_offset:
        return f"{log.name} has no record, and its next offset is {layout.end_offset}"
    offsets = f"{log.name} has offsets {layout.start_offset} to {layout.end_offset - 1}"
    latest = log.max_timestamp()
    return offsets if latest is None else f"{offsets}, with times up to {time_text(latest)} ({latest} ms)"
