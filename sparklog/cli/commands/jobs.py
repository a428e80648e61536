"""The commands of jobs: their arguments, and their options, which have the same names in Python."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from typer import Option

from sparklog.cli.commands.arguments import EscapeFormulas, Json, ShowFields, WhereText
from sparklog.cli.commands.declared import with_options_of
from sparklog.cli.parsing import properties_of
from sparklog.jobs.run.options import JobOptions, LogJobOptions
from sparklog.record.codecs.table import CODEC_IDS
from sparklog.topic.selection import Selection

_FAILED = 1

Sources = Annotated[
    list[str],
    typer.Argument(metavar="SRC...", help="Log directories, paths of topics (/logs/events), or folders of partitions."),
]
Table = Annotated[str | None, typer.Option(help="The name of an Iceberg table in its catalog, such as sales.orders.")]
Catalog = Annotated[
    list[str] | None,
    typer.Option("--catalog", help="A property of that catalog, such as uri=sqlite:///c.db; may be repeated."),
]
From = Annotated[
    list[str] | None,
    typer.Option(
        "--from", help="Begin at an offset, topic:partition:offset (may be repeated), an ISO 8601 time, or earliest."
    ),
]
To = Annotated[list[str] | None, typer.Option("--to", help="Stop before this bound: as --from, or latest.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", help="A property of topics, such as compression.type=zstd; may be repeated."),
]
DecodedAs = Annotated[
    str | None,
    typer.Option(help="How it is encoded: string, json, avro, protobuf, json-schema, base64, hex, or module:function."),
]
SchemaText = Annotated[
    str | None, typer.Option(help="The schema of that encoding: text, such as 'id bigint, name string', or a path.")
]


class _Export:
    """Options of ``export`` that have the same names in Python."""

    columns: str | None = Option(None, help="Columns, separated by commas; by default as in Spark, with headers.")
    partition_by: str = Option("topic,partition", help="Folders: any of topic,partition,date,hour; none if empty.")
    format: str = Option("parquet", help="parquet, arrow, csv, jsonl, delta or iceberg.")
    key_format: DecodedAs = None
    value_format: DecodedAs = None
    unnests_value: bool = Option(False, help="Whether the fields of a value become separate columns.")
    on_decode_error: str | None = Option(
        None, help="Action for a record that does not decode: fail, dead_letter or null."
    )
    escape_formulas: EscapeFormulas = False
    table: Table = None
    where: WhereText = None
    adopt: bool = Option(
        False,
        "--adopt",
        help="Continue where ledger and files end, even if a log was replaced, or the ledger lacks files.",
    )
    row_group_rows: int | None = Option(None, min=1, help="Maximum rows of a row group.")
    commit_interval_ms: int | None = Option(None, min=0, help="How long finished files wait to become visible.")
    unknown: Literal["drop", "keep"] | None = Option(
        None, help="Whether skipped damage that may hide a transaction's marker drops or keeps its records."
    )


@with_options_of(_Export, Selection, LogJobOptions)
def export(
    sources: Sources,
    target: Annotated[str, typer.Argument(metavar="DST", help="The folder of the table; created if missing.")],
    key_schema: SchemaText = None,
    value_schema: SchemaText = None,
    catalog: Catalog = None,
    start: From = None,
    end: To = None,
    as_json: Json = False,
    _fields: ShowFields = False,
    **given: Any,
) -> None:
    """Move records to files of a table, by default Parquet, without records that were moved there before.

    The target's ledger records the progress; a rerun continues from there, also after this run was killed. Exit status
    1 if a partition is damaged; the others are moved.
    """
    # Compiled code is loaded only if records are decoded.
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
    """Options of ``copy`` that have the same names in Python."""

    keep_offsets: bool = Option(False, "--keep-offsets", help="Keep the offsets of batches.")
    keep_producers: bool = Option(
        False, "--keep-producers", help="Keep the ids of producers, to restore the same cluster."
    )
    recompress: str | None = Option(None, help=f"The codec of all batches: {', '.join(CODEC_IDS)}.")
    since_last: bool = Option(True, help="Whether to skip batches that were copied before.")
    without_properties: bool = Option(False, "--without-properties", help="Do not copy stored properties of topics.")


@with_options_of(_Copy, Selection, LogJobOptions)
def copy(
    sources: Sources,
    target: Annotated[str, typer.Argument(metavar="DST", help="A log directory; created if missing.")],
    renames: Annotated[
        list[str] | None, typer.Option("--renames", help="Copy a topic to another, as old:new; may be repeated.")
    ] = None,
    start: From = None,
    end: To = None,
    as_json: Json = False,
    _fields: ShowFields = False,
    **given: Any,
) -> None:
    """Copy partition logs to a log directory, batch by batch and unchanged, without batches that were copied before.

    All batches become visible at once, or none. Exit status 1 if a partition is damaged; nothing is copied then.
    """
    from sparklog.cli.work.export import copy as copy_logs
    from sparklog.cli.work.export import renames_of, selection_of

    options = selection_of(sources, given, start or (), end or ()) | {"renames": renames_of(renames or ())}
    if not copy_logs(sources, target, options, as_json=as_json):
        raise typer.Exit(_FAILED)


class _Load:
    """Options of ``load`` that have the same names in Python."""

    topic: str | None = Option(None, help="The topic of all rows; else a column names it.")
    num_partitions: int | None = Option(None, min=1, help="Number of partitions of a new topic.")
    partitioner: str = Option("default", help="How to choose a partition for rows without one.")
    key: str = Option("key", help="The column of keys; none if empty.")
    value: str = Option("value", help="The column of values.")
    headers: str = Option("headers", help="The column of headers; none if empty.")
    timestamp: str = Option("timestamp", help="The column of times; none if empty.")
    partition: str = Option("partition", help="The column of partitions; none if empty.")
    topic_column: str = Option("topic", help="The column of topics.")
    value_json: bool = Option(False, "--value-json", help="Make JSON values of all other columns.")
    key_format: str | None = Option(None, help="The encoding of keys given as text: base64 or hex.")
    value_format: str | None = Option(None, help="The encoding of values given as text: base64 or hex.")
    format: str | None = Option(None, help="parquet, arrow, csv or json, if the names of files do not show it.")
    csv_delimiter: str = Option(",", help="The character between fields of CSV.")
    csv_columns: str = Option("", help="Columns of CSV, separated by commas, if the first line does not name them.")
    csv_types: str | None = Option(
        None, help="Types of columns of CSV that are not text, such as 'id bigint, at timestamp'."
    )
    row_bytes_max: int | None = Option(None, min=1, help="Refuse a file with a row of more bytes.")
    again: bool = Option(False, "--again", help="Load files again that were loaded before.")


@with_options_of(_Load, JobOptions)
def load(
    sources: Annotated[list[str], typer.Argument(metavar="SRC...", help="Files, patterns, or folders of files.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A log directory, created if missing; or a topic path.")],
    config: Configs = None,
    as_json: Json = False,
    _fields: ShowFields = False,
    **given: Any,
) -> None:
    """Load files of rows into partition logs, except files that were loaded before and have not changed.

    All rows become visible at once, or none.
    """
    from sparklog.cli.work.load import load as load_files

    options = given | {name: given[name] or None for name in ("key", "headers", "timestamp", "partition")}
    options["config"] = properties_of(config or (), "--config")
    options["csv_columns"] = [name for name in given["csv_columns"].split(",") if name]
    load_files(sources, target, options, as_json=as_json)


def _catalog_of(texts: list[str] | None) -> dict[str, str] | None:
    return None if texts is None else properties_of(texts, "--catalog")


ledger = typer.Typer(no_args_is_help=True, help="Show or verify the ledger of a target: what jobs moved there.")


@ledger.callback()
def _ledger() -> None:
    pass


@ledger.command("show")
def show(
    path: Annotated[
        str, typer.Argument(help="The target of jobs: a folder of files, a table, a log directory; or the ledger.")
    ],
    commits: Annotated[bool, typer.Option("--commits", help="One line per commit, not per partition or file.")] = False,
    table: Table = None,
    catalog: Catalog = None,
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Show the offset up to which each partition was moved, the loaded files, or the commits."""
    from sparklog.cli.work.ledger import print_ledger

    print_ledger(path, table, _catalog_of(catalog), of_commits=commits, as_json=as_json)


@ledger.command("verify")
def verify(
    path: Annotated[str, typer.Argument(help="The target of an export: a folder of files, or a table.")],
    quick: Annotated[bool, typer.Option("--quick", help="Check only names and sizes, and read no file.")] = False,
    table: Table = None,
    catalog: Catalog = None,
    as_json: Json = False,
    _fields: ShowFields = False,
) -> None:
    """Compare the files of an export with its ledger: every file exists unchanged, and no record is there twice.

    Tables of Delta Lake and Iceberg are compared with their own logs.

    Exit status 1 if rows may be lost, doubled or changed.
    """
    from sparklog.cli.work.ledger import print_differences

    if not print_differences(path, table, _catalog_of(catalog), reads_files=not quick, as_json=as_json):
        raise typer.Exit(_FAILED)
