"""The commands of jobs: their arguments and options, which are named as those of Python."""

from __future__ import annotations

from typing import Annotated

import typer

from sparklog.cli.choices import IsolationLevels
from sparklog.cli.commands.arguments import EscapeFormulas, Fields, Json, Where
from sparklog.cli.parsing import properties_of
from sparklog.record.codecs.table import CODEC_IDS

_FAILED = 1

Sources = Annotated[
    list[str],
    typer.Argument(metavar="SRC...", help="Log directories, topics' paths (/logs/events), partitions' folders."),
]
Target = Annotated[str, typer.Argument(metavar="DST", help="The folder of the table, made where it is not there.")]
TableFormat = Annotated[str, typer.Option("--format", help="parquet, arrow, csv, jsonl, delta or iceberg.")]
Topics = Annotated[list[str] | None, typer.Option("--topics", help="Only this topic; may be repeated.")]
TopicPattern = Annotated[
    str | None, typer.Option("--topic-pattern", help="Only topics whose whole name this regular expression matches.")
]
Partitions = Annotated[
    list[str] | None, typer.Option("--partitions", help="Only this partition, as topic:partition; may be repeated.")
]
Columns = Annotated[
    str | None, typer.Option("--columns", help="Columns with commas between; by default those of Spark, with headers.")
]
PartitionBy = Annotated[
    str, typer.Option("--partition-by", help="Folders of files: some of topic,partition,date,hour; none if empty.")
]
DecodedAs = Annotated[
    str | None,
    typer.Option(help="How it is decoded: string, json, avro, protobuf, json-schema, base64, hex, or module:function."),
]
Schema = Annotated[str | None, typer.Option(help="Its schema: text, such as 'id bigint, name string', or a path.")]
OnDecodeErrors = Annotated[
    str | None, typer.Option(help="What becomes of a record that does not decode: fail, dead_letter or null.")
]
UnnestsValue = Annotated[bool, typer.Option(help="Whether the fields of a value become columns of their own.")]
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
FromGroup = Annotated[
    str | None, typer.Option("--from-group", help="Begin where this consumer group is, by its committed offsets.")
]
ToGroup = Annotated[str | None, typer.Option("--to-group", help="Stop where this consumer group is.")]
OffsetsPath = Annotated[
    list[str] | None,
    typer.Option("--offsets-path", help="Log directory that has __consumer_offsets, if SRC has not; may be repeated."),
]
HighWatermark = Annotated[
    bool, typer.Option("--high-watermark", help="Stop where the replicas had confirmed all, by a broker's checkpoint.")
]
FailOnDataLoss = Annotated[
    bool, typer.Option(help="Whether offsets that are gone and were never moved are an error, or a warning.")
]
Adopt = Annotated[
    bool,
    typer.Option(
        "--adopt",
        help="Go on where ledger and files end, though a log is not the one that was moved, or the ledger lacks files.",
    ),
]
TaskBytes = Annotated[int | None, typer.Option(min=1, help="About how many bytes of log become one file at most.")]
RowGroupRows = Annotated[int | None, typer.Option(min=1, help="How many rows a row group has at most.")]
CommitIntervalMs = Annotated[int | None, typer.Option(min=0, help="How long finished files wait to be visible.")]
LockTimeoutSeconds = Annotated[
    float | None, typer.Option(min=0, help="How long to wait for another job that moves to the same target.")
]
JobProcesses = Annotated[int | None, typer.Option(min=1, help="How many processes work; one for each core by default.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, and say what would be moved.")]

Configs = Annotated[
    list[str] | None,
    typer.Option("--config", help="A property of topics, such as compression.type=zstd; may be repeated."),
]
InputFormat = Annotated[
    str | None, typer.Option("--format", help="parquet, arrow, csv or json, where names of files do not say it.")
]
CsvColumns = Annotated[
    str | None, typer.Option(help="Columns of CSV with commas between, where the first line does not say them.")
]
CsvTypes = Annotated[
    str | None, typer.Option(help="Types of columns of CSV that are not text, such as 'id bigint, at timestamp'.")
]


def export(
    sources: Sources,
    target: Target,
    form: TableFormat = "parquet",
    topics: Topics = None,
    topic_pattern: TopicPattern = None,
    partitions: Partitions = None,
    columns: Columns = None,
    partition_by: PartitionBy = "topic,partition",
    key_format: DecodedAs = None,
    key_schema: Schema = None,
    value_format: DecodedAs = None,
    value_schema: Schema = None,
    unnests_value: UnnestsValue = False,
    on_decode_error: OnDecodeErrors = None,
    escape_formulas: EscapeFormulas = False,
    table: Table = None,
    catalog: Catalog = None,
    start: From = None,
    end: To = None,
    from_group: FromGroup = None,
    to_group: ToGroup = None,
    offsets_path: OffsetsPath = None,
    where: Where = None,
    isolation_level: Annotated[
        IsolationLevels, typer.Option(help="Whether records of aborted and open transactions are moved.")
    ] = IsolationLevels.READ_COMMITTED,
    high_watermark: HighWatermark = False,
    fail_on_data_loss: FailOnDataLoss = True,
    adopt: Adopt = False,
    processes: JobProcesses = None,
    task_bytes: TaskBytes = None,
    row_group_rows: RowGroupRows = None,
    commit_interval_ms: CommitIntervalMs = None,
    lock_timeout_seconds: LockTimeoutSeconds = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    _fields: Fields = False,
) -> None:
    """Move records to files of a table, Parquet by default, those left out that were moved there before.

    The ledger of the target says what was moved; a rerun, also after this one was killed, goes on from there. Exit
    status 1 where a partition is damaged; the others are moved.
    """
    # Compiled code is loaded only where records are decoded.
    from sparklog.cli.work.export import export as export_logs
    from sparklog.cli.work.export import selection_of

    given = {
        "format": form,
        "columns": None if columns is None else columns.split(","),
        "partition_by": [name for name in partition_by.split(",") if name],
        "key_format": key_format,
        "key_options": None if key_schema is None else {"schema": key_schema},
        "value_format": value_format,
        "value_options": None if value_schema is None else {"schema": value_schema},
        "unnests_value": unnests_value,
        "on_decode_error": on_decode_error,
        "escape_formulas": escape_formulas,
        "table": table,
        "catalog": _catalog_of(catalog),
        "start_group": from_group,
        "end_group": to_group,
        "offsets_path": offsets_path,
        "where": where,
        "isolation_level": isolation_level.value,
        "stops_at_high_watermark": high_watermark,
        "fail_on_data_loss": fail_on_data_loss,
        "adopt": adopt,
        "processes": processes,
        "task_bytes": task_bytes,
        "row_group_rows": row_group_rows,
        "commit_interval_ms": commit_interval_ms,
        "lock_timeout_seconds": lock_timeout_seconds,
    }
    selection = selection_of(sources, topics or (), topic_pattern, partitions or (), start or (), end or ())
    options = selection | {name: value for name, value in given.items() if value is not None}
    if not export_logs(sources, target, options, dry_run=dry_run, as_json=as_json):
        raise typer.Exit(_FAILED)


def copy(
    sources: Sources,
    target: Annotated[str, typer.Argument(metavar="DST", help="A log directory, made where it is not there.")],
    topics: Topics = None,
    topic_pattern: TopicPattern = None,
    partitions: Partitions = None,
    renames: Annotated[
        list[str] | None, typer.Option("--renames", help="Copy a topic to another, as old:new; may be repeated.")
    ] = None,
    start: From = None,
    end: To = None,
    from_group: FromGroup = None,
    to_group: ToGroup = None,
    offsets_path: OffsetsPath = None,
    isolation_level: Annotated[
        IsolationLevels, typer.Option(help="Whether to stop at the last stable offset, before open transactions.")
    ] = IsolationLevels.READ_COMMITTED,
    high_watermark: HighWatermark = False,
    fail_on_data_loss: FailOnDataLoss = True,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="Let batches keep their offsets.")] = False,
    keep_producers: Annotated[
        bool, typer.Option("--keep-producers", help="Let producers keep their ids: to restore the same cluster.")
    ] = False,
    recompress: Annotated[str | None, typer.Option(help=f"The codec of all batches: {', '.join(CODEC_IDS)}.")] = None,
    since_last: Annotated[bool, typer.Option(help="Whether what was copied before is left out.")] = True,
    without_properties: Annotated[
        bool, typer.Option("--without-properties", help="Do not take stored properties of topics along.")
    ] = False,
    processes: JobProcesses = None,
    task_bytes: TaskBytes = None,
    lock_timeout_seconds: LockTimeoutSeconds = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    _fields: Fields = False,
) -> None:
    """Copy partition logs to a log directory, batch by batch and untouched, those left out that were copied before.

    All of it becomes visible at once, or nothing. Exit status 1 where a partition is damaged; nothing is copied then.
    """
    from sparklog.cli.work.export import copy as copy_logs
    from sparklog.cli.work.export import renames_of, selection_of

    given = {
        "renames": renames_of(renames or ()),
        "start_group": from_group,
        "end_group": to_group,
        "offsets_path": offsets_path,
        "isolation_level": isolation_level.value,
        "stops_at_high_watermark": high_watermark,
        "fail_on_data_loss": fail_on_data_loss,
        "keep_offsets": keep_offsets,
        "keep_producers": keep_producers,
        "recompress": recompress,
        "since_last": since_last,
        "without_properties": without_properties,
        "processes": processes,
        "task_bytes": task_bytes,
        "lock_timeout_seconds": lock_timeout_seconds,
    }
    selection = selection_of(sources, topics or (), topic_pattern, partitions or (), start or (), end or ())
    options = selection | {name: value for name, value in given.items() if value is not None}
    if not copy_logs(sources, target, options, dry_run=dry_run, as_json=as_json):
        raise typer.Exit(_FAILED)


def load(
    sources: Annotated[list[str], typer.Argument(metavar="SRC...", help="Files, patterns, or folders of files.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A log directory, made if need be; or a topic's path.")],
    topic: Annotated[str | None, typer.Option(help="The topic of all rows; else a column says it.")] = None,
    num_partitions: Annotated[int | None, typer.Option(min=1, help="How many partitions a new topic gets.")] = None,
    config: Configs = None,
    partitioner: Annotated[str, typer.Option(help="How rows that name no partition get one.")] = "default",
    key: Annotated[str, typer.Option(help="The column of keys; none if empty.")] = "key",
    value: Annotated[str, typer.Option(help="The column of values.")] = "value",
    headers: Annotated[str, typer.Option(help="The column of headers; none if empty.")] = "headers",
    timestamp: Annotated[str, typer.Option(help="The column of times; none if empty.")] = "timestamp",
    partition: Annotated[str, typer.Option(help="The column of partitions; none if empty.")] = "partition",
    topic_column: Annotated[str, typer.Option(help="The column of topics.")] = "topic",
    value_json: Annotated[bool, typer.Option("--value-json", help="Make values of all other columns.")] = False,
    key_format: Annotated[str | None, typer.Option(help="What the text of keys is: base64 or hex.")] = None,
    value_format: Annotated[str | None, typer.Option(help="What the text of values is: base64 or hex.")] = None,
    form: InputFormat = None,
    csv_delimiter: Annotated[str, typer.Option(help="The character between fields of CSV.")] = ",",
    csv_columns: CsvColumns = None,
    csv_types: CsvTypes = None,
    row_bytes_max: Annotated[int | None, typer.Option(min=1, help="Refuse a file with a row of more bytes.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Load also what was loaded before.")] = False,
    processes: JobProcesses = None,
    lock_timeout_seconds: LockTimeoutSeconds = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    _fields: Fields = False,
) -> None:
    """Load files of rows into partition logs, but for files that were loaded before and have not changed.

    All of it becomes visible at once, or nothing.
    """
    from sparklog.cli.work.load import load as load_files

    options: dict[str, object] = {
        "topic": topic,
        "num_partitions": num_partitions,
        "config": properties_of(config or (), "--config"),
        "partitioner": partitioner,
        "key": key or None,
        "value": value,
        "headers": headers or None,
        "timestamp": timestamp or None,
        "partition": partition or None,
        "topic_column": topic_column,
        "value_json": value_json,
        "key_format": key_format,
        "value_format": value_format,
        "format": form,
        "csv_delimiter": csv_delimiter,
        "csv_columns": csv_columns.split(",") if csv_columns else (),
        "csv_types": csv_types,
        "again": again,
        "processes": processes,
    }
    limits = {"lock_timeout_seconds": lock_timeout_seconds, "row_bytes_max": row_bytes_max}
    options |= {name: value for name, value in limits.items() if value is not None}
    load_files(sources, target, options, dry_run=dry_run, as_json=as_json)


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
