"""The commands of jobs: their arguments and options, which are named as those of Python."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparklog.cli.commands.arguments import EscapeFormulas, Fields, Json, Where
from sparklog.cli.commands.declared import with_options_of
from sparklog.cli.parsing import properties_of
from sparklog.jobs.run.options import JobOptions, LogJobOptions
from sparklog.topic.selection import Selection

_FAILED = 1

Sources = Annotated[
    list[str],
    typer.Argument(metavar="SRC...", help="Log directories, topics' paths (/logs/events), partitions' folders."),
]
Table = Annotated[str | None, typer.Option(help="The name of an Iceberg table in its catalog, such as sales.orders.")]
Catalog = Annotated[
    list[str] | None,
    typer.Option("--catalog", help="A property of that catalog, such as uri=sqlite:///c.db; may be repeated."),
]
From = Annotated[
    list[str] | None,
    typer.Option(
        "--from", help="Begin at an offset, topic:partition:offset (may be repeated), a time of ISO 8601, or earliest."
    ),
]
To = Annotated[list[str] | None, typer.Option("--to", help="Stop before it: as --from, or latest.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", help="A property of topics, such as compression.type=zstd; may be repeated."),
]
DecodedAs = Annotated[
    str | None,
    typer.Option(help="How it is decoded: string, json, avro, protobuf, json-schema, base64, hex, or module:function."),
]
Schema = Annotated[str | None, typer.Option(help="Its schema: text, such as 'id bigint, name string', or a path.")]


class _Export:
    """Options of ``export`` that go to Python as they are."""

    format: Annotated[str, typer.Option(help="parquet, arrow, csv, jsonl, delta or iceberg.")] = "parquet"
    key_format: DecodedAs = None
    value_format: DecodedAs = None
    unnests_value: Annotated[bool, typer.Option(help="Whether the fields of a value become columns of their own.")] = (
        False
    )
    on_decode_error: Annotated[
        str | None, typer.Option(help="What becomes of a record that does not decode: fail, dead_letter or null.")
    ] = None
    escape_formulas: EscapeFormulas = False
    table: Table = None
    where: Where = None
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Go on where ledger and files end, though a log is another than was moved, or the ledger lacks files.",
        ),
    ] = False
    row_group_rows: Annotated[int | None, typer.Option(min=1, help="How many rows a row group has at most.")] = None
    commit_interval_ms: Annotated[
        int | None, typer.Option(min=0, help="How long finished files wait to be visible.")
    ] = None


@with_options_of(_Export, Selection, LogJobOptions)
def export(
    sources: Sources,
    target: Annotated[str, typer.Argument(metavar="DST", help="The folder of the table, made where it is not there.")],
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="Columns with commas between; by default those of Spark, with headers."),
    ] = None,
    partition_by: Annotated[
        str, typer.Option("--partition-by", help="Folders of files: some of topic,partition,date,hour; none if empty.")
    ] = "topic,partition",
    key_schema: Schema = None,
    value_schema: Schema = None,
    catalog: Catalog = None,
    start: From = None,
    end: To = None,
    as_json: Json = False,
    _fields: Fields = False,
    **given: Any,
) -> None:
    """Move records to files of a table, Parquet by default, those left out that were moved there before.

    The ledger of the target says what was moved; a rerun, also after this one was killed, goes on from there. Exit
    status 1 where a partition is damaged; the others are moved.
    """
    # Compiled code is loaded only where records are decoded.
    from sparklog.cli.work.export import export as export_logs
    from sparklog.cli.work.export import selection_of

    options = selection_of(sources, given, start or (), end or ()) | {
        "columns": None if columns is None else columns.split(","),
        "partition_by": [name for name in partition_by.split(",") if name],
        "key_options": {} if key_schema is None else {"schema": key_schema},
        "value_options": {} if value_schema is None else {"schema": value_schema},
        "catalog": _catalog_of(catalog),
    }
    if not export_logs(sources, target, options, as_json=as_json):
        raise typer.Exit(_FAILED)


class _Copy:
    """Options of ``copy`` that go to Python as they are."""

    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="Let batches keep their offsets.")] = False
    keep_producers: Annotated[
        bool, typer.Option("--keep-producers", help="Let producers keep their ids: to restore the same cluster.")
    ] = False
    recompress: Annotated[str | None, typer.Option(help="Give all batches this codec.")] = None
    since_last: Annotated[bool, typer.Option(help="Whether what was copied before is left out.")] = True
    without_properties: Annotated[
        bool, typer.Option("--without-properties", help="Do not take stored properties of topics along.")
    ] = False


@with_options_of(_Copy, Selection, LogJobOptions)
def copy(
    sources: Sources,
    target: Annotated[str, typer.Argument(metavar="DST", help="A log directory, made where it is not there.")],
    renames: Annotated[
        list[str] | None, typer.Option("--renames", help="Copy a topic to another, as old:new; may be repeated.")
    ] = None,
    start: From = None,
    end: To = None,
    as_json: Json = False,
    _fields: Fields = False,
    **given: Any,
) -> None:
    """Copy partition logs to a log directory, batch by batch and untouched, those left out that were copied before.

    All of it becomes visible at once, or nothing. Exit status 1 where a partition is damaged; nothing is copied then.
    """
    from sparklog.cli.work.export import copy as copy_logs
    from sparklog.cli.work.export import renames_of, selection_of

    options = selection_of(sources, given, start or (), end or ()) | {"renames": renames_of(renames or ())}
    if not copy_logs(sources, target, options, as_json=as_json):
        raise typer.Exit(_FAILED)


class _Load:
    """Options of ``load`` that go to Python as they are."""

    topic: Annotated[str | None, typer.Option(help="The topic of all rows; else a column says it.")] = None
    num_partitions: Annotated[int | None, typer.Option(min=1, help="How many partitions a new topic gets.")] = None
    partitioner: Annotated[str, typer.Option(help="How rows that name no partition get one.")] = "default"
    value: Annotated[str, typer.Option(help="The column of values.")] = "value"
    topic_column: Annotated[str, typer.Option(help="The column of topics.")] = "topic"
    value_json: Annotated[bool, typer.Option("--value-json", help="Make values of all other columns.")] = False
    key_format: Annotated[str | None, typer.Option(help="What the text of keys is: base64 or hex.")] = None
    value_format: Annotated[str | None, typer.Option(help="What the text of values is: base64 or hex.")] = None
    format: Annotated[
        str | None, typer.Option(help="parquet, arrow, csv or json, where names of files do not say it.")
    ] = None
    csv_delimiter: Annotated[str, typer.Option(help="The character between fields of CSV.")] = ","
    csv_types: Annotated[
        str | None, typer.Option(help="Types of columns of CSV that are not text, such as 'id bigint, at timestamp'.")
    ] = None
    row_bytes_max: Annotated[int | None, typer.Option(min=1, help="Refuse a file with a row of more bytes.")] = None
    again: Annotated[bool, typer.Option("--again", help="Load also what was loaded before.")] = False


@with_options_of(_Load, JobOptions)
def load(
    sources: Annotated[list[str], typer.Argument(metavar="SRC...", help="Files, patterns, or folders of files.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A log directory, made if need be; or a topic's path.")],
    config: Configs = None,
    key: Annotated[str, typer.Option(help="The column of keys; none if empty.")] = "key",
    headers: Annotated[str, typer.Option(help="The column of headers; none if empty.")] = "headers",
    timestamp: Annotated[str, typer.Option(help="The column of times; none if empty.")] = "timestamp",
    partition: Annotated[str, typer.Option(help="The column of partitions; none if empty.")] = "partition",
    csv_columns: Annotated[
        str | None, typer.Option(help="Columns of CSV with commas between, where the first line does not say them.")
    ] = None,
    as_json: Json = False,
    _fields: Fields = False,
    **given: Any,
) -> None:
    """Load files of rows into partition logs, but for files that were loaded before and have not changed.

    All of it becomes visible at once, or nothing.
    """
    from sparklog.cli.work.load import load as load_files

    columns = {"key": key, "headers": headers, "timestamp": timestamp, "partition": partition}
    options = given | {name: column or None for name, column in columns.items()}
    options["config"] = properties_of(config or (), "--config")
    options["csv_columns"] = csv_columns.split(",") if csv_columns else ()
    load_files(sources, target, options, as_json=as_json)


def _catalog_of(texts: list[str] | None) -> dict[str, str] | None:
    return None if texts is None else properties_of(texts, "--catalog")


ledger = typer.Typer(no_args_is_help=True, help="Look into the ledger of a target, which says what jobs moved there.")


@ledger.callback()
def _ledger() -> None:
    pass


@ledger.command("show")
def show(
    path: Annotated[
        str, typer.Argument(help="The target of jobs: a folder of files, a table, a log directory; or the ledger.")
    ],
    commits: Annotated[bool, typer.Option("--commits", help="A line a commit, not a partition or a file.")] = False,
    table: Table = None,
    catalog: Catalog = None,
    as_json: Json = False,
    _fields: Fields = False,
) -> None:
    """Show up to which offset each partition was moved, which files were loaded, or the commits."""
    from sparklog.cli.work.ledger import show as show_ledger

    show_ledger(path, table, _catalog_of(catalog), of_commits=commits, as_json=as_json)


@ledger.command("verify")
def verify(
    path: Annotated[str, typer.Argument(help="The target of an export: a folder of files, or a table.")],
    quick: Annotated[bool, typer.Option("--quick", help="Look at names and sizes, and read no file.")] = False,
    table: Table = None,
    catalog: Catalog = None,
    as_json: Json = False,
    _fields: Fields = False,
) -> None:
    """Compare the files of an export with its ledger: each is there as it was written, and nothing twice.

    Tables of Delta Lake and Iceberg are compared with what their own logs say.

    Exit status 1 where rows may be lost, doubled or changed.
    """
    from sparklog.cli.work.ledger import verify as verify_files

    if not verify_files(path, table, _catalog_of(catalog), reads_files=not quick, as_json=as_json):
        raise typer.Exit(_FAILED)
