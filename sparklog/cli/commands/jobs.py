"""The commands of jobs: their arguments and options, which are named as those of Python."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Option

from sparklog.cli.commands.arguments import EscapeFormulas, Fields, Json, Where
from sparklog.cli.commands.declared import with_options_of
from sparklog.cli.parsing import properties_of
from sparklog.jobs.run.options import JobOptions, LogJobOptions
from sparklog.record.codecs.table import CODEC_IDS
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
    """Options of ``export`` that Python has under the same names."""

    columns: str | None = Option(None, help="Columns with commas between; by default those of Spark, with headers.")
    partition_by: str = Option("topic,partition", help="Folders: some of topic,partition,date,hour; none if empty.")
    format: str = Option("parquet", help="parquet, arrow, csv, jsonl, delta or iceberg.")
    key_format: DecodedAs = None
    value_format: DecodedAs = None
    unnests_value: bool = Option(False, help="Whether the fields of a value become columns of their own.")
    on_decode_error: str | None = Option(
        None, help="What becomes of a record that does not decode: fail, dead_letter or null."
    )
    escape_formulas: EscapeFormulas = False
    table: Table = None
    where: Where = None
    adopt: bool = Option(
        False,
        "--adopt",
        help="Go on where ledger and files end, though a log is another than was moved, or the ledger lacks files.",
    )
    row_group_rows: int | None = Option(None, min=1, help="How many rows a row group has at most.")
    commit_interval_ms: int | None = Option(None, min=0, help="How long finished files wait to be visible.")


@with_options_of(_Export, Selection, LogJobOptions)
def export(
    sources: Sources,
    target: Annotated[str, typer.Argument(metavar="DST", help="The folder of the table, made where it is not there.")],
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
        "columns": given["columns"].split(",") if "columns" in given else None,
        "partition_by": [name for name in given["partition_by"].split(",") if name],
        "key_options": {} if key_schema is None else {"schema": key_schema},
        "value_options": {} if value_schema is None else {"schema": value_schema},
        "catalog": _catalog_of(catalog),
    }
    if not export_logs(sources, target, options, as_json=as_json):
        raise typer.Exit(_FAILED)


class _Copy:
    """Options of ``copy`` that Python has under the same names."""

    keep_offsets: bool = Option(False, "--keep-offsets", help="Let batches keep their offsets.")
    keep_producers: bool = Option(
        False, "--keep-producers", help="Let producers keep their ids: to restore the same cluster."
    )
    recompress: str | None = Option(None, help=f"The codec of all batches: {', '.join(CODEC_IDS)}.")
    since_last: bool = Option(True, help="Whether what was copied before is left out.")
    without_properties: bool = Option(
        False, "--without-properties", help="Do not take stored properties of topics along."
    )


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
    """Options of ``load`` that Python has under the same names."""

    topic: str | None = Option(None, help="The topic of all rows; else a column says it.")
    num_partitions: int | None = Option(None, min=1, help="How many partitions a new topic gets.")
    partitioner: str = Option("default", help="How rows that name no partition get one.")
    key: str = Option("key", help="The column of keys; none if empty.")
    value: str = Option("value", help="The column of values.")
    headers: str = Option("headers", help="The column of headers; none if empty.")
    timestamp: str = Option("timestamp", help="The column of times; none if empty.")
    partition: str = Option("partition", help="The column of partitions; none if empty.")
    topic_column: str = Option("topic", help="The column of topics.")
    value_json: bool = Option(False, "--value-json", help="Make values of all other columns.")
    key_format: str | None = Option(None, help="What the text of keys is: base64 or hex.")
    value_format: str | None = Option(None, help="What the text of values is: base64 or hex.")
    format: str | None = Option(None, help="parquet, arrow, csv or json, where names of files do not say it.")
    csv_delimiter: str = Option(",", help="The character between fields of CSV.")
    csv_columns: str = Option("", help="Columns of CSV with commas between, where the first line does not say them.")
    csv_types: str | None = Option(
        None, help="Types of columns of CSV that are not text, such as 'id bigint, at timestamp'."
    )
    row_bytes_max: int | None = Option(None, min=1, help="Refuse a file with a row of more bytes.")
    again: bool = Option(False, "--again", help="Load also what was loaded before.")


@with_options_of(_Load, JobOptions)
def load(
    sources: Annotated[list[str], typer.Argument(metavar="SRC...", help="Files, patterns, or folders of files.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A log directory, made if need be; or a topic's path.")],
    config: Configs = None,
    as_json: Json = False,
    _fields: Fields = False,
    **given: Any,
) -> None:
    """Load files of rows into partition logs, but for files that were loaded before and have not changed.

    All of it becomes visible at once, or nothing.
    """
    from sparklog.cli.work.load import load as load_files

    options = given | {name: given[name] or None for name in ("key", "headers", "timestamp", "partition")}
    options["config"] = properties_of(config or (), "--config")
    options["csv_columns"] = [name for name in given["csv_columns"].split(",") if name]
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
