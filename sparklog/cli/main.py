"""The command line: ``sparklog describe``, ``dump``, ``verify``, ``recover`` and ``warm-up``.

Exit status: 0 all is well; 1 something is wrong with the log (and stays so, after ``recover``);
2 the command cannot be carried out, and stderr says why in one line: also where ``dump`` is to begin behind the end of
every log; 141, as of any command that SIGPIPE ends, if the reader of the output closes it (``sparklog dump | head``).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import sparklog
from sparklog.cli import describe as describe_rows
from sparklog.cli import render, views
from sparklog.cli.paths import find_target, is_file, log_bytes, processes_for
from sparklog.errors import InvalidOptionError, SeglogError
from sparklog.inspect.describe import describe_partitions
from sparklog.log.times import iso_milliseconds

_FAILED = 1
_CANNOT = 2
_PIPE_CLOSED = 128 + 13


class IsolationLevels(StrEnum):
    """The values of ``--isolation-level``."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class _Commands(TyperGroup):
    """The commands; an error of ours is printed in one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SeglogError as error:
            render.complain("error", str(error))
            raise typer.Exit(_CANNOT) from error
        except BrokenPipeError as error:
            raise typer.Exit(_PIPE_CLOSED) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Look into Apache Kafka's partition logs on disk, with no broker. Only recover changes anything.",
)

Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="A log directory, a topic's path (/logs/events), or a partition's folder."),
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Work on so many partitions side by side; all cores, if there is much to do."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines.")]


def run() -> None:
    """Run the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        # Records may hold any character, whatever the terminal's locale.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app(prog_name="sparklog")
    finally:
        if not render.flushed():
            sys.exit(_PIPE_CLOSED)


def _version(wanted: bool) -> None:
    if wanted:
        render.say(f"sparklog {sparklog.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    logger = logging.getLogger("sparklog")
    logger.handlers = [render.LogHandler()]
    logger.propagate = False


@app.command()
def describe(
    paths: Paths,
    partitions: Annotated[bool, typer.Option("--partitions", help="A line a partition, not a topic.")] = False,
    segments: Annotated[bool, typer.Option("--segments", help="A line a segment, not a topic.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Scan every batch header, and count batches, records and codecs exactly.")
    ] = False,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Show topics, partitions and segments: offsets, times, sizes, codecs and formats.

    Only indexes and the ends of each segment are read, so codecs and formats are those found there, and times are
    nearly exact. STABLE is the last stable offset; "-" where finding it would mean reading much: --full does.
    """
    targets = [find_target(path) for path in paths]
    folders = list(dict.fromkeys(folder for target in targets for folder in target.folders))
    work_bytes = sum(log_bytes(target) for target in targets) if full else 0
    count = processes_for(len(folders), work_bytes, processes)
    described = []
    with render.progress(len(folders), "partitions") as advance:
        descriptions = describe_partitions([folder.location for folder in folders], is_full=full, processes=count)
        for folder, description in zip(folders, descriptions, strict=True):
            described.append((folder, description))
            advance(folder.name, 1)
    columns: Sequence[render.Column]
    if segments:
        rows, columns = describe_rows.segment_rows(described, is_full=full), views.SEGMENTS
    elif partitions:
        rows, columns = describe_rows.partition_rows(described, is_full=full), views.PARTITIONS
    else:
        rows, columns = describe_rows.topic_rows(described, is_full=full), views.TOPICS
    if as_json:
        render.json_lines(rows)
    else:
        render.table(views.counted(columns) if full else columns, list(rows))
    damaged = [(folder, each.error) for folder, each in described if each.error]
    for folder, error in damaged:
        render.complain("warning", f"{folder.name}: {error}")
    if damaged:
        raise typer.Exit(_FAILED)


@app.command()
def dump(
    path: Annotated[
        str,
        typer.Argument(
            help="A path as for describe; or one file: .log, .index, .timeindex, .txnindex, .snapshot, "
            "leader-epoch-checkpoint, partition.metadata or an offset checkpoint."
        ),
    ],
    batches: Annotated[bool, typer.Option("--batches", help="Batches and their headers, not records.")] = False,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Begin at this offset.")] = None,
    end_offset: Annotated[int | None, typer.Option("--end-offset", min=0, help="Stop before this offset.")] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", help="Begin at the first record at or after: ms since 1970, or ISO 8601 (UTC)."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="Print at most so many lines.")] = None,
    isolation_level: Annotated[
        IsolationLevels, typer.Option(help="Whether records of aborted and open transactions are shown.")
    ] = IsolationLevels.READ_UNCOMMITTED,
    as_json: Json = False,
) -> None:
    """Show the records of a log, or its batches, or the entries of one of its files.

    In JSON, keys and values that are UTF-8 are text; others are base64 under "key_base64", "value_base64".
    """
    # Compiled code is loaded only here, in `verify` and in `recover`.
    from sparklog.cli.dump import extents, refuse_outside
    from sparklog.inspect.dump import DumpRange, batch_rows, file_rows, log_of_file, log_of_folder, record_rows

    if offset is not None and time is not None:
        raise InvalidOptionError("--offset and --time both say where to begin: give one of them")
    wanted = DumpRange(offset, end_offset, None if time is None else _milliseconds(time), isolation_level.value)
    rows_of = batch_rows if batches else record_rows
    if is_file(path):
        entries = file_rows(path)
        if entries is not None:
            _entries(islice(entries, limit), as_json=as_json)
            return
        logs = [log_of_file(path)]
    else:
        logs = [log_of_folder(folder) for folder in find_target(path).folders]
    refuse_outside(logs, wanted)
    rows = islice(chain.from_iterable(rows_of(log, wanted) for log in logs), limit)
    first = list(islice(rows, 1))
    if not first:
        render.complain("note", f"nothing to show: {extents(logs)}")
    elif as_json:
        render.json_lines(chain(first, rows))
    else:
        heading = _file_of if batches else _partition_of
        render.stream(views.BATCHES if batches else views.RECORDS, chain(first, rows), heading)


def _entries(rows: Iterator[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        render.json_lines(rows)
        return
    first = next(rows, None)
    if first is None:
        render.complain("note", "there is no entry in it")
        return
    render.stream(views.of_entries(first), chain([first], rows), lambda _: "")


def _partition_of(row: render.Row) -> str:
    return row["topic"] if row["partition"] is None else f"{row['topic']}-{row['partition']}"


def _file_of(row: render.Row) -> str:
    return f"{_partition_of(row)}/{row['file']}"


def _milliseconds(text: str) -> int:
    """Read a time: ms since the epoch, or ISO 8601, which is in UTC unless it says otherwise."""
    if text.lstrip("-").isdigit():
        return int(text)
    time = iso_milliseconds(text)
    if time is None:
        raise InvalidOptionError(f"--time {text!r} is neither ms since 1970 nor ISO 8601")
    return time


@app.command()
def verify(paths: Paths, processes: Processes = None, as_json: Json = False) -> None:
    """Check everything: checksums, records, offsets, indexes, epochs, snapshots, checkpoints, names.

    Exit status 1 where there is an error. Warnings and notes are no errors: a broker that dies may leave a torn end of
    the last segment, and cuts it off itself when it starts.
    """
    from sparklog.cli.verify import Outcome, as_json_row, findings, report

    targets = [find_target(path) for path in paths]
    outcome = Outcome()
    total_bytes = sum(log_bytes(target) for target in targets)
    count = processes_for(sum(len(target.folders) for target in targets), total_bytes, processes)
    with render.progress(total_bytes) as advance:
        rows = findings(targets, outcome, advance, count)
        if as_json:
            render.json_lines(as_json_row(row) for row in rows)
        found = list(rows)
    if not as_json:
        report(found, outcome)
    if outcome.has_errors:
        raise typer.Exit(_FAILED)


@app.command()
def recover(
    paths: Paths,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, and say what would be done.")] = False,
    truncate: Annotated[
        bool,
        typer.Option("--truncate", help="Cut a damaged log even where no crash can have torn it: THIS LOSES THE REST."),
    ] = False,
    drop_cut: Annotated[
        bool,
        typer.Option("--drop-cut", help="Remove the .cut files too, with the bytes that were cut off damaged logs."),
    ] = False,
    staged_hours: Annotated[
        float, typer.Option(min=0, help="Remove files that jobs older than this have staged and never committed.")
    ] = 168.0,
    as_json: Json = False,
) -> None:
    """Put logs in order after a writer or a broker died: finish commits, cut torn ends, make missing indexes.

    Every batch is checked. Bytes that are cut are kept beside the log in a .cut file. The directory is locked as by a
    broker; where a broker runs, the command refuses. Exit status 1 where a log is damaged and was left as it is, 2
    where one cannot be read.
    """
    from sparklog.cli.recover import Outcome, recover_rows

    outcome = Outcome()
    targets = [find_target(path) for path in paths]
    # All of it is done before any of it is printed: a pipe that is closed must not end it halfway.
    rows = list(recover_rows(targets, outcome, staged_hours, truncate=truncate, drop_cut=drop_cut, dry_run=dry_run))
    if as_json:
        render.json_lines(rows)
    else:
        render.table(views.ACTIONS, rows)
        render.say(outcome.sentence(dry_run=dry_run))
    if outcome.failed:
        raise typer.Exit(_CANNOT)
    if outcome.damaged:
        raise typer.Exit(_FAILED)


@app.command("warm-up")
def warm_up() -> None:
    """Compile all kernels ahead, as for an image, so that no query waits for it; says where they are kept.

    They are kept once for a user and a machine. Set SPARKLOG_CACHE_DIR, here and where queries run, for another folder.
    """
    from sparklog.record.warm_up import kernel_count, kernels_folder, load_kernels

    with render.progress(kernel_count(), "kernels") as advance:
        for name in load_kernels():
            advance(name, 1)
    folder = kernels_folder()
    if folder is None:
        render.complain("warning", "there is no folder to keep compiled kernels in: set SPARKLOG_CACHE_DIR")
        raise typer.Exit(_FAILED)
    render.say(f"all kernels ({kernel_count()}) are compiled for this machine, in {folder}")
