"""The command line: ``sparklog describe``, ``dump``, ``verify``, ``diff``, ``recover``, ``export``, ``copy``,
``salvage``, ``load``, ``mirror``, ``backup``, ``restore``, ``clean``, ``delete-records``, ``truncate``, ``ledger``,
``lag``, ``groups``, ``transactions``, ``cluster``, ``topics``, ``produce`` and ``warm-up``.

Exit status:

- 0: all is well; also an interrupted ``dump --follow`` or ``mirror --follow``.
- 1: something is wrong with the log (after ``recover`` it still is; after ``export`` the other partitions were moved),
  or ``diff`` found a difference.
- 2: the command cannot be carried out, and stderr says why in one line, with a wrong filter shown below it; also if
  ``dump`` should begin after the end of every log.
- 130: interrupted.
- 141: the reader of the output closed it (``sparklog dump | head``), as for any command that SIGPIPE ends.
"""

from __future__ import annotations

import base64
import logging
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

import sparklog
from sparklog.cli.commands import backup as backup_commands
from sparklog.cli.commands import clean as clean_command
from sparklog.cli.commands import cut as cut_commands
from sparklog.cli.commands import groups as group_commands
from sparklog.cli.commands import jobs as job_commands
from sparklog.cli.commands import system as system_commands
from sparklog.cli.commands import topics as topic_commands
from sparklog.cli.commands.arguments import EscapeFormulas, Json, Paths, Processes, ShowFields, WhereText
from sparklog.cli.commands.declared import with_options_of
from sparklog.cli.commands.diff import diff
from sparklog.cli.commands.lag import lag
from sparklog.cli.commands.produce import produce
from sparklog.cli.commands.restore import restore
from sparklog.cli.commands.salvage import salvage
from sparklog.cli.commands.storage_options import add_storage_option
from sparklog.cli.output import render, tables
from sparklog.cli.output.fields import DESCRIBED_PARTITION, DESCRIBED_SEGMENT, DESCRIBED_TOPIC, RECOVERY
from sparklog.cli.output.progress import job_progress, progress
from sparklog.cli.parsing import Format, IsolationLevels, milliseconds_of
from sparklog.cli.work import describe as describing
from sparklog.errors import InvalidOptionError, SeglogError
from sparklog.jobs.named_logs import logs_at
from sparklog.log.filters.where_parser import parse_where
from sparklog.log.properties import taken
from sparklog.topic.selection import ReplicaOptions

_FAILED = 1
_CANNOT = 2
_INTERRUPTED = 128 + 2
_PIPE_CLOSED = 128 + 13
_WITHOUT_PATHS = "warm-up"


class _Commands(TyperGroup):
    """The commands; an error of sparklog is printed in one line, without a traceback."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, command in self.commands.items():
            if name != _WITHOUT_PATHS:
                add_storage_option(command)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SeglogError as error:
            render.complain("error", error.sentence, error.picture)
            raise typer.Exit(_CANNOT) from error
        except BrokenPipeError as error:
            raise typer.Exit(_PIPE_CLOSED) from error
        except OSError as error:
            render.complain("error", f"the output cannot be written: {error.strerror}")
            raise typer.Exit(_CANNOT) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(_INTERRUPTED) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Look into Apache Kafka's partition logs on disk, with no broker, and move them. "
    "Only recover, clean, delete-records, truncate, produce, topics, groups set and transactions --abort change an "
    "existing log.",
)


def run() -> None:
    """Run the command line with this process's arguments."""
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
    partitions: Annotated[bool, typer.Option("--partitions", help="One line per partition, not per topic.")] = False,
    segments: Annotated[bool, typer.Option("--segments", help="One line per segment, not per topic.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Scan every batch header, and count batches, records and codecs exactly.")
    ] = False,
    histogram: Annotated[
        bool, typer.Option("--histogram", help="Show records and bytes over time; as slow as --full.")
    ] = False,
    ratio: Annotated[
        bool, typer.Option("--ratio", help="Show what compression saves; decompresses every batch: the slowest.")
    ] = False,
    processes: Processes = None,
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Show topics, partitions and segments: offsets, times, sizes, codecs and formats.

    Reads only indexes and the ends of each segment, so codecs and formats are the ones found there, and times are
    nearly exact. STABLE is the last stable offset; "-" if finding it would mean reading much, as --full does.
    """
    depth = describing.Depth.of(full=full, ratio=ratio, histogram=histogram)
    found = describing.described_logs([logs_at(path) for path in paths], depth, processes)
    columns: Sequence[tables.Column]
    if segments:
        rows, columns = describing.segment_rows(found, depth), DESCRIBED_SEGMENT.columns
    elif partitions:
        rows, columns = describing.partition_rows(found, depth), DESCRIBED_PARTITION.columns
    else:
        rows, columns = describing.topic_rows(found, depth), DESCRIBED_TOPIC.columns
    if as_json:
        render.put_rows(rows)
    else:
        describing.print_tables(found, list(rows), columns, depth)
    for directory in found.directories.values():
        if directory.error:
            render.complain("warning", directory.error)
    errors = list(found.errors())
    for error in errors:
        render.complain("warning", error)
    if errors:
        raise typer.Exit(_FAILED)


@app.command()
@with_options_of(ReplicaOptions)
def dump(
    path: Annotated[
        str,
        typer.Argument(
            help="A path as for describe; or one file: .log, .index, .timeindex, .txnindex, .snapshot, "
            "leader-epoch-checkpoint, partition.metadata or an offset checkpoint."
        ),
    ],
    batches: Annotated[bool, typer.Option("--batches", help="Show batches and their headers, not records.")] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Only this partition; may be repeated.")
    ] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Begin at this offset.")] = None,
    end_offset: Annotated[int | None, typer.Option("--end-offset", min=0, help="Stop before this offset.")] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", help="Begin at the first record at or after: ms since 1970, or ISO 8601 (UTC)."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=0, help="Only this many last rows of each partition.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only records with this key.")] = None,
    key_base64: Annotated[
        str | None, typer.Option("--key-base64", help="Only records with this key, in base64.")
    ] = None,
    where: WhereText = None,
    on_damage: Annotated[
        Literal["fail", "skip"],
        typer.Option("--on-damage", help="Whether damage ends the output, or is left out and counted."),
    ] = "fail",
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="Print at most this number of rows.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new records until Ctrl-C; --last 10 -f is tail -f.")
    ] = False,
    isolation_level: Annotated[
        IsolationLevels, typer.Option(help="Whether records of aborted and open transactions are shown.")
    ] = IsolationLevels.READ_UNCOMMITTED,
    form: Annotated[
        Format, typer.Option("--format", help="A table, JSON lines, CSV, or raw: each value and the end of a line.")
    ] = Format.TABLE,
    escape_formulas: EscapeFormulas = False,
    as_json: Json = False,
    _fields: ShowFields = False,
    **given: Any,
) -> None:
    """Show the records of a log, or its batches, or the entries of one of its files.

    In JSON, keys and values that are UTF-8 are text; others are base64 under "key_base64", "value_base64".
    """
    # Only `dump`, `verify` and `recover` load this compiled code.
    from sparklog.cli.work.dump import DumpOptions, print_dump
    from sparklog.cli.work.follow import follow as follow_logs
    from sparklog.inspect.dump_range import DumpRange

    _refuse_two({"--offset": offset, "--time": time, "--last": last}, "say where to begin")
    _refuse_two({"--key": key, "--key-base64": key_base64}, "say which key")
    for name, value in (("--key", key), ("--key-base64", key_base64), ("--where", where)):
        if batches and value is not None:
            raise InvalidOptionError(f"{name} is for records, and --batches shows none")
    if on_damage != "fail" and (batches or follow):
        raise InvalidOptionError("--on-damage is for the records that there are: leave out --batches and --follow")
    wanted = DumpRange(
        offset,
        end_offset,
        None if time is None else milliseconds_of(time, "--time"),
        isolation_level.value,
        last,
        _bytes(key_base64) if key is None else key.encode("utf-8", "surrogateescape"),
        None if where is None else parse_where(where),
        on_damage,
    )
    chosen = Format.JSON if as_json else form
    if escape_formulas and chosen is not Format.CSV:
        raise InvalidOptionError(f"--escape-formulas is for --format csv, and the format is {chosen.value}")
    replicas = taken(ReplicaOptions, given)
    if replicas.merges_replicas and follow:
        raise InvalidOptionError("--follow reads one log's files: name the folder of one replica, and merge none")
    options = DumpOptions(path, wanted, chosen, partition or (), limit, batches, escape_formulas, replicas)
    (follow_logs if follow else print_dump)(options)


def _refuse_two(given: dict[str, object], what: str) -> None:
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise InvalidOptionError(f"{' and '.join(names)} both {what}: give one of them")


def _bytes(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidOptionError(f"--key-base64 {text!r} is no base64") from error


def _explained(code: str | None) -> None:
    if code is not None:
        from sparklog.cli.work.verify import explain

        explain(code)
        raise typer.Exit


@app.command()
def verify(
    paths: Paths,
    absent: Annotated[
        str | None, typer.Option("--absent", help="Prove that no file holds a key of this Parquet or CSV file.")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Compare the files of log directories, and the cluster's metadata, too.")
    ] = False,
    manifest: Annotated[
        bool, typer.Option("--manifest", help="The paths are sets of backups: check every manifest and every checksum.")
    ] = False,
    _explain: Annotated[
        str | None,
        typer.Option("--explain", help="Explain a code of findings, and stop.", is_eager=True, callback=_explained),
    ] = None,
    processes: Processes = None,
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Check everything: checksums, records, offsets, indexes, epochs, snapshots, checkpoints, names.

    With --deep, files are compared with each other, of one directory and of several: topic ids, meta.properties,
    checkpoints, leader epochs, leftovers, and what the cluster's metadata say. Each finding has a code.

    Exit status 1 if there is an error. Warnings and notes are not errors: a broker that dies may leave a torn end of
    the last segment, and cuts it off itself when it starts. With --absent, a record with such a key is an error in any
    file, also in one that is no longer part of the log, and so are bytes that may hold such a record.
    """
    from sparklog.cli.work.verify import (
        VerifyOutcome,
        as_json_row,
        backup_findings,
        damage_rows,
        findings,
        report,
    )

    if manifest and (deep or absent is not None):
        raise InvalidOptionError("--absent and --deep are for logs, and --manifest is for sets of backups")
    targets = [] if manifest else [logs_at(path) for path in paths]
    with job_progress("verifying", has_records=False) as bar:
        outcome = VerifyOutcome(bar)
        rows = (
            backup_findings(paths, outcome, processes)
            if manifest
            else findings(targets, outcome, processes, absent, is_deep=deep)
        )
        found = []
        if as_json:
            kept = (found.append(row) or row for row in rows)  # type: ignore[func-returns-value]
            render.put_rows(as_json_row(row) for row in kept)
            render.put_rows(damage_rows(targets, found))
        found += rows
    if not as_json:
        report(found, outcome)
    if outcome.has_errors:
        raise typer.Exit(_FAILED)


@app.command()
def recover(
    paths: Paths,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, but say what would be done.")] = False,
    truncate: Annotated[
        bool,
        typer.Option("--truncate", help="Cut a damaged log even if no crash can have torn it: THIS LOSES THE REST."),
    ] = False,
    drop_cut: Annotated[
        bool,
        typer.Option("--drop-cut", help="Also remove the .cut files, with the bytes that were cut off damaged logs."),
    ] = False,
    staged_hours: Annotated[
        float, typer.Option(min=0, help="Remove files that jobs older than this have staged and never committed.")
    ] = 168.0,
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Repair logs after a writer or a broker died: finish commits, cut torn ends, make missing indexes.

    Checks every batch. Bytes that are cut are kept beside the log in a .cut file. The directory is locked as by a
    broker; if a broker runs, the command refuses. Exit status 1 if a log is damaged and was left unchanged, 2 if one
    cannot be read.
    """
    from sparklog.cli.work.recover import RecoverOutcome, recover_rows

    outcome = RecoverOutcome()
    targets = [logs_at(path) for path in paths]
    # Finish all work before printing any of it: a closed pipe must not end it halfway.
    with progress(None) as advance:
        advance("recovering", 0)
        rows = list(recover_rows(targets, outcome, staged_hours, truncate=truncate, drop_cut=drop_cut, dry_run=dry_run))
    if as_json:
        render.put_rows(rows)
    else:
        tables.table(RECOVERY.columns, rows)
        render.say(outcome.sentence(dry_run=dry_run))
    if outcome.failed:
        raise typer.Exit(_CANNOT)
    if outcome.damaged:
        raise typer.Exit(_FAILED)


app.command("diff")(diff)
app.command("lag")(lag)
app.command("export")(job_commands.export)
app.command("copy")(job_commands.copy)
app.command("salvage")(salvage)
app.command("load")(job_commands.load)
app.command("mirror")(backup_commands.mirror)
app.add_typer(backup_commands.backup_app, name="backup")
app.command("restore")(restore)
app.command("clean")(clean_command.clean)
app.command("delete-records")(cut_commands.delete_records)
app.command("truncate")(cut_commands.truncate)
app.add_typer(job_commands.ledger, name="ledger")
app.add_typer(group_commands.groups_app, name="groups")
app.command("transactions")(system_commands.transactions)
app.command("cluster")(system_commands.cluster)
app.add_typer(topic_commands.topics, name="topics")
app.command("produce")(produce)


@app.command("warm-up")
def warm_up() -> None:
    """Compile all kernels ahead, for example for an image, so that no query waits for them; print their folder.

    They are kept once per user and machine. For another folder, set SPARKLOG_CACHE_DIR, here and where queries run.
    """
    from sparklog.record.kernels.warm_up import kernel_count, kernels_folder, load_kernels

    with progress(kernel_count(), "kernels") as advance:
        for name in load_kernels():
            advance(name, 1)
    folder = kernels_folder()
    if folder is None:
        render.complain("warning", "there is no folder to keep compiled kernels in: set SPARKLOG_CACHE_DIR")
        raise typer.Exit(_FAILED)
    render.say(f"all kernels ({kernel_count()}) are compiled for this machine, in {folder}")
